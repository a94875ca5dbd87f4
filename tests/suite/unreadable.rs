//! Memory images that cannot be read while a guest runs on them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::path::PathBuf;

use dormouse::agent::{RunOptions, TurnReport};
use dormouse::wasi::{Input, Stdio};
use dormouse::{Agent, AgentError, Event, Host, HostOptions, ImagePolicy};

use crate::bed::{Bed, Running, run};

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

/// Each turn ends with an image: otherwise memory that cannot be read is made again by running turns.
fn host(bed: &Bed) -> Host {
    Host::open(HostOptions { images: ImagePolicy::EVERY_TURN, ..bed.options() }).expect("the host")
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
        assert!(matches!(failed, Err(AgentError::ImageRead { .. })), "{failed:?}");
        let listed = text(send(&other, "list").await.expect("another agent's turn"));
        assert_eq!(listed.lines().count(), 30);
        // the archive has it
        let again = text(send(&n, "list").await.expect("the next turn"));
        assert_eq!(again, listed);
        assert_eq!(text(send(&n, "note more").await.expect("a turn")), "kept note 31");
    });
}

#[test]
fn a_changed_page_that_cannot_be_read_any_more_is_written_anew() {
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
        let second = n.disk().head();
        let changed = pages(&bed, &n);
        assert!(!changed.is_empty(), "n has files of changed pages");
        assert!(mapped(&bed, "pages").is_empty(), "which are read, and take no mapping");
        changed.iter().for_each(cut_off);
        // its memory is its own already, and what its turn leaves does not rest on the file as it was
        assert_eq!(text(send(&n, "note three").await.expect("a turn")), "kept note 3");
        n.sleep().await;
        assert_eq!(text(send(&n, "list").await.expect("a turn")).lines().count(), 3);
        assert_eq!(text(send(&other, "list").await.expect("another agent's turn")), "1. one");
        // nothing else has the image in between, and what was archived is there
        n.rewind(paused).await.expect("back to what was archived");
        assert_eq!(text(send(&n, "list").await.expect("the next turn")), "1. one");
        let lost = n.rewind(second).await;
        assert!(matches!(lost, Err(AgentError::ImageLost { .. })), "{lost:?}");
        assert_eq!(text(send(&n, "note again").await.expect("a turn")), "kept note 2");
        // where it stands is not needed to go back
        pages(&bed, &n).iter().for_each(cut_off);
        n.sleep().await;
        let lost = send(&n, "list").await;
        assert!(matches!(lost, Err(AgentError::ImageLost { .. })), "{lost:?}");
        n.rewind(paused).await.expect("back to what was archived");
        assert_eq!(text(send(&n, "list").await.expect("the next turn")), "1. one");
    });
}

/// An agent's files of changed pages.
fn pages(bed: &Bed, agent: &Agent) -> Vec<PathBuf> {
    let of_agent = agent.id().0.to_string();
    let images = fs::read_dir(bed.store().join("images")).expect("the images");
    let names = images.map(|entry| entry.expect("an image").path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&of_agent) && name.ends_with(".pages")
    };
    names.filter(is_one).collect()
}

/// The image from which every run of a command begins.
fn genesis(bed: &Bed) -> PathBuf {
    let images = fs::read_dir(bed.store().join("images")).expect("the images");
    let paths = images.map(|entry| entry.expect("an image").path());
    let is_genesis = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("genesis-") && name.ends_with(".flat")
    };
    let found: Vec<_> = paths.filter(is_genesis).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn an_image_that_is_cut_off_under_a_command_costs_that_run_alone() {
    let bed = Bed::new(&["stdio"]);
    assert_eq!(bed.guest("stdio", ["upper"]).status, Some(0));
    let logs = bed.ok(["logs", "stdio"]);
    let mut running = Running::start(&mut bed.guest_command("stdio", ["upper"]));
    running.input.as_mut().expect("its input").write_all(b"begun\n").expect("a line for it");
    assert_eq!(running.line().as_deref(), Some("BEGUN"));
    cut_off(&genesis(&bed));
    let input = running.input.as_mut().expect("its input");
    // the run may be over before it has all of it
    drop(input.write_all(&vec![b'x'; 1 << 20]));
    let ran = running.end();
    assert_eq!(ran.status, Some(1), "{ran}");
    ran.assert_one_message(&["could not be read from its image", "nothing of the turn took effect"]);
    assert_eq!(bed.ok(["logs", "stdio"]), logs, "nothing of it is kept");
    // the next has an image again
    let mut next = bed.guest_command("stdio", ["upper"]);
    let ran = run(&mut next, b"again\n");
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "AGAIN\n"), "{ran}");
}

