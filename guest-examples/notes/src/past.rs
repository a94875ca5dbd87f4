//! What the host's records say of the agent's own past.

use crate::bindings::dormouse::session::events::{self, Entry, Outcome, Query};

/// Entries that one call asks for.
const PAGE: u32 = 100;

/// A line for each entry that has the text in it.
pub fn told(text: &str) -> Result<String, String> {
    let mut lines = Vec::new();
    let mut after = None;
    loop {
        let text = (!text.is_empty()).then(|| text.to_string());
        let found = events::find(&Query { after, since: None, until: None, kinds: Vec::new(), text }, PAGE)?;
        lines.extend(found.iter().map(line));
        match found.last() {
            Some(last) if found.len() == PAGE as usize => after = Some(last.place),
            _ => return Ok(lines.join("\n")),
        }
    }
}

fn line(entry: &Entry) -> String {
    let Some(turn) = &entry.turn else { return format!("- {}", entry.kind) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let outcome = match &turn.outcome {
        Outcome::Reply(reply) => text(&reply.head),
        Outcome::Error(reason) => format!("error: {reason}"),
        Outcome::Failed(reason) => format!("failed: {}", reason.lines().next().unwrap_or_default()),
        Outcome::Status(status) => format!("status {status}"),
        Outcome::Upgraded => "upgraded".into(),
        Outcome::Forgotten => "forgotten".into(),
    };
    format!("{} {} {} -> {outcome}", entry.place.turn, entry.kind, text(&turn.payload.head))
}
