//! Where the agent's files lie, and how each zone is written to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};

/// What happened. Append-only: nothing in it can be changed, not even by this agent.
pub const JOURNAL: &str = "/memory/episodic/journal.log";
/// What is known. Each time it is replaced, the earlier state is kept by the zone.
pub const NOTES: &str = "/memory/semantic/notes.txt";
const NOTES_NEW: &str = "/memory/semantic/notes.txt.new";
/// What has been learned to do.
pub const HOW_TO: &str = "/memory/procedural/how-to-note.txt";
/// What is being worked on.
pub const WORKSPACE: &str = "/workspace";
/// The draft in the workspace.
pub const DRAFT: &str = "/workspace/draft.txt";
/// The agent's part of the audit trail.
pub const LOG: &str = "/logs/notes.log";

/// Opens a file to append to it, and creates it when it is missing.
pub fn appender(path: &str) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Appends one line to a file.
pub fn append_line(path: &str, line: &str) -> io::Result<()> {
    writeln!(appender(path)?, "{line}")
}

/// Replaces the list of notes as editors do: a new file, then a rename over the old one.
pub fn replace_notes(notes: &[String]) -> io::Result<()> {
    let mut text = notes.join("\n");
    text.push('\n');
    fs::write(NOTES_NEW, text)?;
    fs::rename(NOTES_NEW, NOTES)
}

/// Writes down, the first time, how a note is kept.
pub fn learn_how_to() -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(HOW_TO) {
        Ok(mut file) => file.write_all(b"append to the journal, then replace the list\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The number of lines in a file; zero where there is none.
pub fn count_lines(path: &str) -> io::Result<usize> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().count()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
