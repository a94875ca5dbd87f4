//! What `dormouse inspect` says about a file.

use serde::{Deserialize, Serialize};

use super::error::ComponentError;
use super::refuse::Refusal;
use super::scan::{BinaryKind, Item, MemoryLimits, Module, Scan, scan, without_version};

const RUN: &str = "wasi:cli/run";
const START: &str = "_start";
const AGENT_PACKAGE: &str = "dormouse:agent/";
const HANDLE: &str = "handle";

/// How a component is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// It exports `wasi:cli/run`: one turn is the whole run.
    Command,
    /// It exports `handle` of `dormouse:agent`: each event is a turn.
    Agent,
    /// It exports neither.
    Other,
}

/// A report about a component or core module.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// Component or core module.
    pub kind: BinaryKind,
    /// Size of the file in bytes.
    pub bytes: usize,
    /// How it is driven.
    pub world: World,
    /// What it needs of its host.
    pub imports: Vec<Item>,
    /// What it offers.
    pub exports: Vec<Item>,
    /// How many components it consists of, itself included; 0 for a core module.
    pub components: usize,
    /// Its core modules. One that is instantiated several times is listed once.
    pub modules: Vec<Module>,
    /// The memories of its core modules.
    pub memories: Vec<MemoryLimits>,
    /// Whether its whole state can be saved and restored.
    pub capturable: bool,
    /// If not, why.
    pub refusals: Vec<Refusal>,
    /// Whether all its agents start from one image. That shows only when it is instantiated: none here.
    pub shared_genesis: Option<bool>,
}

impl Scan {
    /// How the component, or the core module once it is wrapped, is driven.
    pub fn world(&self) -> World {
        let is_agent = |item: &Item| {
            item.name == HANDLE
                || (item.name.starts_with(AGENT_PACKAGE) && item.functions.iter().any(|name| name == HANDLE))
        };
        let is_command = |item: &Item| match self.kind {
            BinaryKind::Component => without_version(&item.name) == RUN,
            BinaryKind::CoreModule => item.name == START,
        };
        if self.exports.iter().any(is_command) {
            World::Command
        } else if self.kind == BinaryKind::Component && self.exports.iter().any(is_agent) {
            World::Agent
        } else {
            World::Other
        }
    }
}

/// Inspects a file without running it. A core module is judged as the component that it becomes, if
/// it can be wrapped.
///
/// # Errors
/// As [`scan`].
pub fn inspect(wasm: &[u8]) -> Result<Inspection, ComponentError> {
    let scan = scan(wasm)?;
    let world = scan.world();
    let refusals = scan.capturable.err().unwrap_or_default();
    Ok(Inspection {
        kind: scan.kind,
        bytes: scan.bytes,
        world,
        imports: scan.imports,
        exports: scan.exports,
        components: scan.components,
        memories: scan.modules.iter().flat_map(|module| module.memories.iter().copied()).collect(),
        modules: scan.modules,
        capturable: refusals.is_empty(),
        refusals,
        shared_genesis: None,
    })
}
