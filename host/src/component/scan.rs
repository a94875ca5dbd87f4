//! Reads a component or core module: what it wants, what it offers, and whether it can be captured.

use std::ops::Range;

use serde::Serialize;
use wasmparser::{Encoding, Parser, Payload};

use super::check::Checker;
use super::code::CodeUse;
use super::error::ComponentError;
use super::listed::Listed;
use super::module::ModuleInfo;
use super::refuse::{Place, Refusal};
use super::wrap::wrap_core_module;
use super::{features, limits, rewrite};

/// What kind of WebAssembly file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryKind {
    /// A component.
    Component,
    /// A core module, to be wrapped with [`super::wrap_core_module`].
    CoreModule,
}

/// The kind of thing behind an import or export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemKind {
    /// A function.
    Function,
    /// An instance of an interface.
    Instance,
    /// A type.
    Type,
    /// A component.
    Component,
    /// A core module.
    Module,
    /// A value, memory, table, global or tag.
    Other,
}

/// One import or export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// As written: `wasi:cli/run@0.2.3`, `handle`; for a core module's import `module.name`.
    pub name: String,
    /// What it is.
    pub kind: ItemKind,
    /// The functions of an instance, by their names in the component.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
}

/// The limits of one linear memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryLimits {
    /// How large it is at the start.
    pub min: u64,
    /// How far it can grow; none means 4 GiB.
    pub max: Option<u64>,
}

impl MemoryLimits {
    /// The bounds that a core module states, in pages.
    pub(super) fn of(ty: &wasmparser::MemoryType) -> Self {
        const PAGE: u64 = 65_536;
        Self { min: ty.initial.saturating_mul(PAGE), max: ty.maximum.map(|pages| pages.saturating_mul(PAGE)) }
    }

    /// Checks memories of so many bytes each against those of an instance. Says what is wrong.
    pub(crate) fn check(instance: &[Self], found: &[u64]) -> Result<(), String> {
        const MOST: u64 = 1 << 32;
        if found.len() != instance.len() {
            return Err(format!("it has {} memories, and its component {}", found.len(), instance.len()));
        }
        for (index, (len, Self { min, max })) in found.iter().zip(instance).enumerate() {
            let max = max.unwrap_or(MOST);
            if !(*min..=max).contains(len) {
                return Err(format!(
                    "memory {index} has {len} bytes, and in its component at least {min} and at most {max}"
                ));
            }
        }
        Ok(())
    }
}

/// One core module of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Module {
    /// Where it lies.
    pub place: Place,
    /// The memories that it defines.
    pub memories: Vec<MemoryLimits>,
    /// How many mutable globals it defines.
    pub globals: usize,
    /// How many function tables it defines.
    pub tables: u32,
    /// How many tags of exceptions it defines.
    pub tags: u32,
    /// How many data segments are copied to memory when it is instantiated.
    pub active_data: usize,
    /// How many bytes these have.
    pub active_data_bytes: usize,
    /// How many data segments wait for `memory.init`.
    pub passive_data: usize,
    /// Whether it runs code of its own while it is instantiated.
    pub has_start: bool,
}

/// What a file is.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Component or core module.
    pub kind: BinaryKind,
    /// Size of the file in bytes.
    pub bytes: usize,
    /// What it needs of its host.
    pub imports: Vec<Item>,
    /// What it offers.
    pub exports: Vec<Item>,
    /// All core modules, in the order of the file.
    pub modules: Vec<Module>,
    /// How many components it consists of, itself included; 0 for a core module.
    pub components: usize,
    /// Why a snapshot of it would not be complete. Of a core module these are judged before wrapping.
    pub capturable: Result<(), Vec<Refusal>>,
    /// The memories of a running instance, in the order in which they are made, those included that hold its globals and
    /// tables; none where it cannot be captured.
    pub instance_memories: Vec<MemoryLimits>,
}

impl Scan {
    /// The first export of an interface, whatever its version: `exported("wasi:cli/run")`.
    pub fn exported(&self, interface: &str) -> Option<&Item> {
        self.exports.iter().find(|item| without_version(&item.name) == interface)
    }
}

