//! How much memory the process can still have, and whether that is little.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lock;

/// Memory is short where less than this share of the whole is left.
const SHARE: u64 = 16;
/// It is not short where so many bytes are left.
const ENOUGH: u64 = 2 << 30;
/// How long an answer is good for.
const FRESH: Duration = Duration::from_millis(100);

/// What is left of what the process can have. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub left: u64,
    pub whole: u64,
}

impl Available {
    /// Whether memory is short.
    fn is_low(self) -> bool {
        self.left < (self.whole / SHARE).min(ENOUGH)
    }

    /// What the machine has, or the process's control group where that may have less; none where the system does not
    /// tell. Page cache counts as left.
    pub fn now() -> Option<Self> {
        let machine = of_machine(&read_to_string("/proc/meminfo").ok()?)?;
        let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let all = groups_above(&groups).into_iter().filter_map(|group| of_group(&group));
        Some(all.fold(machine, |least, it| if it.left < least.left { it } else { least }))
    }
}

fn of_machine(meminfo: &str) -> Option<Available> {
    let kib = |key| field(meminfo, key)?.trim_end_matches(" kB").parse::<u64>().ok();
    Some(Available { left: kib("MemAvailable:")? << 10, whole: kib("MemTotal:")? << 10 })
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// The folders of a process's control group and of those above it, in version 2. Source: Linux,
/// `Documentation/admin-guide/cgroup-v2.rst`.
fn groups_above(groups: &str) -> Vec<PathBuf> {
    let Some(group) = field(groups, "0::/") else { return Vec::new() };
    let top = Path::new("/sys/fs/cgroup");
    top.join(group).ancestors().take_while(|it| it.starts_with(top)).map(Path::to_owned).collect()
}

fn of_group(folder: &Path) -> Option<Available> {
    let read = |name| read_to_string(folder.join(name)).ok();
    let whole = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let cache = field(&read("memory.stat")?, "file ")?.parse().unwrap_or(0);
    Some(Available { left: u64::saturating_sub(whole, used.saturating_sub(cache)), whole })
}

/// Whether memory is short, looked at no more often than every 100 ms.
#[derive(Debug, Default)]
pub(crate) struct Pressure(Mutex<Option<(Instant, bool)>>);

impl Pressure {
    /// Whether memory is short now.
    pub fn is_high(&self) -> bool {
        let mut known = lock(&self.0);
        if let Some((at, is_high)) = *known
            && at.elapsed() < FRESH
        {
            return is_high;
        }
        let is_high = Available::now().is_some_and(Available::is_low);
        *known = Some((Instant::now(), is_high));
        is_high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let meminfo = "MemTotal:       24676264 kB\nMemFree:         1 kB\nMemAvailable:   10000000 kB\n";
        let machine = of_machine(meminfo).unwrap();
        assert_eq!(machine, Available { left: 10_000_000 << 10, whole: 24_676_264 << 10 });
        assert_eq!(of_machine("MemTotal: 1 kB\n"), None);
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 100\nfile 300\nfile_mapped 5\n");
        assert_eq!(of_group(folder.path()), None, "it has no bound");
        write("memory.max", "1000\n");
        assert_eq!(of_group(folder.path()), Some(Available { left: 600, whole: 1000 }));
        let groups: Vec<_> = groups_above("1:name=systemd:/x\n0::/a/b\n");
        assert_eq!(groups, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(PathBuf::from));
        assert!(Available::now().unwrap().left > 0);
    }

    #[test]
    fn little_is_a_share_of_little_and_a_number_of_much() {
        let low = |left, whole| Available { left, whole }.is_low();
        assert!(low(61, 1000) && !low(62, 1000));
        assert!(low(ENOUGH - 1, 1 << 40) && !low(ENOUGH, 1 << 40));
    }
}
