//! The three machines on which a program runs at once.
//!
//! - [`Plain`]: the original core modules in wasmtime as anybody uses it, linked by hand;
//! - [`Steady`]: an instance of the boot variant that lives on;
//! - [`Paused`]: an image that is resumed for every call, in an instance of the restore variant, and taken again.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;
use wasmtime::component::{Component, Linker, Val};
use wasmtime::{Engine, Store, StoreLimits, StoreLimitsBuilder, Trap};

use super::super::super::Live;
use super::Failed;
use super::random::Random;
use super::shape::{Function, Part, Program};
use crate::code::{SlotEngine, plain_config};
use crate::component::{MemoryLimits, Rewritten, Variant, rewrite};
use crate::image::{DirtyTracking, FlatName, Image, ImageStore, PAGE, PageRun, SlotMemory};
use crate::wasi::GuestState;

/// Calls of one program.
const CALLS: usize = 12;
/// The bound of memory growth, which both sides have.
const MEMORY: usize = 1 << 30;

/// What has come of a program on which the machines agreed.
#[derive(Default)]
pub struct Ended {
    pub calls: u64,
    pub restores: u64,
    /// Calls that trapped and were taken back.
    pub traps: u64,
    /// Exceptions among these.
    pub thrown: u64,
    /// It ended before all calls were made.
    pub early: bool,
    /// It has tables that are compared, because they can change.
    pub tables: bool,
}

/// What is done wrong on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mistake {
    /// Globals are not saved.
    Globals,
    /// Some images are not taken.
    Pages,
}

/// The engines and the folder of images that the programs of a test share.
pub struct Bench {
    plain: Engine,
    boot: SlotEngine,
    restore: SlotEngine,
    folder: tempfile::TempDir,
}

/// How a call ended.
#[derive(Debug, PartialEq)]
enum Answer {
    /// The result's bits.
    Value(Option<u64>),
    Trap(Option<Trap>),
    /// An exception that nobody caught.
    Thrown,
}

impl Answer {
    /// Its stack was spent. How deep that is depends on how code is compiled, and each machine compiles otherwise.
    fn is_overflow(&self) -> bool {
        *self == Self::Trap(Some(Trap::StackOverflow))
    }

    fn ended(e: &wasmtime::Error) -> Self {
        if e.is::<wasmtime::ThrownException>() { Self::Thrown } else { Self::Trap(e.downcast_ref().copied()) }
    }

    /// The instance goes no further.
    fn is_end(&self) -> bool {
        !matches!(self, Self::Value(_))
    }
}

