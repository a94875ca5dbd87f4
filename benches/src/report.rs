//! The report: what criterion does not say, above all p99.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

use crate::machine::Machine;

/// One line of a report.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// On whom.
    pub subject: String,
    /// Nanoseconds, in the order in which they were measured.
    pub samples: Vec<u64>,
    /// Each sample is the mean over one batch of operations, as they are too short to be timed alone.
    pub means: bool,
    /// Operations per second over all, where many are under way at a time.
    pub per_second: Option<f64>,
}

/// Something measured that is no time.
#[derive(Clone, Debug)]
pub struct Fact {
    /// What was measured.
    pub what: String,
    /// On whom.
    pub subject: String,
    /// How much.
    pub bytes: u64,
}

/// Bytes, as people read them.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// What one benchmark measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// The benchmark.
    pub name: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// Its lines.
    pub rows: Vec<Row>,
    /// What it measured besides times.
    pub facts: Vec<Fact>,
    /// What the reader has to know, such as what could not be measured.
    pub notes: Vec<String>,
}

/// The sample below or at which `percent` of all lie (nearest rank). The samples are sorted, and
/// there is at least one.
pub fn percentile(sorted: &[u64], percent: f64) -> u64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Nanoseconds, as people read them.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

impl Report {
    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let rates = self.rows.iter().any(|r| r.per_second.is_some());
        let mut text = format!("# {}\n\n{}\n\n", self.name, self.machine);
        text.push_str("| measured | of | p50 | p99 | least | n |");
        text.push_str(if rates { " per second |\n" } else { "\n" });
        text.push_str("|---|---|---:|---:|---:|---:|");
        text.push_str(if rates { "---:|\n" } else { "\n" });
        for row in self.rows.iter().filter(|r| !r.samples.is_empty()) {
            let mut sorted = row.samples.clone();
            sorted.sort_unstable();
            let cells = [
                row.what.clone(),
                row.subject.clone(),
                duration(percentile(&sorted, 50.0)),
                duration(percentile(&sorted, 99.0)),
                duration(sorted[0]),
                if row.means { format!("{} means", sorted.len()) } else { sorted.len().to_string() },
            ];
            let _ = write!(text, "| {} |", cells.join(" | "));
            if rates {
                let _ = write!(text, " {} |", row.per_second.map(|r| format!("{r:.0}")).unwrap_or_default());
            }
            text.push('\n');
        }
        text.push_str("\nNearest-rank percentiles of n samples, those of the warm-up left out.");
        if self.rows.iter().any(|r| r.means) {
            text.push_str(" `means`: a sample is the mean over one batch of calls.");
        }
        text.push('\n');
        if !self.facts.is_empty() {
            text.push_str("\n| measured | of | bytes |\n|---|---|---:|\n");
        }
        for fact in &self.facts {
            let _ = writeln!(text, "| {} | {} | {} |", fact.what, fact.subject, size(fact.bytes));
        }
        for note in &self.notes {
            let _ = write!(text, "\n- {note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The report for programs. Durations are in nanoseconds.
    pub fn json(&self) -> serde_json::Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .filter(|r| !r.samples.is_empty())
            .map(|row| {
                let mut sorted = row.samples.clone();
                sorted.sort_unstable();
                json!({
                    "measured": row.what, "of": row.subject, "n": sorted.len(), "means": row.means,
                    "p50_ns": percentile(&sorted, 50.0), "p99_ns": percentile(&sorted, 99.0),
                    "least_ns": sorted[0],
                    "mean_ns": sorted.iter().sum::<u64>() as f64 / sorted.len() as f64,
                    "per_second": row.per_second,
                })
            })
            .collect();
        let facts = self
            .facts
            .iter()
            .map(|fact| json!({ "measured": fact.what, "of": fact.subject, "bytes": fact.bytes }));
        let facts: Vec<_> = facts.collect();
        json!({
            "benchmark": self.name, "machine": self.machine.json(), "rows": rows, "facts": facts, "notes": self.notes,
        })
    }

    /// The samples of a row, sorted; none where it was not measured.
    pub fn sorted(&self, what: &str, subject: &str) -> Option<Vec<u64>> {
        let row = self.rows.iter().find(|row| row.what == what && row.subject == subject)?;
        let mut sorted = row.samples.clone();
        sorted.sort_unstable();
        Some(sorted).filter(|sorted| !sorted.is_empty())
    }

    /// Prints the report, and writes it as `NAME.md` and `NAME.json` into `folder`.
    pub fn publish(&self, folder: &Path) -> std::io::Result<()> {
        let markdown = self.markdown();
        println!("\n{markdown}");
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(self.name).with_extension("md"), markdown)?;
        std::fs::write(folder.join(self.name).with_extension("json"), format!("{:#}\n", self.json()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50.0), 50);
        assert_eq!(percentile(&hundred, 99.0), 99);
        assert_eq!(percentile(&hundred, 100.0), 100);
        assert_eq!(percentile(&[7], 99.0), 7);
        assert_eq!(percentile(&[1, 9], 50.0), 1);
        assert_eq!(percentile(&[1, 9], 99.0), 9);
    }

    #[test]
    fn durations_change_their_unit_at_a_thousand() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_000), "1.0 µs");
        assert_eq!(duration(18_250), "18.2 µs");
        assert_eq!(duration(1_500_000), "1.50 ms");
        assert_eq!(duration(2_000_000_000), "2.00 s");
    }

    #[test]
    fn a_report_shows_rows_that_have_samples_and_only_those() {
        let row = |what: &str, samples: Vec<u64>| Row {
            what: what.into(),
            subject: "x".into(),
            samples,
            means: false,
            per_second: None,
        };
        let report = Report {
            name: "r",
            machine: Machine::here(Path::new("/")),
            rows: vec![row("there", vec![3, 1, 2]), row("skipped", vec![])],
            facts: vec![Fact { what: "memory".into(), subject: "y".into(), bytes: 54 << 10 }],
            notes: vec!["so it is".into()],
        };
        let text = report.markdown();
        assert!(text.contains("| there | x | 2 ns | 3 ns | 1 ns | 3 |"), "{text}");
        assert!(text.contains("| memory | y | 54.0 KiB |"), "{text}");
        assert!(!text.contains("skipped") && text.ends_with("- so it is\n"), "{text}");
        let rows = &report.json()["rows"];
        assert_eq!((rows.as_array().map(Vec::len), rows[0]["p50_ns"].as_u64()), (Some(1), Some(2)));
    }
}
