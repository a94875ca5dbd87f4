//! What is measured.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::peer::Peer;

/// Folders of the tree that all operations work on.
pub const FOLDERS: usize = 10;
/// Files in each of them.
pub const FILES: usize = 1000;
/// Bytes of each file.
const SIZE: usize = 4 << 10;
/// Bytes of an append.
const APPENDED: usize = 100;
/// Operations in a round that wait for the disk, each of which is a sample.
const WAITING: usize = 30;
/// Samples in a round of operations that do not.
const READY: usize = 20;
/// How often such an operation is done for one sample, which is the mean.
const AT_ONCE: u32 = 100;
/// Files that share a commit.
const MANY: usize = 1000;
/// Files that are written over between a snapshot and the reading of it.
const LATER: usize = 20;

/// One row of the table.
pub struct Operation {
    /// What is done.
    pub what: &'static str,
    /// Does it some times, and takes care that it can be done again.
    pub round: fn(&mut dyn Peer, &mut Round) -> anyhow::Result<()>,
}

/// All operations, in the order in which they are measured.
pub const OPERATIONS: [Operation; 14] = [
    Operation { what: "create a file of 4 KiB, durably", round: create },
    Operation { what: "create a file of 4 KiB, 1,000 in one commit", round: create_many },
    Operation { what: "overwrite 4 KiB, durably", round: overwrite },
    Operation { what: "append 100 bytes, durably", round: append },
    Operation { what: "rename, durably", round: rename },
    Operation { what: "rename, 1,000 in one commit", round: rename_many },
    Operation { what: "delete, durably", round: delete },
    Operation { what: "delete, 1,000 in one commit", round: delete_many },
    Operation { what: "read a file of 4 KiB, at random", round: read },
    Operation { what: "stat by path", round: stat },
    Operation { what: "list a folder of 1,000 files", round: list },
    Operation { what: "snapshot of 10,000 files, durably", round: snapshot },
    Operation { what: "read a file of 4 KiB in a snapshot, at random", round: read_snapshot },
    Operation { what: "fork of 10,000 files, durably", round: fork },
];

/// One peer's turn at an operation.
pub struct Round {
    /// The state of a xorshift generator, the same for all peers in the same round.
    random: u64,
    /// How long one operation took, in the order in which they were done.
    pub samples: Vec<Duration>,
}

impl Round {
    /// The `number`th round.
    pub fn new(number: usize) -> Self {
        Self { random: 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1), samples: Vec::new() }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    /// One of the tree's files.
    fn any_file(&mut self) -> String {
        let folder = self.draw(FOLDERS);
        file(folder, self.draw(FILES))
    }

    /// Times `work`, which does `times` operations.
    fn time<R>(&mut self, times: u32, work: impl FnOnce() -> anyhow::Result<R>) -> anyhow::Result<R> {
        let begun = Instant::now();
        let done = work()?;
        self.samples.push(begun.elapsed() / times);
        Ok(done)
    }
}

fn folder(number: usize) -> String {
    format!("folder-{number}")
}

fn file(folder: usize, number: usize) -> String {
    format!("folder-{folder}/file-{number:04}")
}

/// Files that are not in the tree, in one of its folders.
fn others(many: usize) -> Vec<String> {
    (0..many).map(|number| format!("{}/other-{number:04}", folder(0))).collect()
}

impl Round {
    /// Content that is nowhere else and does not compress.
    fn content(&mut self, size: usize) -> Vec<u8> {
        (0..size).map(|_| self.draw(256) as u8).collect()
    }

    fn with_content(&mut self, files: Vec<String>) -> Vec<(String, Vec<u8>)> {
        files.into_iter().map(|file| (file, self.content(SIZE))).collect()
    }
}

/// Makes the tree.
pub fn plant(peer: &mut dyn Peer) -> anyhow::Result<()> {
    let mut round = Round::new(usize::MAX / 2);
    peer.make_folders(&(0..FOLDERS).map(folder).collect::<Vec<_>>())?;
    for folder in 0..FOLDERS {
        peer.create(&round.with_content((0..FILES).map(|number| file(folder, number)).collect()))?;
    }
    Ok(())
}

