//! The machine that was measured on: numbers mean nothing without it.

use std::fmt;
use std::path::Path;

/// A machine, as far as the numbers depend on it.
pub struct Machine {
    /// The processor's name.
    cpu: String,
    /// Processors that this process may use.
    cores: usize,
    /// GiB of memory.
    memory: u64,
    /// The kernel's release.
    kernel: String,
    /// The kind of filesystem that the stores lie on.
    filesystem: String,
    /// The load average of the last minute when it began: what else was going on.
    load: String,
}

/// What comes after `key` at the beginning of a line of a file of the kernel's.
fn found(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches([':', ' ', '\t']).to_string())
}

/// The kind of the filesystem that `path` is on, by the longest mount point above it.
fn filesystem(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = mounts.filter(|(point, _)| path.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_string())
}

impl Machine {
    /// This machine, with the stores in `place`.
    pub fn here(place: &Path) -> Self {
        let known = |it: Option<String>| it.unwrap_or_else(|| "unknown".into());
        let first = |line: String| line.split(' ').next().map(str::to_string);
        let kib: Option<u64> =
            found("/proc/meminfo", "MemTotal").and_then(first).and_then(|kib| kib.parse().ok());
        Self {
            cpu: known(found("/proc/cpuinfo", "model name")),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory: (kib.unwrap_or(0) + (1 << 19)) >> 20,
            kernel: known(found("/proc/sys/kernel/osrelease", "")),
            filesystem: known(filesystem(place)),
            load: known(found("/proc/loadavg", "").and_then(first)),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, memory, kernel, filesystem, load } = self;
        let allocator = if cfg!(feature = "agentfs") { "mimalloc" } else { "the system's malloc" };
        let build = if cfg!(debug_assertions) { "not optimised" } else { "optimised" };
        write!(
            f,
            "{cpu}, {cores} cores, {memory} GiB, Linux {kernel}, stores on {filesystem}, {allocator}, \
             {build}; load at the start {load}"
        )
    }
}
