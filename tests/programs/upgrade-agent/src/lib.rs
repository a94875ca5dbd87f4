//! An agent that goes wrong where it is upgraded, as it is told. `keep TEXT` is what it knows, `what` gives it with the
//! starts that it was told of, `hold PATH` creates a file and removes its name while it stays open, `fail` makes its
//! next `resumed` trap.
//!
//! `save` gives the text, and for `large-save` a byte more than it may: it answers with an error for `refuse-save`, traps for `trap-save`, does not end for
//! `endless-save`, and writes a file first for `write-save`. `load` does so for the words with `load`.

mod bindings;

use std::cell::RefCell;
use std::fs::File;

use bindings::{Event, Guest, Reply, StartCause};

#[derive(Default)]
struct State {
    text: String,
    starts: Vec<String>,
    held: Option<File>,
    fails: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

struct UpgradeAgent;

fn go_wrong(text: &str, whence: &str) -> Result<(), String> {
    let Some(how) = text.strip_suffix(whence) else { return Ok(()) };
    match how {
        "refuse-" => Err("as it was told".into()),
        "trap-" => panic!("as it was told"),
        "endless-" => loop {
            std::hint::black_box(());
        },
        "write-" => std::fs::write("/workspace/left", whence).map_err(|e| e.to_string()),
        _ => Ok(()),
    }
}

impl Guest for UpgradeAgent {
    fn handle(event: Event) -> Result<Reply, String> {
        let text = String::from_utf8(event.payload).map_err(|e| e.to_string())?;
        STATE.with_borrow_mut(|state| {
            let answer = match text.split_once(' ').unwrap_or((&text, "")) {
                ("keep", text) => {
                    state.text = text.into();
                    String::new()
                }
                ("what", _) => format!("{:?} {}", state.text, state.starts.join(" ")),
                ("hold", path) => {
                    state.held = Some(File::create(path).map_err(|e| e.to_string())?);
                    std::fs::remove_file(path).map_err(|e| e.to_string())?;
                    String::new()
                }
                ("fail", _) => {
                    state.fails = true;
                    String::new()
                }
                _ => return Err(format!("{text:?} is not a command")),
            };
            Ok(Reply { payload: answer.into_bytes() })
        })
    }

    fn resumed(cause: StartCause, generation: u64) {
        assert_eq!(bindings::dormouse::agent::lifecycle::generation(), generation);
        STATE.with_borrow_mut(|state| {
            assert!(!state.fails, "as it was told");
            state.starts.push(format!("{cause:?}").trim_start_matches("StartCause::").to_lowercase());
        });
    }

    fn save() -> Result<Vec<u8>, String> {
        STATE.with_borrow(|state| {
            go_wrong(&state.text, "save")?;
            if state.text == "large-save" {
                return Ok(vec![0; (32 << 20) + 1]);
            }
            Ok(state.text.clone().into_bytes())
        })
    }

    fn load(state: Vec<u8>) -> Result<(), String> {
        let text = String::from_utf8(state).map_err(|e| e.to_string())?;
        go_wrong(&text, "load")?;
        STATE.with_borrow_mut(|state| state.text = text);
        Ok(())
    }
}

bindings::export!(UpgradeAgent with_types_in bindings);
