//! Layouts of earlier versions of the catalogue, of pieces of history and of exports: read, and never written.

use serde::Deserialize;

use super::catalogue::StoredGeneration;
use super::entry::{Cause, Payload, TurnStyle};
use super::state::{OpenTurn, Outcome, TurnRecord};
use crate::id::{GenerationNumber, Timestamp, Turn};
use crate::zone::StoredRoot;

/// An open turn of version 1, which kept no facts.
#[derive(Deserialize)]
pub(super) struct OpenTurn1 {
    turn: Turn,
    style: TurnStyle,
    event: Payload,
    began: Timestamp,
}

impl From<OpenTurn1> for OpenTurn {
    fn from(old: OpenTurn1) -> Self {
        let OpenTurn1 { turn, style, event, began } = old;
        Self { turn, style, event, began, facts: Vec::new() }
    }
}

/// A generation of version 1, which always stood by itself.
#[derive(Deserialize)]
pub(super) struct StoredGeneration1 {
    number: GenerationNumber,
    cause: Cause,
    about: Payload,
    turn: Turn,
    at: Timestamp,
    roots: Vec<StoredRoot>,
    attachment: Option<Payload>,
    is_pinned: bool,
}

impl From<StoredGeneration1> for StoredGeneration {
    fn from(old: StoredGeneration1) -> Self {
        let StoredGeneration1 { number, cause, about, turn, at, roots, attachment, is_pinned } = old;
        Self { number, cause, about, turn, at, roots, attachment, is_pinned, on: None, seen: Vec::new() }
    }
}

/// A turn of version 1, which kept no facts.
#[derive(Deserialize)]
pub(super) struct TurnRecord1 {
    turn: Turn,
    event: Payload,
    began: Timestamp,
    ended: Timestamp,
    outcome: Outcome,
}

impl From<TurnRecord1> for TurnRecord {
    fn from(old: TurnRecord1) -> Self {
        let TurnRecord1 { turn, event, began, ended, outcome } = old;
        Self { turn, event, began, ended, outcome, facts: Vec::new() }
    }
}
