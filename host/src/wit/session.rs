//! `dormouse:session`.

use std::ops::ControlFlow;

use wasmtime::component::{HasSelf, Linker};
use zone_vfs::id::{GenerationNumber, Timestamp, Turn};

use super::MAX_ENTRIES;
use crate::journal::session::{Happened, PastTurn, Place, SessionEntry, SessionError, SessionQuery, session};
use crate::journal::{EventRecord, OutcomeRecord};
use crate::wasi::{Call, GuestState};

#[allow(missing_docs, clippy::pedantic, unused_qualifications, reason = "generated from WIT")]
mod generated {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "dormouse:session/imports",
        imports: { default: trappable },
        require_store_data_send: true,
        additional_derives: [serde::Serialize, serde::Deserialize],
    });
}

use self::generated::dormouse::session::events::{self, Content, Entry, Host, Outcome};

/// Bytes of a content that are given.
const HEAD: usize = 4096;
/// Kinds that one query names, at most.
const MAX_KINDS: usize = 64;

/// Adds it to a linker.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    generated::Imports::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |state| state)
}

fn content(bytes: &[u8]) -> Content {
    Content { head: bytes[..bytes.len().min(HEAD)].to_vec(), size: bytes.len() as u64 }
}

/// The beginning of a text.
fn text(text: &str) -> String {
    text.chars().take(HEAD).collect()
}

fn turn(turn: &PastTurn) -> events::Turn {
    let (id, payload) = match &turn.event {
        Some(EventRecord::Event { id, payload, .. }) => (id.clone(), content(payload)),
        Some(EventRecord::Run(args)) => (String::new(), content(args.join(" ").as_bytes())),
        Some(EventRecord::Upgrade { component_name, .. }) => {
            (String::new(), content(component_name.as_bytes()))
        }
        None => (String::new(), content(&[])),
    };
    let outcome = match &turn.outcome {
        Some(Ok(OutcomeRecord::Reply(reply))) => Outcome::Reply(content(reply)),
        Some(Ok(OutcomeRecord::Refused(reason))) => Outcome::Error(text(reason)),
        Some(Ok(OutcomeRecord::Exit(status))) => Outcome::Status(*status),
        Some(Ok(OutcomeRecord::Upgraded)) => Outcome::Upgraded,
        Some(Err(reason)) => Outcome::Failed(text(reason)),
        None => Outcome::Forgotten,
    };
    events::Turn { id, payload, ended: turn.ended.0, outcome }
}

fn entry(it: &SessionEntry) -> Entry {
    let Place { turn: number, generation } = it.place;
    Entry {
        place: events::Place { turn: number.0, generation: generation.map(|it| it.0) },
        began: it.at.0,
        kind: it.kind().into(),
        turn: match &it.what {
            Happened::Turn(past) => Some(turn(past)),
            Happened::Generation(_) => None,
        },
    }
}

impl GuestState {
    fn session(&mut self, query: events::Query, limit: u32) -> Result<Vec<Entry>, String> {
        self.touched.zones = true;
        let Some(disk) = self.disk.clone() else { return Ok(Vec::new()) };
        if query.kinds.len() > MAX_KINDS {
            return Err(format!("a query names at most {MAX_KINDS} kinds"));
        }
        let query = SessionQuery {
            after: query.after.map(|after| Place {
                turn: Turn(after.turn),
                generation: after.generation.map(GenerationNumber),
            }),
            since: query.since.map(Timestamp),
            until: query.until.map(Timestamp),
            kinds: query.kinds,
            text: query.text,
        };
        let limit = limit.min(MAX_ENTRIES) as usize;
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        let told = session(&disk, &query, |it| {
            found.push(entry(&it));
            let full = found.len() >= limit;
            Ok::<_, SessionError>(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        told.map(|()| found).map_err(|e| zone_vfs::told(&e))
    }
}

impl Host for GuestState {
    fn find(&mut self, query: events::Query, limit: u32) -> wasmtime::Result<Result<Vec<Entry>, String>> {
        let number = |number: Option<u64>| number.unwrap_or(u64::MAX);
        let mut asked = Call::Session.plain().with(limit.into());
        asked = asked.with(number(query.after.as_ref().map(|it| it.turn)));
        asked = asked.with(number(query.after.as_ref().and_then(|it| it.generation)));
        asked = asked.with(number(query.since)).with(number(query.until));
        for text in query.kinds.iter().chain(&query.text) {
            asked = asked.text(text);
        }
        // which generations are kept is the operator's to say
        self.depending(asked, |state| state.session(query, limit))
    }
}
