//! Dormouse's zone store beside its peers: the same operations on the same tree of files, as durable.
//!
//! | module | what it is |
//! |---|---|
//! | [`peer`] | the trait: what all that is measured can do |
//! | [`dormouse`] | a zone of Dormouse, by the crate `zone-vfs` alone |
//! | [`agentfs`] | AgentFS's SDK |
//! | [`sqlite`] | SQLite, with files as rows |
//! | [`redb`] | redb, with files as values |
//! | [`operations`] | what is measured |
//! | [`table`] | p50 and p99 as Markdown |
//! | [`machine`] | what was measured on |
//!
//! `dormouse-peers [--quick] [WORD]` prints the table of the operations whose description contains the word,
//! or of all. The peers take turns, so that what else the machine does hits them all.

#[cfg(feature = "agentfs")]
mod agentfs;
mod dormouse;
mod machine;
mod operations;
mod peer;
mod redb;
mod sqlite;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Context;

use crate::machine::Machine;
use crate::operations::{OPERATIONS, Operation, Round};
use crate::peer::Peer;
use crate::table::{Row, Table};

/// Where the stores are made: on the filesystem that this was built on.
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target");
/// Rounds of each operation. One more comes first, and is not reported.
const ROUNDS: usize = 10;

/// All that is measured, each empty.
fn peers(place: &Path) -> anyhow::Result<Vec<Box<dyn Peer>>> {
    Ok(vec![
        Box::new(dormouse::Dormouse::new(place)?),
        #[cfg(feature = "agentfs")]
        Box::new(agentfs::AgentFs::new(place)?),
        Box::new(sqlite::Sqlite::new(place)?),
        Box::new(redb::Redb::new(place)?),
    ])
}

/// Lets the peers do an operation in turn, in each round another first.
fn race(operation: &Operation, peers: &mut [Box<dyn Peer>], rounds: usize) -> anyhow::Result<Row> {
    let mut samples = vec![Vec::new(); peers.len()];
    for number in 0..=rounds {
        for turn in 0..peers.len() {
            let index = (number + turn) % peers.len();
            let peer = &mut peers[index];
            let mut round = Round::new(number);
            (operation.round)(&mut **peer, &mut round)
                .with_context(|| format!("{}, {}", operation.what, peer.name()))?;
            if number > 0 {
                samples[index].append(&mut round.samples);
            }
        }
    }
    Ok(Row { what: operation.what, samples })
}

fn main() -> anyhow::Result<()> {
    let (options, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    let rounds = if options.iter().any(|option| option == "--quick") { 1 } else { ROUNDS };
    std::fs::create_dir_all(PLACE)?;
    let place = tempfile::tempdir_in(PLACE)?;
    let machine = Machine::here(place.path());
    let mut peers = peers(place.path())?;
    for peer in &mut peers {
        operations::plant(&mut **peer).with_context(|| format!("making the tree of {}", peer.name()))?;
    }
    let mut rows = Vec::new();
    for operation in OPERATIONS.iter().filter(|it| words.iter().all(|word| it.what.contains(word.as_str()))) {
        eprintln!("{}", operation.what);
        rows.push(race(operation, &mut peers, rounds)?);
    }
    let table = Table { machine, peers: peers.iter().map(|peer| peer.name()).collect(), rows };
    print!("{}", table.markdown());
    Ok(())
}
