//! Flat files: one file that can be mapped whole.
//!
//! A file appears by a rename once all of it is durable and every page has been checked: what was copied from another
//! flat file, and what was laid over it, against the checksums that both had.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use zone_vfs::device::open_regular;

use super::checks::{self, Checks, next_data};
use super::format::{self, FlatHeader, PageRun};
use super::reference::{ChangedPage, FlatName, runs};
use super::store::{FlatFile, Image, ImageStore};
use super::{ImageError, PAGE};

/// A page of a memory, by index, and its content.
pub(super) type Page<'a> = (u16, u32, &'a [u8; PAGE]);

/// Runs of pages that a header remembers as written, at most.
const MAX_RUNS: usize = 128;
/// Pages in them, at most: 2 MiB.
const MAX_WRITTEN: u32 = 512;

impl ImageStore {
    /// Writes the flat file `name`: memories of `lengths` bytes with what the file beneath `base` holds, `pages`, which
    /// are in order, laid over it. The file appears whole and durable, or not at all.
    pub(super) fn write_flat(
        &self,
        name: &FlatName,
        lengths: &[u64],
        base: Option<&Image>,
        pages: &[Page<'_>],
    ) -> Result<(), ImageError> {
        let laid = |&(memory, page, content): &Page<'_>| ChangedPage {
            memory,
            page,
            file: 0,
            slot: 0,
            check: crc32fast::hash(content),
        };
        let fill = |file: &File, header: &FlatHeader| {
            if let Some(base) = base {
                copy_base(&base.base, file, header).map_err(Self::io(name))?;
            }
            pages.iter().try_for_each(|(memory, page, content)| {
                write_page(file, header, *memory, *page, content).map_err(Self::io(name))
            })
        };
        self.write_checked(name, FlatHeader::of(lengths, None, Vec::new()), fill, |found| match base {
            Some(base) => as_wanted(found, base, &pages.iter().map(laid).collect::<Vec<_>>()),
            None => Ok(()),
        })
    }

    /// Writes the flat file `name` with what `fill` puts behind the header. The file appears whole and durable,
    /// or not at all.
    pub(super) fn write_whole(
        &self,
        name: &FlatName,
        header: FlatHeader,
        fill: impl FnOnce(&File, &FlatHeader) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        self.write_checked(name, header, fill, |_| Ok(()))
    }

    /// As [`write_whole`](Self::write_whole); `check` is asked whether the file's pages are as they should be.
    fn write_checked(
        &self,
        name: &FlatName,
        mut header: FlatHeader,
        fill: impl FnOnce(&File, &FlatHeader) -> Result<(), ImageError>,
        check: impl FnOnce(&Checks) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        // several may make one file: a fork makes again what it shares with its parent
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let temporary = format!("{name}.{}.tmp", WRITERS.fetch_add(1, Ordering::Relaxed));
        let path = self.path(&temporary);
        let written = (|| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true).mode(0o600);
            let file = open_regular(&path, &options).map_err(Self::io(&temporary))?;
            header.checks = Some([0; 32]);
            file.set_len(header.file_len()).map_err(Self::io(&temporary))?;
            fill(&file, &header)?;
            let checks = Checks::of(&file, &header).map_err(Self::io(&temporary))?;
            check(&checks)?;
            header.checks = Some(checks.write(&file, &header).map_err(Self::io(&temporary))?);
            let page = format::encode(&header)
                .map_err(|reason| ImageError::Damaged { file: name.to_string(), reason })?;
            file.write_all_at(&page, 0).map_err(Self::io(&temporary))?;
            file.sync_all().map_err(Self::io(&temporary))?;
            std::fs::rename(&path, self.path(name)).map_err(Self::io(name))?;
            self.renewed(name);
            self.sync_folder()
        })();
        if written.is_err()
            && let Err(e) = std::fs::remove_file(&path)
        {
            tracing::debug!("removing {temporary}: {e}");
        }
        written
    }

    /// Makes a flat file `name` of an image that has changed pages. It is the same image: a page of either file that
    /// does not match its checksum is an error, and nothing is made.
    pub fn flatten(&self, image: &Image, name: &FlatName) -> Result<(), ImageError> {
        let reference = &image.reference;
        let damaged = |reason| ImageError::Damaged { file: name.to_string(), reason };
        let source = reference.digest().map_err(damaged)?;
        let header = FlatHeader::of(&reference.memories, Some(source), written(&reference.pages));
        let fill = |file: &File, header: &FlatHeader| {
            copy_base(&image.base, file, header).map_err(Self::io(name))?;
            image.read_changed(&reference.pages, |page, content| {
                write_page(file, header, page.memory, page.page, content).map_err(Self::io(name))
            })
        };
        self.write_checked(name, header, fill, |found| as_wanted(found, image, &reference.pages))
    }
}

/// Refuses pages other than those of the file beneath `base`, with `changed` laid over them.
fn as_wanted(found: &Checks, base: &Image, changed: &[ChangedPage]) -> Result<(), ImageError> {
    let wanted = Checks::read(&base.base)?;
    match wanted.and_then(|wanted| found.find_other(&wanted, changed)) {
        Some((memory, page)) => Err(checks::damaged(&base.base, memory, page)),
        None => Ok(()),
    }
}

/// The pages that a flat image of these changed pages remembers as written.
pub(crate) fn written(pages: &[ChangedPage]) -> Vec<PageRun> {
    let mut left = MAX_WRITTEN;
    let bounded = runs(pages).take(MAX_RUNS).map_while(|run| {
        let count = run.count.min(left);
        left -= count;
        (count > 0).then_some(PageRun { count, ..run })
    });
    bounded.collect()
}

