//! An agent that holds a handle of every kind between its turns.
//!
//! The event `open` opens them all in `/workspace`; each `use` after it goes on with every one of
//! them, and answers a line per check (as an error when one failed). Between two turns the agent may
//! be paused, resumed in another process, or forked.

mod bindings;
mod held;

use std::cell::RefCell;

use bindings::{Event, Guest, Reply};
use held::Held;

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

struct HeldHandles;

impl Guest for HeldHandles {
    fn handle(event: Event) -> Result<Reply, String> {
        let answer = match event.payload.as_slice() {
            b"open" => {
                let held = Held::open().map_err(|error| error.to_string())?;
                HELD.set(Some(held));
                "opened".into()
            }
            b"use" => HELD.with_borrow_mut(|held| match held {
                Some(held) => held.go_on().report(),
                None => Err("nothing is open".into()),
            })?,
            _ => return Err("the commands are open and use".into()),
        };
        Ok(Reply { payload: answer.into_bytes() })
    }
}

bindings::export!(HeldHandles with_types_in bindings);