impl Bench {
    pub fn new() -> Self {
        Self {
            plain: Engine::new(&plain_config()).unwrap(),
            boot: SlotEngine::new(Variant::Boot, Arc::default()).unwrap(),
            restore: SlotEngine::new(Variant::Restore, Arc::default()).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs the program on all machines, and compares them after every call.
    pub async fn run(
        &self,
        program: &Program,
        random: &mut Random,
        tracking: DirtyTracking,
        mistake: Option<Mistake>,
    ) -> Result<Ended, Failed> {
        let wasm = program.component();
        let rewritten = [rewrite(&wasm, Variant::Boot)?, rewrite(&wasm, Variant::Restore)?];
        let parts = program.parts();
        let plain = Plain::new(&self.plain, &parts);
        let boot = Machine::new(&self.boot, &rewritten[0])?;
        let mut ended = Ended::default();
        let (mut plain, mut steady) = match (plain, boot.instance().await) {
            (Ok(plain), Ok(steady)) => (plain, steady),
            // a start function or a segment that traps
            (Err(_), Err(_)) => {
                ended.early = true;
                return Ok(ended);
            }
            (plain, boot) => return differ("instantiation", plain.err(), boot.err()),
        };
        let sizes: Vec<u64> = steady.memories.iter().map(|memory| memory.len() as u64).collect();
        if let Err(reason) = MemoryLimits::check(&rewritten[0].memories, &sizes) {
            return differ("memories", reason, &rewritten[0].memories);
        }
        let folder = self.folder.path().join(id().to_string());
        let images = ImageStore::open(&folder)?.with_tracking(tracking);
        steady.save().await?;
        let name = FlatName::Generation(id(), 0);
        // SAFETY: the instance is owned here, and no call of it is under way.
        let image = unsafe { images.capture_flat(&steady.memories, &name)? };
        let restore = Machine::new(&self.restore, &rewritten[1])?;
        let mut paused = Paused { images, image, restore, agent: id(), generation: 0, mistake, ready: None };
        ended.tables = compare_state(&parts, &mut plain, &steady)? > 0;
        let functions = functions(&parts);
        for _ in 0..CALLS {
            let index = random.below(functions.len());
            let (part, function) = &functions[index];
            let arguments: Vec<u64> = function.params.iter().map(|_| argument(random)).collect();
            let (resumed, live) = paused.call(index, function, &arguments, random).await?;
            ended.restores += 1;
            if resumed.is_overflow() || resumed.is_end() && !random.once_in(20) {
                // it stands where its last image was taken, as if it had not been called
                ended.traps += 1;
                ended.thrown += u64::from(resumed == Answer::Thrown);
                continue;
            }
            ended.calls += 1;
            let answer = call(&mut steady, index, function, &arguments).await;
            let expected = plain.call(*part, function, &arguments);
            if answer.is_overflow() || expected.is_overflow() {
                ended.early = true;
                break;
            }
            if expected != answer {
                return differ(&format!("f{index} {arguments:?}"), expected, answer);
            }
            if answer != resumed {
                return differ(&format!("f{index} {arguments:?} after a resume"), answer, resumed);
            }
            if answer.is_end() {
                ended.early = true;
                break;
            }
            steady.save().await?;
            compare_state(&parts, &mut plain, &steady)?;
            for (index, (a, b)) in steady.memories.iter().zip(&live.memories).enumerate() {
                // SAFETY: both instances are owned here, and no call of them is under way.
                let (a, b) = unsafe { (a.bytes(), b.bytes()) };
                if a != b {
                    let at = a.iter().zip(b).position(|(a, b)| a != b);
                    return differ(&format!("memory {index} at {at:?}"), a.len(), b.len());
                }
            }
        }
        drop(paused);
        std::fs::remove_dir_all(folder).unwrap();
        Ok(ended)
    }
}

fn differ<T>(what: &str, one: impl std::fmt::Debug, other: impl std::fmt::Debug) -> Result<T, Failed> {
    Err(Failed::Differs(format!("{what}: {one:?} and {other:?}")))
}

/// Bits that stand for a number of any type.
fn argument(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.below(16) as u64,
        1 => u64::MAX - random.below(16) as u64,
        _ => random.next(),
    }
}

/// The functions that the component exports, with the parts that they are of.
fn functions(parts: &[Part]) -> Vec<(usize, Function)> {
    let mut all = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        if let Part::Core(core, _) = part {
            all.extend(core.functions.iter().map(|function| (index, function.clone())));
        }
    }
    all
}

/// The original modules.
struct Plain {
    store: Store<StoreLimits>,
    instances: Vec<Option<wasmtime::Instance>>,
}

impl Plain {
    fn new(engine: &Engine, parts: &[Part]) -> wasmtime::Result<Self> {
        let limits =
            StoreLimitsBuilder::new().memory_size(MEMORY).instances(100).memories(100).tables(100).build();
        let mut store = Store::new(engine, limits);
        store.limiter(|limits| limits);
        let mut instances: Vec<Option<wasmtime::Instance>> = Vec::new();
        for part in parts {
            let Part::Core(core, from) = part else {
                instances.push(None);
                continue;
            };
            let module = wasmtime::Module::new(engine, &core.wasm)?;
            let from = from.and_then(|from| instances[from]);
            let mut imports = Vec::new();
            for import in module.imports() {
                let found = from.and_then(|from| from.get_export(&mut store, import.name()));
                imports.push(found.expect("it is exported"));
            }
            instances.push(Some(wasmtime::Instance::new(&mut store, &module, &imports)?));
        }
        Ok(Self { store, instances })
    }

