//! The machine that was measured on: numbers mean nothing without it.

use std::fmt;
use std::path::Path;

use dormouse::image::DirtyTracking;
use serde_json::json;

/// A machine, as far as the numbers depend on it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Who answers `malloc` in this process.
    pub allocator: &'static str,
    /// The kind of filesystem that the stores lie on.
    pub filesystem: String,
    /// How changed pages are found.
    pub dirty_tracking: DirtyTracking,
    /// How the code was compiled.
    pub build: &'static str,
    /// The load average of the last minute when the benchmark began: what else was going on.
    pub load: String,
}

fn first_line_of(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line[key.len()..].trim_start_matches([':', ' ', '\t']).trim().to_string())
}

/// The kind of the filesystem that `path` is on, by the longest mount point above it.
fn filesystem_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind.to_string())
}

impl Machine {
    /// This machine, with the stores in `folder`.
    pub fn here(folder: &Path) -> Self {
        let unknown = || "unknown".to_string();
        let kib =
            first_line_of("/proc/meminfo", "MemTotal").and_then(|m| m.trim_end_matches(" kB").parse().ok());
        Self {
            cpu: first_line_of("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory: kib.unwrap_or(0u64) << 10,
            kernel: first_line_of("/proc/sys/kernel/osrelease", "").unwrap_or_else(unknown),
            allocator: if cfg!(target_env = "gnu") { "glibc malloc" } else { "the system's malloc" },
            filesystem: filesystem_of(folder).unwrap_or_else(unknown),
            dirty_tracking: DirtyTracking::here(),
            build: if cfg!(debug_assertions) {
                "dev profile (Dormouse little optimised, with its assertions; dependencies optimised)"
            } else {
                "optimised build"
            },
            load: first_line_of("/proc/loadavg", "")
                .and_then(|l| l.split(' ').next().map(Into::into))
                .unwrap_or_else(unknown),
        }
    }

    /// The same, for programs.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "cpu": self.cpu, "cores": self.cores, "memory_bytes": self.memory, "kernel": self.kernel,
            "allocator": self.allocator, "filesystem": self.filesystem, "build": self.build, "load": self.load,
            "dirty_tracking": format!("{:?}", self.dirty_tracking),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, {:.0} GiB, Linux {}, stores on {}, {}, changed pages by {:?}; {}; load at the start {}",
            self.cpu,
            self.cores,
            self.memory as f64 / f64::from(1 << 30),
            self.kernel,
            self.filesystem,
            self.allocator,
            self.dirty_tracking,
            self.build,
            self.load,
        )
    }
}