fn write_page(
    file: &File,
    header: &FlatHeader,
    memory: u16,
    page: u32,
    content: &[u8; PAGE],
) -> std::io::Result<()> {
    let memory = header.memories.get(usize::from(memory)).ok_or(std::io::ErrorKind::InvalidData)?;
    file.write_all_at(content, memory.offset + u64::from(page) * PAGE as u64)
}

/// Copies what the memories of one flat file hold into another.
fn copy_base(base: &FlatFile, file: &File, header: &FlatHeader) -> std::io::Result<()> {
    base.header
        .memories
        .iter()
        .zip(&header.memories)
        .try_for_each(|(from, to)| copy_data(&base.file, from.offset, file, to.offset, from.len.min(to.len)))
}

/// Copies the data between holes.
fn copy_data(from: &File, mut at: u64, to: &File, target: u64, len: u64) -> std::io::Result<()> {
    let (start, end) = (at, at + len);
    while let Some((data, hole)) = next_data(from, at, end)? {
        let (mut source, mut sink) = (data, target + (data - start));
        while source < hole {
            let left = (hole - source) as usize;
            let copied = match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut sink), left)
            {
                Ok(copied) => copied,
                Err(
                    rustix::io::Errno::XDEV
                    | rustix::io::Errno::NOSYS
                    | rustix::io::Errno::OPNOTSUPP
                    | rustix::io::Errno::INVAL,
                ) => {
                    let mut buffer = vec![0u8; left.min(1 << 20)];
                    from.read_exact_at(&mut buffer, source)?;
                    to.write_all_at(&buffer, sink)?;
                    source += buffer.len() as u64;
                    sink += buffer.len() as u64;
                    buffer.len()
                }
                Err(e) => return Err(e.into()),
            };
            if copied == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        at = hole;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LENGTHS: [u64; 2] = [65536, 131_072];

    fn name(number: u64) -> FlatName {
        FlatName::Generation(Uuid::nil(), number)
    }

    /// Changes a byte of a page.
    fn rot(images: &ImageStore, name: &FlatName, memory: usize, page: u64) {
        let file = File::options().read(true).write(true).open(images.path(name)).unwrap();
        let header: FlatHeader = format::read(&file, "x").unwrap();
        file.write_all_at(b"rot", header.memories[memory].offset + page * PAGE as u64 + 7).unwrap();
    }

    #[test]
    fn a_page_that_has_rotted_goes_into_no_other_file_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let images = ImageStore::open(folder.path()).unwrap();
        let (one, other) = ([1; PAGE], [2; PAGE]);
        images.write_flat(&name(0), &LENGTHS, None, &[(0, 3, &one), (1, 9, &other)]).unwrap();
        // a page that is written and one that was never
        for (rotten, memory, page) in [(1, 0, 3), (2, 1, 10)] {
            images
                .write_flat(&name(rotten), &LENGTHS, Some(&images.flat_image(&name(0)).unwrap()), &[])
                .unwrap();
            let image = images.flat_image(&name(rotten)).unwrap();
            image.check_pages().unwrap();
            rot(&images, &name(rotten), memory, page);
            let told = format!("page {page} of memory {memory} does not match its checksum");
            let is_told = |e: ImageError| {
                assert!(e.to_string().contains(&told) && e.file() == Some(&name(rotten).to_string()), "{e}");
            };
            is_told(image.check_pages().unwrap_err());
            is_told(images.write_flat(&name(10 + rotten), &LENGTHS, Some(&image), &[]).unwrap_err());
            assert!(!images.has_flat(&name(10 + rotten)));
            let mut chunk = vec![0; 16 << 10];
            let mut reader = image.reader().unwrap();
            let read = (0..12).try_for_each(|index| {
                chunk.fill(0);
                reader.fill(index, &mut chunk).map(drop)
            });
            assert!(read.unwrap_err().to_string().contains(&told));
            // unless another takes its place
            images
                .write_flat(&name(10 + rotten), &LENGTHS, Some(&image), &[(memory as u16, page as u32, &one)])
                .unwrap();
            images.flat_image(&name(10 + rotten)).unwrap().check_pages().unwrap();
            std::fs::remove_file(images.path(name(10 + rotten))).unwrap();
        }
    }

    #[test]
    fn a_table_of_checksums_that_has_rotted_is_named_too() {
        let folder = tempfile::tempdir().unwrap();
        let images = ImageStore::open(folder.path()).unwrap();
        images.write_flat(&name(0), &LENGTHS, None, &[(0, 3, &[1; PAGE])]).unwrap();
        let image = images.flat_image(&name(0)).unwrap();
        let file = File::options().write(true).open(images.path(name(0))).unwrap();
        file.write_all_at(b"rot", image.base.header.table() + 50).unwrap();
        let e = image.check_pages().unwrap_err();
        assert!(e.to_string().contains("its table of checksums does not match its digest"), "{e}");
    }

    #[test]
    fn pages_that_were_written_are_remembered_within_bounds() {
        let page = |memory, page| ChangedPage { memory, page, file: 0, slot: 0, check: 0 };
        let run = |memory, page, count| PageRun { memory, page, count };
        assert_eq!(written(&[page(0, 4), page(0, 5), page(1, 6)]), [run(0, 4, 2), run(1, 6, 1)]);
        let long: Vec<_> = (0..MAX_WRITTEN + 9).map(|at| page(0, at)).collect();
        assert_eq!(written(&long), [run(0, 0, MAX_WRITTEN)]);
        let many: Vec<_> = (0..1000).map(|at| page(0, 2 * at)).collect();
        assert_eq!(written(&many).len(), MAX_RUNS);
        let header = FlatHeader::of(&[65536; 100], Some([1; 32]), written(&many));
        format::encode(&FlatHeader { checks: Some([1; 32]), ..header }).unwrap();
    }
}