    fn call(&mut self, part: usize, function: &Function, arguments: &[u64]) -> Answer {
        use wasmparser::ValType;
        let instance = self.instances[part].expect("it is a core instance");
        let found = instance.get_func(&mut self.store, &function.name).expect("it is exported");
        let value = |(ty, bits): (&ValType, &u64)| match ty {
            ValType::I32 => wasmtime::Val::I32(*bits as i32),
            ValType::I64 => wasmtime::Val::I64(*bits as i64),
            ValType::F32 => wasmtime::Val::F32(*bits as u32),
            _ => wasmtime::Val::F64(*bits),
        };
        let arguments: Vec<_> = function.params.iter().zip(arguments).map(value).collect();
        let mut results = vec![wasmtime::Val::I32(0); usize::from(function.result.is_some())];
        match found.call(&mut self.store, &arguments, &mut results) {
            Ok(()) => Answer::Value(results.first().map(|result| match result {
                wasmtime::Val::I32(n) => u64::from(*n as u32),
                wasmtime::Val::I64(n) => *n as u64,
                wasmtime::Val::F32(bits) => u64::from(*bits),
                wasmtime::Val::F64(bits) => *bits,
                other => unreachable!("{other:?} is no result"),
            })),
            Err(e) => Answer::ended(&e),
        }
    }
}

/// What instances of a rewritten component are made of.
struct Machine {
    engine: SlotEngine,
    pre: wasmtime::component::InstancePre<GuestState>,
    accessors: Vec<String>,
}

impl Machine {
    fn new(engine: &SlotEngine, rewritten: &Rewritten) -> Result<Self, Failed> {
        let failed = |e: wasmtime::Error| Failed::Differs(format!("compiling: {e:#}"));
        let component = Component::new(&engine.engine, &rewritten.wasm).map_err(failed)?;
        let pre = Linker::new(&engine.engine).instantiate_pre(&component).map_err(failed)?;
        Ok(Self { engine: engine.clone(), pre, accessors: rewritten.accessors.clone() })
    }

    async fn instance(&self) -> Result<Live, super::AgentError> {
        Live::new(&self.pre, &self.engine, &self.accessors, GuestState::default()).await
    }
}

/// A program that sleeps between calls.
struct Paused {
    images: ImageStore,
    image: Image,
    restore: Machine,
    agent: Uuid,
    generation: u64,
    mistake: Option<Mistake>,
    /// An instance that was made ready for an image that has been taken since, perhaps.
    ready: Option<Live>,
}

impl Paused {
    /// Resumes, calls, and takes the image. The instance is returned for comparison.
    async fn call(
        &mut self,
        index: usize,
        function: &Function,
        arguments: &[u64],
        random: &mut Random,
    ) -> Result<(Answer, Live), Failed> {
        if random.once_in(3) {
            // in another process
            self.images = self.images.afresh();
            let flat = FlatName::Generation(self.agent, self.generation);
            self.image = self.images.image(self.image.reference(), Some(&flat))?;
        }
        let ready = self.ready.take().filter(|live| live.fits(&self.image));
        let mut live = match ready {
            Some(live) => live,
            None => self.restore.instance().await?,
        };
        if random.once_in(3) {
            live.make_ready(&self.image).await?;
        }
        live.restore(&self.image, GuestState::default()).await?;
        if random.once_in(3) {
            let run = |memory: usize| {
                let pages = (live.memories[memory].len() / PAGE).max(1);
                PageRun {
                    memory: memory as u16,
                    page: random.below(pages) as u32,
                    count: 1 + random.below(20) as u32,
                }
            };
            let runs: Vec<_> = (0..live.memories.len()).map(run).collect();
            // SAFETY: the instance is owned here, and no call of it is under way.
            unsafe { self.image.populate(&live.memories, &runs) };
        }
        let answer = call(&mut live, index, function, arguments).await;
        if answer.is_end() {
            return Ok((answer, live));
        }
        if random.once_in(3) {
            let mut ready = self.restore.instance().await?;
            ready.make_ready(&self.image).await?;
            self.ready = Some(ready);
        }
        if self.mistake != Some(Mistake::Globals) {
            live.save().await?;
        }
        self.generation += 1;
        let flat = FlatName::Generation(self.agent, self.generation);
        // SAFETY: the instance is owned here, and no call of it is under way.
        let image = unsafe { self.images.capture(&live.memories, &self.image, self.agent, &flat)? };
        if self.mistake != Some(Mistake::Pages) || random.once_in(2) {
            self.image = image;
        }
        if random.once_in(4) {
            self.images.flatten(&self.image, &flat)?;
            if random.once_in(2) {
                self.image = self.images.image(self.image.reference(), Some(&flat))?;
            }
        }
        Ok((answer, live))
    }
}

