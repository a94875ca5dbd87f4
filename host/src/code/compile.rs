//! Compiling, in a child process with limits on memory and time.
//!
//! Cranelift cannot be cancelled and a hostile component can make it work long, so that rewriting and
//! compiling are done by `dormouse __compile`, which this module starts and bounds. It reads the
//! component from its standard input and writes the parts of a cache entry into a folder.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::CodeError;
use super::engine::config;
use crate::component::{Variant, World, limits, rewrite, scan};

/// The hidden command by which the program compiles.
pub const COMPILE_COMMAND: &str = "__compile";
/// Overrides where the program is looked for.
pub const COMPILER_VARIABLE: &str = "DORMOUSE_COMPILER";

/// Bounds on one compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Bytes of address space.
    pub memory: u64,
    /// Wall-clock time.
    pub time: Duration,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { memory: 8 << 30, time: Duration::from_mins(10) }
    }
}

/// The program that compiles, and its bounds.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The `dormouse` program.
    pub program: PathBuf,
    /// Its bounds.
    pub limits: CompileLimits,
}

/// What the child tells about a component that it has compiled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compiled {
    /// How the component is driven.
    pub world: World,
    /// The endings of the accessors' names, in order.
    pub accessors: Vec<String>,
}

/// The file of an entry that holds [`Compiled`].
pub(super) const ABOUT: &str = "about";

/// The file of an entry that holds a variant's code.
pub(super) fn code_file(variant: Variant) -> &'static str {
    match variant {
        Variant::Boot => "boot.cwasm",
        Variant::Restore => "restore.cwasm",
    }
}

/// What Rust says as it ends a process that gets no memory, before the number of bytes.
const OUT_OF_MEMORY: &str = "memory allocation of ";

/// Compilations that go on at once in a process, at most: each may take all the memory that it is allowed.
const AT_ONCE: usize = 2;

static GOING_ON: Mutex<usize> = Mutex::new(0);
static ONE_LESS: Condvar = Condvar::new();

/// One of the compilations that go on.
struct Going;

impl Going {
    /// Waits until there are few enough, unless `stop` is set first.
    fn begin(stop: &AtomicBool) -> Result<Self, CodeError> {
        let mut going = GOING_ON.lock().unwrap_or_else(PoisonError::into_inner);
        while *going >= AT_ONCE {
            if stop.load(Ordering::Relaxed) {
                return Err(CodeError::Stopped);
            }
            let waited = ONE_LESS.wait_timeout(going, Duration::from_millis(20));
            going = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *going += 1;
        Ok(Self)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        *GOING_ON.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ONE_LESS.notify_one();
    }
}

impl Compiler {
    /// This very program, which has to be `dormouse` or to call [`compile_child`] as it does.
    pub fn this() -> Result<Self, CodeError> {
        let program = std::env::current_exe().map_err(CodeError::io("finding this program"))?;
        Ok(Self { program, limits: CompileLimits::default() })
    }

    /// Finds the program: what `DORMOUSE_COMPILER` names, this program if it is `dormouse`, one beside
    /// it, or one in the path.
    pub fn find() -> Result<Self, CodeError> {
        let limits = CompileLimits::default();
        if let Some(program) = std::env::var_os(COMPILER_VARIABLE).filter(|p| !p.is_empty()) {
            return Ok(Self { program: program.into(), limits });
        }
        let name = format!("dormouse{}", std::env::consts::EXE_SUFFIX);
        let this = std::env::current_exe().map_err(CodeError::io("finding this program"))?;
        let beside = this.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|folder| folder.join(&name)).collect::<Vec<_>>();
        beside
            .chain(in_path)
            .find(|p| p.is_file())
            .map(|program| Self { program, limits })
            .ok_or(CodeError::NoCompiler)
    }

