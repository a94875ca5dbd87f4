//! The agents that are measured.

use dormouse_benches::bed::Bed;
use dormouse_benches::bench::Bench;
use dormouse_benches::guests;

/// An agent to be made.
pub struct Plan {
    /// What it is called in the report.
    pub label: &'static str,
    /// Its name in the store.
    pub name: &'static str,
    /// Its component's language, for what is measured once for each component.
    pub language: &'static str,
    /// The component.
    pub component: Vec<u8>,
    /// Memory that it takes, in MiB; each page of it is written.
    pub grown: usize,
    /// What happens to it first.
    events: &'static [&'static str],
}

/// An agent that has been made, and stands as it was left.
pub struct Subject {
    /// What it is called in the report.
    pub label: &'static str,
    /// Its name in the store.
    pub name: &'static str,
    /// Pages of its linear memories.
    pub pages: u64,
    /// Whether it holds memory that `touch-pages` can write to.
    pub touches: bool,
}

const RUST: &[&str] = &["note a mouse sleeps", "next", "line"];
const OTHERS: &[&str] = &["remember animal mouse", "next", "line"];

/// The Rust agent by size, and those of other languages.
pub fn all(bench: &mut Bench) -> anyhow::Result<Vec<Plan>> {
    let notes = guests::read(bench.target(), "notes")?;
    let rust = |label, name, grown| Plan {
        label,
        name,
        language: "Rust",
        component: notes.clone(),
        grown,
        events: RUST,
    };
    let mut plans = vec![rust("Rust", "rust", 0), rust("Rust +16 MiB", "rust-16", 16)];
    if !bench.is_measuring() {
        return Ok(plans);
    }
    plans.push(rust("Rust +64 MiB", "rust-64", 64));
    plans.push(rust("Rust +256 MiB", "rust-256", 256));
    plans.push(rust("Rust +1 GiB", "rust-1024", 1024));
    let mut others =
        |language, guest, sizes: &[(&'static str, &'static str, usize)]| match guests::read_if_built(
            bench.target(),
            guest,
        ) {
            Some(component) => plans.extend(sizes.iter().map(|&(label, name, grown)| Plan {
                label,
                name,
                language,
                component: component.clone(),
                grown,
                events: OTHERS,
            })),
            None => bench.note(format!("{language} was not measured: `make guests` builds its agent")),
        };
    others("CPython", "python-agent", &[("CPython", "cpython", 0), ("CPython +256 MiB", "cpython-256", 256)]);
    others("QuickJS", "js-agent", &[("QuickJS", "quickjs", 0)]);
    others("SpiderMonkey", "spidermonkey-agent", &[("SpiderMonkey", "spidermonkey", 0)]);
    Ok(plans)
}

impl Plan {
    /// The Rust agent that takes this much memory.
    pub fn rust(component: Vec<u8>, label: &'static str, name: &'static str, grown: usize) -> Self {
        Self { label, name, language: "Rust", component, grown, events: RUST }
    }

    /// Makes the agent, and lets it sleep. Its image is flat, so that nothing but the bench's own work
    /// is going on when it is resumed.
    pub fn settle(&self, bed: &mut Bed) -> anyhow::Result<Subject> {
        let mut events: Vec<String> = self.events.iter().map(|e| (*e).to_string()).collect();
        if self.grown > 0 {
            events.push(format!("grow {}", self.grown));
        }
        let agent = bed.agent(self.name, &self.component, &events)?;
        let memory = bed.wait(agent.resume())?.memory;
        drop(agent);
        // images are made flat behind turns and pauses, one at a time: closing waits for that
        bed.close()?;
        bed.open()?;
        bed.wait(bed.host()?.agent(self.name)?.pause())?;
        bed.close()?;
        bed.open()?;
        let pages = memory / dormouse::image::PAGE as u64;
        Ok(Subject { label: self.label, name: self.name, pages, touches: self.grown > 0 })
    }
}

/// Makes the agents.
pub fn settle(bed: &mut Bed, plans: &[Plan]) -> anyhow::Result<Vec<Subject>> {
    plans.iter().map(|plan| plan.settle(bed)).collect()
}