async fn call(live: &mut Live, index: usize, function: &Function, arguments: &[u64]) -> Answer {
    use wasmparser::ValType;
    let found = live.instance.get_func(&mut live.store, format!("f{index}")).expect("it is exported");
    let value = |(ty, bits): (&ValType, &u64)| match ty {
        ValType::I32 => Val::U32(*bits as u32),
        ValType::I64 => Val::U64(*bits),
        ValType::F32 => Val::Float32(f32::from_bits(*bits as u32)),
        _ => Val::Float64(f64::from_bits(*bits)),
    };
    let arguments: Vec<_> = function.params.iter().zip(arguments).map(value).collect();
    let mut results = vec![Val::Bool(false); usize::from(function.result.is_some())];
    live.store.set_epoch_deadline(1);
    match found.call_async(&mut live.store, &arguments, &mut results).await {
        Ok(()) => Answer::Value(results.first().map(|result| match result {
            Val::U32(n) => u64::from(*n),
            Val::U64(n) => *n,
            Val::Float32(n) => u64::from(n.to_bits()),
            Val::Float64(n) => n.to_bits(),
            other => unreachable!("{other:?} is no result"),
        })),
        Err(e) => Answer::ended(&e),
    }
}

/// The memories and tables that the original modules define, beside the memories of the instance: the same,
/// accessors' apart. Tables are memories there, where they can change. Gives how many tables these are.
fn compare_state(parts: &[Part], plain: &mut Plain, steady: &Live) -> Result<usize, Failed> {
    let mut rest: &[Arc<SlotMemory>] = &steady.memories;
    let memories = |part: &Part| if let Part::Core(core, _) = part { core.memories.len() } else { 1 };
    let has_tables = rest.len() > parts.iter().map(memories).sum();
    // by level, as far as known: which function each number stands for
    let mut references: HashMap<u32, usize> = HashMap::new();
    let mut tables = 0;
    for (index, part) in parts.iter().enumerate() {
        let Part::Core(core, _) = part else {
            rest = rest.split_first().map_or(&[], |(_, rest)| rest);
            references.clear();
            continue;
        };
        let instance = plain.instances[index].expect("it is a core instance");
        for name in &core.memories {
            let Some((slot, others)) = rest.split_first() else {
                return differ("memories", "more", "none");
            };
            rest = others;
            let memory = instance.get_memory(&mut plain.store, name).expect("it is exported");
            // SAFETY: the instance is borrowed here, and no call of it is under way.
            let (a, b) = (memory.data(&plain.store), unsafe { slot.bytes() });
            if a != b {
                let at = a.iter().zip(b).position(|(a, b)| a != b);
                return differ(&format!("memory {name} of part {index} at {at:?}"), a.len(), b.len());
            }
        }
        for name in core.tables.iter().filter(|_| has_tables) {
            let Some((slot, others)) = rest.split_first() else {
                return differ("tables", "more", "none");
            };
            rest = others;
            tables += 1;
            let table = instance.get_table(&mut plain.store, name).expect("it is exported");
            // SAFETY: the same.
            let words: Vec<u32> = unsafe { slot.bytes() }
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
                .collect();
            let size = table.size(&plain.store);
            if u64::from(words[0]) != size {
                return differ(&format!("size of table {name} of part {index}"), size, words[0]);
            }
            for (at, number) in (0..size).zip(&words[2..]) {
                let entry = table.get(&mut plain.store, at).expect("it is in the table");
                let function = entry.as_func().expect("it is of functions");
                let function = function.map_or(0, |function| function.to_raw(&mut plain.store) as usize);
                let known = *references.entry(*number).or_insert(function);
                if known != function || (function == 0) != (*number == 0) {
                    return differ(
                        &format!("table {name} of part {index} at {at}"),
                        function,
                        (number, known),
                    );
                }
            }
            if words[2 + size as usize..].iter().any(|word| *word != 0) {
                return differ(&format!("table {name} of part {index} behind its end"), 0, "not zero");
            }
        }
    }
    if rest.is_empty() { Ok(tables) } else { differ("memories", "none", rest.len()) }
}

fn id() -> Uuid {
    zone_vfs::store::Store::new_id().unwrap().0
}
