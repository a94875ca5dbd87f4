//! What all that is measured can do.

use anyhow::Context;

/// A store of files in folders.
///
/// Paths are `FOLDER/FILE`. What changes files is durable when it returns; all that one call is told to do
/// shares one commit, where the store can do that.
pub trait Peer {
    /// What it is called in the table, with its version.
    fn name(&self) -> String;

    /// Makes folders, which are empty.
    fn make_folders(&mut self, folders: &[String]) -> anyhow::Result<()>;

    /// Makes files that were not there, with their content.
    fn create(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()>;

    /// Writes `content` over the beginning of a file that is no longer.
    fn overwrite(&mut self, file: &str, content: &[u8]) -> anyhow::Result<()>;

    /// Writes at the end of a file.
    fn append(&mut self, file: &str, bytes: &[u8]) -> anyhow::Result<()>;

    /// Gives files new names, which nothing had.
    fn rename(&mut self, moves: &[(String, String)]) -> anyhow::Result<()>;

    /// Removes files.
    fn remove(&mut self, files: &[String]) -> anyhow::Result<()>;

    /// Reads a whole file into `into`, whose content before is gone.
    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()>;

    /// The size of a file, by its path. Bytes.
    fn size(&mut self, file: &str) -> anyhow::Result<u64>;

    /// Tells the names of the files in a folder, in order.
    fn list(&mut self, folder: &str, name: &mut dyn FnMut(&str)) -> anyhow::Result<()>;

    /// Keeps all files as they are now, durably and to be read.
    fn snapshot(&mut self) -> anyhow::Result<Box<dyn Snapshot>>;

    /// Makes a store that begins as this one is now, is durable and goes its own way.
    fn fork(&mut self) -> anyhow::Result<Box<dyn Peer>>;

    /// Does away with a fork.
    fn discard(self: Box<Self>) -> anyhow::Result<()>;
}

/// All files as they were.
pub trait Snapshot {
    /// Reads a whole file as it was into `into`, whose content before is gone.
    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()>;

    /// Does away with it.
    fn discard(self: Box<Self>) -> anyhow::Result<()>;
}

/// A fork that is only read: the snapshot of a store that has none but copies.
pub struct Copied(pub Box<dyn Peer>);

impl Snapshot for Copied {
    fn read(&mut self, file: &str, into: &mut Vec<u8>) -> anyhow::Result<()> {
        self.0.read(file, into)
    }

    fn discard(self: Box<Self>) -> anyhow::Result<()> {
        self.0.discard()
    }
}

/// Folder and name of a path.
pub fn split(path: &str) -> anyhow::Result<(&str, &str)> {
    path.split_once('/').with_context(|| format!("{path} is not FOLDER/FILE"))
}

/// The version of a package that this program was built with.
pub fn version(package: &str) -> &'static str {
    const LOCK: &str = include_str!("../Cargo.lock");
    let after = LOCK.split_once(&format!("name = \"{package}\"\nversion = \"")).map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).unwrap_or("of unknown version")
}
