//! Memory images that cannot be read while a guest runs on them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;

use dormouse::agent::TurnReport;
use dormouse::code::{CompileLimits, Compiler};
use dormouse::{Agent, AgentError, Event, Host, HostOptions};

use crate::bed::{Bed, PROGRAM};

async fn send(agent: &Agent, text: &str) -> Result<TurnReport, AgentError> {
    agent.send(Event::message(text).expect("an event")).await
}

fn text(report: TurnReport) -> String {
    String::from_utf8(report.reply.expect("a reply")).expect("text")
}

/// The files of this ending among the store's images that are mapped into this process.
fn mapped(bed: &Bed, ending: &str) -> BTreeSet<PathBuf> {
    let folder = bed.store().join("images").canonicalize().expect("the images");
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings");
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    paths.filter(|path| path.starts_with(&folder) && path.extension().is_some_and(|e| e == ending)).collect()
}

/// What a disk does that has lost the blocks, as far as a test can.
fn cut_off(file: &PathBuf) {
    File::options().write(true).open(file).and_then(|file| file.set_len(4096)).expect("cut off");
}

fn host(bed: &Bed) -> Host {
    let compiler = Compiler { program: PROGRAM.into(), limits: CompileLimits::default() };
    let options = HostOptions { compiler: Some(compiler), ..HostOptions::new(bed.store()) };
    Host::open(options).expect("the host")
}

#[test]
fn a_page_that_cannot_be_read_costs_the_turn_and_nobody_else() {
    let bed = Bed::new(&["notes"]);
    for agent in ["n", "other"] {
        bed.create(agent, "notes");
        // enough that its memory is made flat when it is paused
        (0..30).for_each(|n| drop(bed.send(agent, &format!("note {n} {}", "x".repeat(3_000)))));
        bed.ok(["pause", agent]);
    }
    let host = host(&bed);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let agent = |name: &str| host.agent(name).expect("the agent");
        let (n, other) = (agent("n"), agent("other"));
        n.resume().await.expect("n alive");
        let files = mapped(&bed, "flat");
        assert_eq!(files.len(), 1, "n has a flat image of its own: {files:?}");
        files.iter().for_each(cut_off);
        let failed = send(&n, "list").await;
        assert!(matches!(failed, Err(AgentError::ImageRead(_))), "{failed:?}");
        let listed = text(send(&other, "list").await.expect("another agent's turn"));
        assert_eq!(listed.lines().count(), 30);
        // the archive has it
        let again = text(send(&n, "list").await.expect("the next turn"));
        assert_eq!(again, listed);
        assert_eq!(text(send(&n, "note more").await.expect("a turn")), "kept note 31");
    });
}

#[test]
fn a_changed_page_that_cannot_be_read_costs_the_turn_too() {
    let bed = Bed::new(&["notes"]);
    for agent in ["n", "other"] {
        bed.create(agent, "notes");
        bed.send(agent, "note one");
        bed.ok(["pause", agent]);
    }
    let host = host(&bed);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let agent = |name: &str| host.agent(name).expect("the agent");
        let (n, other) = (agent("n"), agent("other"));
        let paused = n.disk().head();
        assert_eq!(text(send(&n, "note two").await.expect("a turn")), "kept note 2");
        let files = mapped(&bed, "pages");
        assert_eq!(files.len(), 1, "n has a file of changed pages: {files:?}");
        files.iter().for_each(cut_off);
        // its memory is its own already; what its turn leaves is compared with the file
        let failed = send(&n, "note three").await;
        assert!(matches!(failed, Err(AgentError::Image(_))), "{failed:?}");
        assert_eq!(text(send(&other, "list").await.expect("another agent's turn")), "1. one");
        // nothing else has that image, and what was archived is there
        let lost = send(&n, "list").await;
        assert!(matches!(lost, Err(AgentError::ImageLost { .. })), "{lost:?}");
        n.rewind(paused).await.expect("back to what was archived");
        assert_eq!(text(send(&n, "list").await.expect("the next turn")), "1. one");
    });
}