#[test]
fn a_run_on_an_unreadable_image_leaves_nothing_and_the_next_has_another() {
    let bed = Bed::new(&["stdio", "notes"]);
    assert_eq!(bed.guest("stdio", ["upper"]).status, Some(0));
    let logs = bed.ok(["logs", "stdio"]);
    let file = genesis(&bed);
    bed.create("n", "notes");
    let host = host(&bed);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let agent = host.agent("stdio").expect("the agent");
        let run = |stdin: &str| {
            let stdio = Stdio {
                stdin: Some(Input::reading(Cursor::new(stdin.as_bytes().to_vec()))),
                ..Stdio::default()
            };
            RunOptions { args: vec!["upper".into()], stdio, ..RunOptions::default() }
        };
        let whole = fs::read(&file).expect("the image");
        let outcome = agent.run(run("one\n"), std::future::pending()).await.expect("a run");
        assert_eq!(outcome.status, Ok(0));
        cut_off(&file);
        let failed = agent.run(run("two\n"), std::future::pending()).await;
        assert!(matches!(failed, Err(AgentError::ImageRead { .. })), "{failed:?}");
        // one that nobody waits for either
        cut_off(&file);
        tokio::select! {
            biased;
            outcome = agent.run(run("dropped\n"), std::future::pending()) => drop(outcome),
            () = std::future::ready(()) => {}
        }
        let text = text(send(&host.agent("n").expect("n"), "note one").await.expect("another agent's turn"));
        assert_eq!(text, "kept note 1");
        let outcome = agent.run(run("three\n"), std::future::pending()).await.expect("the next run");
        assert_eq!(outcome.status, Ok(0));
        assert_eq!(fs::read(&file).expect("the image"), whole, "it was made again");
    });
    host.close().expect("closed");
    let now = bed.ok(["logs", "stdio"]);
    let own = now.strip_prefix(&logs).expect("what was there");
    assert_eq!(own, "ONE\nTHREE\n");
}

#[test]
fn a_fork_whose_parents_file_has_lost_blocks_goes_on_from_the_archive() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    (0..30).for_each(|n| drop(bed.send("n", &format!("note {n} {}", "x".repeat(3_000)))));
    bed.ok(["pause", "n"]);
    bed.ok(["fork", "n", "child"]);
    let listed = bed.send("n", "list");
    let host = host(&bed);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let child = host.agent("child").expect("the fork");
        child.resume().await.expect("the fork alive");
        let files: Vec<_> = mapped(&bed, "flat").into_iter().collect();
        assert_eq!(files.len(), 1, "it lies on its parent's file: {files:?}");
        let len = fs::metadata(&files[0]).expect("the image").len();
        cut_off(&files[0]);
        let failed = send(&child, "list").await;
        assert!(matches!(failed, Err(AgentError::ImageRead { .. })), "{failed:?}");
        // as long as it was, and without what it held
        File::options().write(true).open(&files[0]).and_then(|file| file.set_len(len)).expect("its length");
        for _ in 0..2 {
            assert_eq!(text(send(&child, "list").await.expect("a turn")), listed);
        }
    });
}