    /// Compiles `component` into `folder`, unless `stop` is set first.
    pub(super) fn compile(
        &self,
        component: &[u8],
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<(), CodeError> {
        let _going = Going::begin(stop)?;
        let mut child = Command::new(&self.program)
            .arg(COMPILE_COMMAND)
            .arg("--memory")
            .arg(self.limits.memory.to_string())
            .arg("--seconds")
            .arg(self.limits.time.as_secs().to_string())
            .arg(folder)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(CodeError::io(format!("starting the compiler {}", self.program.display())))?;
        let mut stdin = child.stdin.take().ok_or(CodeError::NoCompiler)?;
        let stderr = child.stderr.take().ok_or(CodeError::NoCompiler)?;
        let said = std::thread::Builder::new().name("dormouse-compile".into()).spawn(move || {
            let mut said = String::new();
            // what cannot be read cannot be reported
            let _ = stderr.take(64 << 10).read_to_string(&mut said);
            said
        });
        let said = match said {
            Ok(said) => said,
            Err(e) => {
                child.kill().and_then(|()| child.wait()).map_err(CodeError::io("stopping the compiler"))?;
                return Err(CodeError::io("starting a thread")(e));
            }
        };
        // a child that stops early closes the pipe: its own error says why
        let fed = stdin.write_all(component);
        drop(stdin);
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(CodeError::io("waiting for the compiler"))? {
                break status;
            }
            let is_late = started.elapsed() > self.limits.time;
            let is_stopped = stop.load(Ordering::Relaxed);
            if is_late || is_stopped {
                child.kill().map_err(CodeError::io("stopping the compiler"))?;
                child.wait().map_err(CodeError::io("waiting for the compiler"))?;
                return Err(if is_late {
                    CodeError::CompileTime(self.limits.time)
                } else {
                    CodeError::Stopped
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let said = said.join().unwrap_or_default();
        if status.success() {
            return fed.map_err(CodeError::io("handing the component to the compiler"));
        }
        let said = said.trim();
        if said.contains(OUT_OF_MEMORY) {
            return Err(CodeError::CompileMemory(self.limits.memory));
        }
        Err(CodeError::Compile(if said.is_empty() {
            format!(
                "the compiler stopped ({status}), perhaps at its limit of {} MiB of memory or at one that \
                 this process has (`ulimit -v`)",
                self.limits.memory >> 20
            )
        } else {
            said.chars().take(4000).collect()
        }))
    }
}

/// The child's side: bounds itself, reads a component and writes its parts into `folder`.
pub fn compile_child(memory: u64, seconds: u64, folder: &Path) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let bound = |resource, limit| {
        // never above what this process may have anyway
        let now = getrlimit(resource);
        let limit = [now.current, now.maximum].into_iter().flatten().fold(limit, u64::min);
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
            .map_err(|e| format!("setting limits: {e}"))
    };
    // whoever waits for the code is gone: nobody needs it any more
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| format!("tying the compiler to its parent: {e}"))?;
    bound(Resource::As, memory)?;
    bound(Resource::Cpu, seconds.saturating_mul(4))?;
    bound(Resource::Core, 0)?;
    let mut component = Vec::new();
    std::io::stdin()
        .take(limits::MAX_BYTES as u64 + 1)
        .read_to_end(&mut component)
        .map_err(|e| format!("reading the component: {e}"))?;
    let mut accessors = None;
    let world = scan(&component).map_err(|e| e.to_string())?.world();
    for variant in [Variant::Boot, Variant::Restore] {
        let file = code_file(variant);
        let rewritten = rewrite(&component, variant).map_err(|e| e.to_string())?;
        let engine = wasmtime::Engine::new(&config(variant)).map_err(|e| format!("{e:#}"))?;
        let code = engine.precompile_component(&rewritten.wasm).map_err(|e| format!("{e:#}"))?;
        std::fs::write(folder.join(file), code).map_err(|e| format!("writing {file}: {e}"))?;
        if accessors.replace(rewritten.accessors.clone()).is_some_and(|a| a != rewritten.accessors) {
            return Err("the two variants have different accessors".into());
        }
    }
    let about = Compiled { world, accessors: accessors.unwrap_or_default() };
    let about = postcard::to_stdvec(&about).map_err(|e| e.to_string())?;
    std::fs::write(folder.join(ABOUT), about).map_err(|e| format!("writing {ABOUT}: {e}"))
}
