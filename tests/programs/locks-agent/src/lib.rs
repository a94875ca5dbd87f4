//! An agent that locks files: `lock MODE PATH MS` answers a number, `change NUMBER MODE MS`, `held NUMBER`
//! and `unlock NUMBER` take it. `count PATH N` adds one N times to the number in a file, each time under an
//! exclusive lock. `panic` fails the turn.

mod bindings;

use bindings::dormouse::zones::locks::{self, Mode, Refusal};
use bindings::{Event, Guest, Reply};

/// Milliseconds that `count` waits for a lock.
const PATIENCE: u32 = 60_000;

struct LocksAgent;

impl Guest for LocksAgent {
    fn handle(event: Event) -> Result<Reply, String> {
        let text = String::from_utf8(event.payload).map_err(|e| e.to_string())?;
        let words: Vec<&str> = text.split(' ').collect();
        let answer = match words[..] {
            ["lock", mode, path, wait] => {
                locks::acquire(path, read_mode(mode)?, number(wait)?).map_err(|e| refused(&e))?.to_string()
            }
            ["change", lock, mode, wait] => {
                locks::change(number(lock)?, read_mode(mode)?, number(wait)?).map_err(|e| refused(&e))?;
                "changed".into()
            }
            ["held", lock] => locks::is_held(number(lock)?).to_string(),
            ["unlock", lock] => locks::release(number(lock)?).to_string(),
            ["count", path, times] => count(path, number(times)?)?,
            ["panic"] => panic!("as it was asked to"),
            _ => return Err(format!("{text:?} is not a command")),
        };
        Ok(Reply { payload: answer.into_bytes() })
    }
}

fn read_mode(word: &str) -> Result<Mode, String> {
    match word {
        "shared" => Ok(Mode::Shared),
        "exclusive" => Ok(Mode::Exclusive),
        _ => Err(format!("{word:?} is no mode")),
    }
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Held => "held".into(),
        Refusal::Deadlock => "deadlock".into(),
        Refusal::TooMany => "too many".into(),
        Refusal::Failed(e) => format!("{e:?}"),
    }
}

fn count(path: &str, times: u32) -> Result<String, String> {
    let mut value = 0;
    for _ in 0..times {
        let lock = locks::acquire(path, Mode::Exclusive, PATIENCE).map_err(|e| refused(&e))?;
        let before = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        value = before.trim().parse::<u32>().map_err(|e| format!("{e} in {before:?}"))? + 1;
        std::fs::write(path, value.to_string()).map_err(|e| e.to_string())?;
        if !locks::release(lock) {
            return Err("the lock was lost".into());
        }
    }
    Ok(value.to_string())
}

bindings::export!(LocksAgent with_types_in bindings);