/// `wasi:cli/run@0.2.3` without its version.
pub fn without_version(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// Reads a file whole.
///
/// A component that cannot be captured is no error here: see [`Scan::capturable`].
///
/// # Errors
/// [`ComponentError::NotWasm`], [`ComponentError::Invalid`] and [`ComponentError::Limit`].
pub fn scan(wasm: &[u8]) -> Result<Scan, ComponentError> {
    let (mut scan, code) = scan_as_it_is(wasm)?;
    if scan.capturable.is_ok() {
        match bookkept(wasm, &code, scan.kind)? {
            Ok(memories) => scan.instance_memories = memories,
            Err(refusals) => scan.capturable = Err(refusals),
        }
    }
    Ok(scan)
}

/// As [`scan`], without what only the rewriter's bookkeeping can find.
pub(super) fn scan_as_it_is(wasm: &[u8]) -> Result<(Scan, Vec<CodeUse>), ComponentError> {
    let Walk { mut scan, mut listed, refusals, code } = walk(wasm)?;
    scan.capturable = match features::validate(wasm) {
        Ok(types) => {
            listed.functions(types.as_ref(), &mut scan)?;
            if refusals.is_empty() { Ok(()) } else { Err(refusals) }
        }
        Err(ComponentError::Refused(unsupported)) => {
            Err(if refusals.is_empty() { unsupported } else { refusals })
        }
        Err(error) => return Err(error),
    };
    Ok((scan, code))
}

/// The memories of an instance, or the reasons that only the rewriter's bookkeeping can find, of a core module once it is
/// wrapped.
fn bookkept(
    wasm: &[u8],
    code: &[CodeUse],
    kind: BinaryKind,
) -> Result<Result<Vec<MemoryLimits>, Vec<Refusal>>, ComponentError> {
    let rewritten = match kind {
        BinaryKind::Component => rewrite::rewrite_admitted(wasm, code, rewrite::Variant::Restore)
            .and_then(|it| rewrite::valid(wasm, it)),
        BinaryKind::CoreModule => match wrap_core_module(wasm) {
            Ok(component) => rewrite(&component, rewrite::Variant::Restore),
            // what it asks for and nobody provides is told apart from what cannot be captured
            Err(_) => return Ok(Ok(Vec::new())),
        },
    };
    match rewritten {
        Ok(rewritten) => Ok(Ok(rewritten.memories)),
        Err(ComponentError::Refused(refusals)) => Ok(Err(refusals)),
        Err(error) => Err(error),
    }
}

/// Refuses what cannot be captured, as far as that shows before it is rewritten. Says what the code of each core
/// module does.
pub(super) fn admit(wasm: &[u8]) -> Result<Vec<CodeUse>, ComponentError> {
    let (scan, code) = scan_as_it_is(wasm)?;
    scan.capturable.map_err(ComponentError::Refused)?;
    Ok(code)
}

/// What is found in a file that has been read once.
struct Walk {
    scan: Scan,
    listed: Listed,
    refusals: Vec<Refusal>,
    /// Of each core module.
    code: Vec<CodeUse>,
}

/// One level of the walk.
struct Level {
    place: Place,
    /// Where it ends in the file.
    end: usize,
    next_component: u32,
    next_module: u32,
    module: Option<(ModuleInfo, CodeUse)>,
}

impl Level {
    fn new(place: Place, end: usize) -> Self {
        Self { place, end, next_component: 0, next_module: 0, module: None }
    }

    /// A module or component within this one. The parser leaves it to us to check that it fits.
    fn inner(&self, place: Place, range: &Range<usize>) -> Result<Self, ComponentError> {
        if range.end > self.end {
            let message = "a nested module or component is longer than what it is nested in".to_owned();
            return Err(ComponentError::Invalid { message, offset: range.start as u64 });
        }
        Ok(Self::new(place, range.end))
    }
}

/// Reads everything once and enforces the limits. Nothing is assumed to be valid yet.
fn walk(wasm: &[u8]) -> Result<Walk, ComponentError> {
    ComponentError::limit("bytes", wasm.len(), limits::MAX_BYTES)?;
    if !wasm.starts_with(b"\0asm") {
        return Err(ComponentError::NotWasm);
    }
    let mut scan = Scan {
        kind: BinaryKind::CoreModule,
        bytes: wasm.len(),
        imports: Vec::new(),
        exports: Vec::new(),
        modules: Vec::new(),
        components: 0,
        capturable: Ok(()),
        instance_memories: Vec::new(),
    };
    let mut listed = Listed::default();
    let mut checker = Checker::default();
    let mut code = Vec::new();
    let mut types = 0;
    let outermost = Place { components: Vec::new(), module: None, function: None, offset: 0 };
    let mut levels = vec![Level::new(outermost, wasm.len())];

    let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(invalid)?;
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { break };
        match &payload {
            Payload::Version { encoding: Encoding::Module, .. } => {
                level.module = Some(Default::default());
                ComponentError::limit("core modules", scan.modules.len() + 1, limits::MAX_MODULES)?;
            }
            Payload::Version { encoding: Encoding::Component, .. } => {
                scan.components += 1;
                ComponentError::limit("components", scan.components, limits::MAX_COMPONENTS)?;
                if depth == 1 {
                    scan.kind = BinaryKind::Component;
                }
            }
            Payload::ModuleSection { unchecked_range, .. } => {
                let offset = unchecked_range.start as u64;
                let place = Place { module: Some(level.next_module), offset, ..level.place.clone() };
                level.next_module += 1;
                let inner = level.inner(place, unchecked_range)?;
                levels.push(inner);
                continue;
            }
            Payload::ComponentSection { unchecked_range, .. } => {
                let mut place = Place { offset: unchecked_range.start as u64, ..level.place.clone() };
                place.components.push(level.next_component);
                level.next_component += 1;
                let inner = level.inner(place, unchecked_range)?;
                levels.push(inner);
                ComponentError::limit("levels of nested components", levels.len(), limits::MAX_DEPTH)?;
                continue;
            }
            Payload::End(_) => {
                if let Some(done) = levels.pop()
                    && let Some((info, of_module)) = done.module
                {
                    code.push(of_module);
                    scan.modules.push(summary(done.place, &info));
                }
                continue;
            }
            Payload::ComponentTypeSection(section) => {
                inner_types(&wasm[section.range()])?;
                types += section.count() as usize;
                ComponentError::limit("component types", types, limits::MAX_TYPES)?;
            }
            _ => {}
        }
        if depth == 1 {
            listed.section(&payload, &mut scan)?;
        }
        match &mut level.module {
            Some((info, code)) => {
                info.observe(&payload).map_err(invalid)?;
                ComponentError::limit(
                    "memories of a module",
                    info.memories.len(),
                    limits::MAX_MODULE_MEMORIES,
                )?;
                checker.module(&payload, &level.place, code).map_err(invalid)?;
            }
            None => checker.component(&payload, &level.place).map_err(invalid)?,
        }
    }
    Ok(Walk { scan, listed, refusals: checker.finish(), code })
}

/// Bounds the types within types before the recursive reader sees them: each such type starts with
/// these two bytes. Others can look the same, which the limit leaves room for.
fn inner_types(section: &[u8]) -> Result<(), ComponentError> {
    let found = section.windows(2).filter(|pair| matches!(pair, [0x01, 0x41 | 0x42])).count();
    ComponentError::limit("types within a component type", found, limits::MAX_INNER_TYPES)
}

fn summary(place: Place, info: &ModuleInfo) -> Module {
    Module {
        place,
        memories: info.memories.iter().map(|(_, ty)| MemoryLimits::of(ty)).collect(),
        globals: info.globals.len(),
        tables: info.tables,
        tags: info.tags,
        active_data: info.active_data,
        active_data_bytes: info.active_data_bytes,
        passive_data: info.passive_data.len(),
        has_start: info.has_start,
    }
}
