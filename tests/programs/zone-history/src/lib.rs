//! An agent that asks its zones for their history: a command for each function of `dormouse:zones`.

mod bindings;

use std::fmt::Write;
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Mutex;

use bindings::dormouse::zones::types::Error;
use bindings::dormouse::zones::{changes, history};
use bindings::{Event, Guest, Reply};

struct ZoneHistory;

/// The file that `hold` has opened.
static HELD: Mutex<Option<File>> = Mutex::new(None);

impl Guest for ZoneHistory {
    fn handle(event: Event) -> Result<Reply, String> {
        let command = String::from_utf8(event.payload).map_err(|_| "a command is text".to_string())?;
        let words: Vec<&str> = command.split(' ').collect();
        Ok(Reply { payload: run(&words)?.into_bytes() })
    }
}

/// An error as its name and its text.
fn told(error: Error) -> String {
    match error {
        Error::NoEntry(text) => format!("no-entry: {text}"),
        Error::NotPermitted(text) => format!("not-permitted: {text}"),
        Error::Unsupported(text) => format!("unsupported: {text}"),
        Error::Changed(text) => format!("changed: {text}"),
        Error::Quota(text) => format!("quota: {text}"),
        Error::Invalid(text) => format!("invalid: {text}"),
        Error::Io(text) => format!("io: {text}"),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn optional(text: Option<&&str>) -> Result<Option<u64>, String> {
    text.map(|text| number(text)).transpose()
}

fn list<T>(entries: Vec<T>, line: impl Fn(T) -> String) -> String {
    entries.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[expect(clippy::too_many_lines, reason = "an arm for each command")]
fn run(words: &[&str]) -> Result<String, String> {
    let system = |error: std::io::Error| error.to_string();
    match words {
        ["write", path, text @ ..] => {
            std::fs::write(path, text.join(" ")).map_err(system)?;
            Ok(String::new())
        }
        ["cat", path] => std::fs::read_to_string(path).map_err(system),
        ["ls", path] => {
            let names = std::fs::read_dir(path).map_err(system)?;
            let mut names: Vec<String> = names
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<Result<_, _>>()
                .map_err(system)?;
            names.sort();
            Ok(names.join("\n"))
        }
        ["rename", from, to] => std::fs::rename(from, to).map(|()| String::new()).map_err(system),
        ["rename-if", from, to, rest @ ..] => {
            history::rename_if(from, to, optional(rest.first())?).map_err(told)?;
            Ok(String::new())
        }
        ["unlink", path] => std::fs::remove_file(path).map(|()| String::new()).map_err(system),
        ["versions", path] => {
            let versions = history::versions(path, None, 1000).map_err(told)?;
            Ok(list(versions, |v| {
                let mut line = format!("{} {:?} {}", v.number, v.kind, v.size);
                if v.current {
                    line.push_str(" current");
                }
                line
            }))
        }
        // how many versions there are once a writer is closed while a reader is still open
        ["write-beside-a-reader", path, text] => {
            let reader = File::open(path).map_err(system)?;
            std::fs::write(path, text).map_err(system)?;
            let versions = history::versions(path, None, 1000).map_err(told)?.len();
            drop(reader);
            Ok(versions.to_string())
        }
        ["read", path, version] => {
            let bytes = history::read(path, number(version)?, 0, 1 << 20).map_err(told)?;
            String::from_utf8(bytes).map_err(|e| e.to_string())
        }
        ["current", path] => Ok(format!("{:?}", history::current(path).map_err(told)?)),
        ["publish", path, rest @ ..] => {
            Ok(format!("{:?}", history::publish(path, optional(rest.first())?).map_err(told)?))
        }
        ["rollback", path, to, rest @ ..] => {
            let made = history::rollback(path, number(to)?, optional(rest.first())?).map_err(told)?;
            Ok(made.to_string())
        }
        ["remove", path, version] => {
            history::remove(path, number(version)?).map_err(told)?;
            Ok(String::new())
        }
        ["removed", path] => Ok(list(history::removed(path, None, 1000).map_err(told)?, |gone| gone.path)),
        // as many at a time, each page after the last of the one before
        ["removed-in-pages", path, limit] => {
            let limit = number(limit)?.try_into().map_err(|_| "too many".to_string())?;
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let page = history::removed(path, after, limit).map_err(told)?;
                let Some(last) = page.last() else { return Ok(all.join("\n")) };
                after = Some(last.number);
                all.push(list(page, |gone| gone.path).replace('\n', " "));
            }
        }
        ["removed-after", path, event] => {
            Ok(list(history::removed(path, Some(number(event)?), 1000).map_err(told)?, |gone| gone.path))
        }
        ["forget", path] => {
            let gone = history::forget(path).map_err(told)?;
            Ok(format!("{} {}", gone.contents, gone.bytes))
        }
        ["hold", path] => {
            let file = File::open(path).map_err(system)?;
            *HELD.lock().map_err(|e| e.to_string())? = Some(file);
            Ok(String::new())
        }
        ["held"] => {
            let mut held = HELD.lock().map_err(|e| e.to_string())?;
            let file = held.as_mut().ok_or("nothing is held")?;
            let mut text = String::new();
            file.rewind().map_err(system)?;
            file.read_to_string(&mut text).map_err(system)?;
            Ok(text)
        }
        ["let-go"] => {
            *HELD.lock().map_err(|e| e.to_string())? = None;
            Ok(String::new())
        }
        ["diff", path, old, new, rest @ ..] => {
            let point = |word: &str| if word == "-" { Ok(None) } else { number(word).map(Some) };
            let (old, new) = (point(old)?, point(new)?);
            let found = history::diff(path, old, new, rest.first().copied(), 2).map_err(told)?;
            let size = |size: Option<u64>| size.map_or("-".to_string(), |size| size.to_string());
            Ok(list(found, |it| {
                format!("{:?} {} {} {}", it.kind, it.path, size(it.size_before), size(it.size_after))
            }))
        }
        ["wait", path, after, wait] => {
            let wait = number(wait)?.try_into().map_err(|_| "too long".to_string())?;
            Ok(changes::wait(path, number(after)?, wait).map_err(told)?.to_string())
        }
        ["changes", path, after] => {
            let batch = changes::changes(path, number(after)?, 1000).map_err(told)?;
            let mut text = list(batch.entries, |c| {
                format!("{} {:?} {}", c.sequence, c.kind, c.path.unwrap_or_default())
            });
            let _ = write!(text, "\nlast {}", batch.last); // a String takes all
            Ok(text)
        }
        _ => Err("there is no such command".into()),
    }
}

bindings::export!(ZoneHistory with_types_in bindings);
