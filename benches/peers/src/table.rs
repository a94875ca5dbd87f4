//! The table: p50 and p99 of each operation on each peer.

use std::fmt::Write;
use std::time::Duration;

use crate::machine::Machine;

/// What one operation took.
pub struct Row {
    /// The operation.
    pub what: &'static str,
    /// A cell for each peer: how long the operation took, each time.
    pub samples: Vec<Vec<Duration>>,
}

/// What was measured.
pub struct Table {
    /// Where.
    pub machine: Machine,
    /// The peers' names, in the order of the cells.
    pub peers: Vec<String>,
    /// A row for each operation.
    pub rows: Vec<Row>,
}

/// The sample below or at which `percent` of all lie (nearest rank); none of no samples.
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (percent * sorted.len()).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

/// A duration as people read it.
fn told(duration: Duration) -> String {
    match duration.as_nanos() {
        ns @ 0..1_000 => format!("{ns} ns"),
        ns @ 1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        ns @ 1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        ns => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn cell(samples: &[Duration]) -> String {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    match (percentile(&sorted, 50), percentile(&sorted, 99)) {
        (Some(p50), Some(p99)) => format!("{} / {}", told(p50), told(p99)),
        _ => "-".into(),
    }
}

impl Table {
    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n\n| p50 / p99 |", self.machine);
        for peer in &self.peers {
            let _ = write!(text, " {peer} |");
        }
        text.push_str(" n |\n|---|");
        text.push_str(&"---:|".repeat(self.peers.len() + 1));
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "| {} |", row.what);
            for samples in &row.samples {
                let _ = write!(text, " {} |", cell(samples));
            }
            let most = row.samples.iter().map(Vec::len).max().unwrap_or(0);
            let _ = writeln!(text, " {most} |");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let hundred: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&hundred, 50), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&hundred, 99), Some(Duration::from_millis(99)));
        assert_eq!(percentile(&hundred[..1], 99), Some(Duration::from_millis(1)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_table_has_a_cell_for_each_peer_also_for_what_it_cannot_do() {
        let samples = vec![vec![Duration::from_nanos(18_250), Duration::from_millis(2)], Vec::new()];
        let table = Table {
            machine: Machine::here(std::path::Path::new("/")),
            peers: vec!["one".into(), "other".into()],
            rows: vec![Row { what: "read", samples }],
        };
        let text = table.markdown();
        assert!(text.contains("| p50 / p99 | one | other | n |\n|---|---:|---:|---:|\n"), "{text}");
        assert!(text.ends_with("| read | 18.2 µs / 2.00 ms | - | 2 |\n"), "{text}");
    }
}
