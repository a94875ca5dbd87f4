//! Stores, guests and processes for the tests.
//!
//! - [`Bed`] is a fresh store whose guests are compiled already.
//! - `compiled` keeps compiled code between tests and runs.
//! - `process` starts the program, and ends it where it hangs.
//! - `terminal` gives the program a terminal.

mod compiled;
mod process;
mod terminal;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse::HostOptions;
use dormouse::code::{CompileLimits, Compiler};
use serde_json::Value;
use tempfile::TempDir;

pub use self::process::{Ran, Running, run};
pub use self::terminal::on_terminal;

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-tested");

/// The file of a guest.
pub fn guest(name: &str) -> PathBuf {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests").join(name).with_extension("wasm");
    assert!(path.is_file(), "the guest {name} is not built: `make guests` builds it");
    path
}

/// How a host over the store in `folder` is opened in the test's own process: the program compiles for it.
pub fn options(folder: impl Into<PathBuf>) -> HostOptions {
    let compiler = Compiler { program: PROGRAM.into(), limits: CompileLimits::default() };
    HostOptions { compiler: Some(compiler), ..HostOptions::new(folder) }
}

/// A number that nobody can foresee, less than `limit`.
pub fn random(limit: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(limit) % limit
}

/// A fresh store in a folder of its own.
pub struct Bed {
    folder: TempDir,
}

impl Bed {
    /// A store in which the code of these guests is compiled.
    pub fn new(guests: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bed = Self { folder };
        compiled::create(&bed.store());
        for name in guests {
            compiled::provide(name, &bed.store());
        }
        bed
    }

    /// How a host over this store is opened in the test's own process.
    pub fn options(&self) -> HostOptions {
        options(self.store())
    }

    /// A folder in which no store is yet.
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The store's folder.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A path beside the store.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside the store.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file beside the store");
        path
    }

    /// The program on this store, with arguments.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("--store").arg(self.store()).args(arguments).current_dir(self.folder.path());
        command.env_remove("DORMOUSE_STORE").env("DORMOUSE_LOG", "error");
        command
    }

    /// Runs the program to its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        run(&mut self.command(arguments), b"")
    }

    /// Runs the program, which succeeds; its standard output.
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.status, Some(0), "{ran}");
        ran.out
    }

    /// Runs the program, which fails as it ought to: with status 1, nothing on standard output and one
    /// message that holds each of `words`. Gives the message.
    pub fn refused<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>, words: &[&str]) -> String {
        let ran = self.run(arguments);
        ran.assert_refused(words);
        ran.err
    }

    /// Runs the program with `--json` at the end, and reads what it prints.
    pub fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        let mut command = self.command(arguments);
        let ran = run(command.arg("--json"), b"");
        assert_eq!(ran.status, Some(0), "{ran}");
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e} in {ran}"))
    }

    /// Makes an agent.
    pub fn create(&self, name: &str, component: &str) {
        let path = guest(component);
        self.ok([OsStr::new("new"), OsStr::new(name), path.as_os_str()]);
    }

    /// Sends an agent an event; its reply.
    pub fn send(&self, agent: &str, event: &str) -> String {
        self.ok(["send", agent, event])
    }

    /// Runs a command component with arguments.
    pub fn guest<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        run(&mut self.guest_command(name, arguments), b"")
    }

    /// The same, not started yet.
    pub fn guest_command<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command(["run"]);
        command.arg(guest(name)).args(arguments);
        command
    }

    /// What `ps` tells of an agent.
    pub fn agent(&self, name: &str) -> Value {
        let all = self.json(["ps"]);
        let found = all.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == name));
        found.unwrap_or_else(|| panic!("no agent {name} in {all}")).clone()
    }

    /// All that the program lists of the agents and of their generations.
    pub fn everything(&self) -> Value {
        let agents = self.json(["ps"]);
        let names = agents.as_array().into_iter().flatten().filter_map(|row| row["name"].as_str());
        let generations: Vec<Value> = names.map(|name| self.json(["generations", name])).collect();
        serde_json::json!([agents, generations])
    }
}
