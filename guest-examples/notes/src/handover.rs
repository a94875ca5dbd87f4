//! What the agent hands to another version of itself: lines of text, so that any later version can read them.

use std::collections::BTreeMap;

/// The first line: what it is, in which version.
const HEAD: &str = "notes 1";

/// What is handed over: the number of turns, notes in order, facts by key.
pub type Known = (u64, Vec<String>, BTreeMap<String, String>);

/// Writes what is known. A line is a word and a text, in which line breaks and backslashes are escaped.
pub fn write<'a>(
    turns: u64,
    notes: impl Iterator<Item = &'a str>,
    facts: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<u8> {
    let mut text = format!("{HEAD}\nturns {turns}\n");
    for note in notes {
        text.extend(["note ", &escape(note), "\n"]);
    }
    for (key, value) in facts {
        text.extend(["fact ", &escape(key), "\n", &escape(value), "\n"]);
    }
    text.into_bytes()
}

/// Reads what was written.
pub fn read(state: &[u8]) -> Result<Known, String> {
    let text = std::str::from_utf8(state).map_err(|_| "the state is not UTF-8".to_string())?;
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err(format!("the state does not begin with {HEAD:?}"));
    }
    let (mut turns, mut notes, mut facts) = (0, Vec::new(), BTreeMap::new());
    while let Some(line) = lines.next() {
        match line.split_once(' ') {
            Some(("turns", number)) => turns = number.parse().map_err(|_| format!("{number:?} turns"))?,
            Some(("note", note)) => notes.push(unescape(note)),
            Some(("fact", key)) => {
                let value = lines.next().ok_or("a fact without a value")?;
                facts.insert(unescape(key), unescape(value));
            }
            _ => return Err(format!("{line:?} is not understood")),
        }
    }
    Ok((turns, notes, facts))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '\\' { rest.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some(other)) => out.push(other),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn what_is_written_is_read() {
        let state = write(7, ["a \\n b", "two\nlines"].into_iter(), [("k\r", ""), ("l", "v")].into_iter());
        let (turns, notes, facts) = read(&state).unwrap();
        assert_eq!((turns, notes), (7, vec!["a \\n b".to_string(), "two\nlines".into()]));
        assert_eq!(
            facts.into_iter().collect::<Vec<_>>(),
            [("k\r".into(), String::new()), ("l".into(), "v".into())]
        );
    }

    #[test]
    fn what_is_something_else_is_refused() {
        assert!(read(b"notes 2\n").is_err_and(|e| e.contains("notes 1")));
        assert!(read(b"notes 1\nsong x\n").is_err_and(|e| e.contains("song")));
        assert!(read(b"notes 1\nfact x\n").is_err());
    }
}
