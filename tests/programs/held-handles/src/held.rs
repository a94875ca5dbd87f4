//! The handles, and what each has to do turn after turn.

use std::collections::BTreeSet;
use std::error::Error;

use test_programs::{Checks, Outcome, holds, preopen, same};
use wasip2::clocks::monotonic_clock;
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, DirectoryEntryStream, ErrorCode, OpenFlags, PathFlags,
};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::{InputStream, OutputStream};

/// The folder in the workspace where all of it lies.
const FOLDER: &str = "held";
/// What is read from, two bytes a turn.
const TEXT: &[u8] = b"The dormouse slept through it all, and told the story afterwards.";
/// Names in the folder that is listed, and how many are taken a turn.
const NAMES: usize = 40;
const NAMES_A_TURN: usize = 6;
const STEP: usize = 2;

/// One handle of every kind.
pub struct Held {
    turn: usize,
    folder: Descriptor,
    reader: Descriptor,
    writer: Descriptor,
    unlinked: Descriptor,
    renamed: Descriptor,
    input: InputStream,
    output: OutputStream,
    append: OutputStream,
    listing: DirectoryEntryStream,
    listed: BTreeSet<String>,
    stdin: InputStream,
    stdout: OutputStream,
    past: Pollable,
    far: Pollable,
    stdin_ready: Pollable,
}

impl Held {
    /// Opens everything, in a folder that it makes.
    pub fn open() -> Result<Self, Box<dyn Error>> {
        let both = DescriptorFlags::READ | DescriptorFlags::WRITE;
        let change = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
        let workspace = preopen("/workspace")?;
        workspace.create_directory_at(FOLDER)?;
        let folder = workspace.open_at(PathFlags::empty(), FOLDER, OpenFlags::DIRECTORY, change)?;
        let make = |name: &str, content: &[u8]| -> Result<Descriptor, ErrorCode> {
            let open = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
            let file = folder.open_at(PathFlags::empty(), name, open, both)?;
            file.write(content, 0)?;
            Ok(file)
        };
        // A hole in the table of handles, as a program that opens and closes leaves it.
        drop(make("closed", b"")?);
        drop(make("text", TEXT)?);
        let reader = folder.open_at(PathFlags::empty(), "text", OpenFlags::empty(), DescriptorFlags::READ)?;
        let writer = make("written", b"")?;
        let unlinked = make("unlinked", TEXT)?;
        folder.unlink_file_at("unlinked")?;
        let renamed = make("old-name", TEXT)?;
        folder.rename_at("old-name", &folder, "new-name")?;
        let input = reader.read_via_stream(STEP as u64)?;
        let output = writer.write_via_stream(0)?;
        let append = make("appended", b"start;")?.append_via_stream()?;
        folder.create_directory_at("names")?;
        for number in 0..NAMES {
            drop(make(&format!("names/name-{number}"), b"")?);
        }
        let names =
            folder.open_at(PathFlags::empty(), "names", OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
        let listing = names.read_directory()?;
        let stdin = wasip2::cli::stdin::get_stdin();
        let stdin_ready = stdin.subscribe();
        Ok(Self {
            turn: 0,
            folder,
            reader,
            writer,
            unlinked,
            renamed,
            input,
            output,
            append,
            listing,
            listed: BTreeSet::new(),
            stdin,
            stdout: wasip2::cli::stdout::get_stdout(),
            past: monotonic_clock::subscribe_duration(1),
            far: monotonic_clock::subscribe_duration(u64::MAX / 2),
            stdin_ready,
        })
    }

    /// Goes on with every handle by one step.
    pub fn go_on(&mut self) -> Checks {
        let mut checks = Checks::collecting();
        let turn = self.turn;
        self.turn += 1;
        checks.check("a descriptor keeps its file and its rights", || self.descriptors());
        checks.check("an input stream goes on where it stood", || {
            let at = (STEP + turn * STEP).min(TEXT.len());
            let want = &TEXT[at..(at + STEP).min(TEXT.len())];
            let got = self.input.blocking_read(STEP as u64).unwrap_or_default();
            same(got.as_slice(), want)
        });
        checks.check("an output stream goes on where it stood", || {
            self.output.blocking_write_and_flush(b"##")?;
            same(&self.writer.stat()?.size, &((turn as u64 + 1) * 2))
        });
        checks.check("an append stream appends, though its descriptor is gone", || {
            self.append.blocking_write_and_flush(b"more;")?;
            let size = self.folder.stat_at(PathFlags::empty(), "appended")?.size;
            same(&size, &(6 + (turn as u64 + 1) * 5))
        });
        checks.check("an unlinked file can be read and written", || {
            same(&self.unlinked.stat()?.link_count, &0)?;
            let at = (TEXT.len() + turn) as u64;
            self.unlinked.write(b"!", at)?;
            let (content, _) = self.unlinked.read(1000, 0)?;
            holds(content.starts_with(TEXT), "the content has changed")?;
            same(&content.len(), &(TEXT.len() + turn + 1))
        });
        checks.check("a folder's descriptor makes files", || {
            let name = format!("turn-{turn}");
            let open = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
            drop(self.folder.open_at(PathFlags::empty(), &name, open, DescriptorFlags::WRITE)?);
            std::fs::metadata(format!("/workspace/{FOLDER}/{name}")).map(drop).map_err(Into::into)
        });
        let (listing, listed) = (&self.listing, &mut self.listed);
        checks.check("a listing goes on, with no name left out or told twice", || list(listing, listed));
        checks.check("standard streams stay", || {
            self.stdout.blocking_write_and_flush(b"still here\n")?;
            // What the input answers is the host's affair; the handle has to be good.
            _ = self.stdin.read(1);
            Ok(())
        });
        checks.check("pollables stay", || {
            self.past.block();
            holds(self.past.ready(), "what is past is not ready")?;
            holds(!self.far.ready(), "what is far off is ready")?;
            let ready = poll(&[&self.far, &self.past, &self.stdin_ready]);
            holds(ready.contains(&1) && !ready.contains(&0), "poll tells the wrong ones")
        });
        checks
    }

    fn descriptors(&self) -> Outcome {
        same(&self.reader.get_flags()?, &DescriptorFlags::READ)?;
        holds(self.reader.write(b"x", 0).is_err(), "a read-only descriptor was written")?;
        same(self.reader.read(1000, 0)?.0.as_slice(), TEXT)?;
        let moved =
            self.folder.open_at(PathFlags::empty(), "new-name", OpenFlags::empty(), DescriptorFlags::READ)?;
        holds(self.renamed.is_same_object(&moved), "the renamed file is another")?;
        holds(!self.renamed.is_same_object(&self.reader), "two files are one")
    }
}

/// Takes some names more.
fn list(listing: &DirectoryEntryStream, listed: &mut BTreeSet<String>) -> Outcome {
    for _ in 0..NAMES_A_TURN {
        match listing.read_directory_entry()? {
            Some(entry) => holds(listed.insert(entry.name), "a name came twice")?,
            None => return same(&listed.len(), &NAMES),
        }
    }
    Ok(())
}