/// Puts other bytes in the place of `word` in every image file that has it and of which `is_meant` holds.
fn rot(bed: &Bed, is_meant: impl Fn(&str) -> bool, word: &str, with: &str) {
    let (mut hit, word, with) = (0, word.as_bytes(), with.as_bytes());
    for entry in fs::read_dir(bed.store().join("images")).expect("the images") {
        let path = entry.expect("an image").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.ends_with(".flat") || !is_meant(name) {
            continue;
        }
        let mut bytes = fs::read(&path).expect("an image file");
        while let Some(at) = bytes.windows(word.len()).position(|it| it == word) {
            bytes[at..at + with.len()].copy_from_slice(with);
            hit += 1;
        }
        fs::write(&path, bytes).expect("damage");
    }
    assert!(hit > 0, "no image has it");
}

fn is_of_an_agent(name: &str) -> bool {
    !name.starts_with("genesis-")
}

fn is_genesis(name: &str) -> bool {
    name.starts_with("genesis-")
}

const ROTTEN: [&str; 3] =
    ["could not be read from its image", "nothing of the turn", "does not match its checksum"];

#[test]
fn a_page_that_is_not_what_it_was_costs_the_turn_that_used_it_and_goes_no_further() {
    let bed = Bed::new(&["notes"]);
    bed.create("n", "notes");
    (0..30).for_each(|n| drop(bed.send("n", &format!("note MAGENTA {n} {}", "x".repeat(3_000)))));
    bed.ok(["pause", "n"]);
    let listed = bed.send("n", "list");
    bed.ok(["pause", "n"]);
    // read by the guest, or only written to, or by a fork
    for turn in ["list", "note more"] {
        let before = bed.json(["generations", "n"]);
        rot(&bed, is_of_an_agent, "MAGENTA", "NAGENTA");
        let told = bed.refused(["send", "n", turn], &ROTTEN);
        assert!(told.contains("`n`, as of generation") && told.contains(".flat"), "{told}");
        assert_eq!(bed.json(["generations", "n"]), before, "no generation came of it");
        assert_eq!(bed.send("n", "list"), listed, "the archive has it");
        bed.ok(["pause", "n"]);
    }
    rot(&bed, is_of_an_agent, "MAGENTA", "NAGENTA");
    bed.ok(["fork", "n", "child"]);
    bed.refused(["send", "child", "list"], &ROTTEN);
    assert_eq!(bed.send("child", "list"), listed);
    // what the parent lies on is still what it was made
    bed.run(["fsck", "--repair"]);
    bed.ok(["fsck"]);
    assert_eq!(bed.send("n", "list"), listed);
}

#[test]
fn a_command_whose_genesis_is_not_what_it_was_runs_on_another() {
    let bed = Bed::new(&["hello-command"]);
    let program = crate::bed::guest("hello-command");
    let run_it = || bed.run(["run".as_ref(), "--name".as_ref(), "h".as_ref(), program.as_os_str()]);
    let first = run_it();
    assert_eq!(first.status, Some(0), "{first}");
    rot(&bed, is_genesis, "hello, ", "HELLX, ");
    let ran = run_it();
    assert_eq!(ran.status, Some(1), "{ran}");
    ran.assert_one_message(&ROTTEN);
    let again = run_it();
    assert_eq!((again.status, again.out.as_str()), (Some(0), "hello, world: visit 2\n"));
    bed.ok(["fsck"]);
    rot(&bed, is_genesis, "hello, ", "HELLX, ");
    let found = bed.run(["fsck"]);
    assert_eq!(found.status, Some(1), "{found}");
    assert!(found.out.contains("does not match its checksum (genesis of the component of h)"), "{found}");
    let mended = bed.run(["fsck", "--repair"]);
    assert!(mended.out.contains("repaired: the genesis image was made again"), "{mended}");
    bed.ok(["fsck"]);
    assert_eq!(run_it().out, "hello, world: visit 3\n");
}