fn create(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let files = round.with_content(others(WAITING));
    for file in files.chunks(1) {
        round.time(1, || peer.create(file))?;
    }
    peer.remove(&others(WAITING))
}

fn create_many(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let files = round.with_content(others(MANY));
    round.time(MANY as u32, || peer.create(&files))?;
    peer.remove(&others(MANY))
}

fn overwrite(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    for _ in 0..WAITING {
        let (file, content) = (round.any_file(), round.content(SIZE));
        round.time(1, || peer.overwrite(&file, &content))?;
    }
    Ok(())
}

fn append(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let file = others(1);
    peer.create(&[(file[0].clone(), round.content(APPENDED))])?;
    for _ in 0..WAITING {
        let bytes = round.content(APPENDED);
        round.time(1, || peer.append(&file[0], &bytes))?;
    }
    let size = peer.size(&file[0])?;
    ensure!(size == (APPENDED * (WAITING + 1)) as u64, "appends gave a file of {size} bytes");
    peer.remove(&file)
}

/// Old and new name of files of the tree that get names that are not in it.
fn moves(many: usize) -> Vec<(String, String)> {
    others(many).into_iter().enumerate().map(|(number, other)| (file(0, number), other)).collect()
}

/// The same the other way round.
fn back(moves: &[(String, String)]) -> Vec<(String, String)> {
    moves.iter().map(|(from, to)| (to.clone(), from.clone())).collect()
}

fn rename(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let moves = moves(WAITING);
    for one in moves.chunks(1) {
        round.time(1, || peer.rename(one))?;
    }
    peer.rename(&back(&moves))
}

fn rename_many(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let moves = moves(MANY);
    round.time(MANY as u32, || peer.rename(&moves))?;
    round.time(MANY as u32, || peer.rename(&back(&moves)))
}

fn delete(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    peer.create(&round.with_content(others(WAITING)))?;
    for file in others(WAITING).chunks(1) {
        round.time(1, || peer.remove(file))?;
    }
    Ok(())
}

fn delete_many(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    peer.create(&round.with_content(others(MANY)))?;
    round.time(MANY as u32, || peer.remove(&others(MANY)))
}

/// Times reading, some files for each sample.
fn reading(
    round: &mut Round,
    mut read: impl FnMut(&str, &mut Vec<u8>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut into = Vec::new();
    for _ in 0..READY {
        let files: Vec<_> = (0..AT_ONCE).map(|_| round.any_file()).collect();
        round.time(AT_ONCE, || {
            files.iter().try_for_each(|file| {
                read(file, &mut into)?;
                ensure!(into.len() == SIZE, "{file} has {} bytes", into.len());
                Ok(())
            })
        })?;
    }
    Ok(())
}

fn read(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    reading(round, |file, into| peer.read(file, into))
}

fn stat(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    for _ in 0..READY {
        let files: Vec<_> = (0..AT_ONCE).map(|_| round.any_file()).collect();
        round.time(AT_ONCE, || {
            files.iter().try_for_each(|file| {
                let size = peer.size(file)?;
                ensure!(size == SIZE as u64, "{file} has {size} bytes");
                Ok(())
            })
        })?;
    }
    Ok(())
}

fn list(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    for _ in 0..READY {
        let folder = folder(round.draw(FOLDERS));
        let mut found = 0;
        round.time(1, || peer.list(&folder, &mut |_| found += 1))?;
        ensure!(found == FILES, "{folder} has {found} files");
    }
    Ok(())
}

/// Changes one file, so that there is something that no snapshot and no fork has yet.
fn change(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let (file, content) = (round.any_file(), round.content(SIZE));
    peer.overwrite(&file, &content)
}

fn snapshot(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    change(peer, round)?;
    round.time(1, || peer.snapshot())?.discard()
}

fn read_snapshot(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    let mut snapshot = peer.snapshot()?;
    for _ in 0..LATER {
        change(peer, round)?;
    }
    reading(round, |file, into| snapshot.read(file, into))?;
    snapshot.discard()
}

fn fork(peer: &mut dyn Peer, round: &mut Round) -> anyhow::Result<()> {
    change(peer, round)?;
    round.time(1, || peer.fork())?.discard()
}
