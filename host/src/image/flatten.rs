//! Flat files: one file that can be mapped whole.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use zone_vfs::device::open_regular;

use super::format::{self, FlatHeader};
use super::reference::{ChangedPage, FlatName};
use super::store::{FlatFile, Image, ImageStore};
use super::{ImageError, PAGE};

/// A page to be laid over the base: memory, page and content.
pub(super) type Page<'a> = (u16, u32, &'a [u8; PAGE]);

impl ImageStore {
    /// Writes the flat file `name`: memories of `lengths` bytes with what `base` holds, `pages` laid
    /// over it. The file appears whole and durable, or not at all.
    pub(super) fn write_flat<'a>(
        &self,
        name: &FlatName,
        lengths: &[u64],
        base: Option<&FlatFile>,
        source: Option<[u8; 32]>,
        pages: impl Iterator<Item = Result<Page<'a>, ImageError>>,
    ) -> Result<(), ImageError> {
        let header = FlatHeader::of(lengths, source);
        self.write_whole(name, &header, |file| {
            if let Some(base) = base {
                for (from, to) in base.header.memories.iter().zip(&header.memories) {
                    copy_data(&base.file, from.offset, file, to.offset, from.len.min(to.len))
                        .map_err(Self::io(name))?;
                }
            }
            for page in pages {
                let (memory, page, content) = page?;
                let at = header.memories[usize::from(memory)].offset + u64::from(page) * PAGE as u64;
                file.write_all_at(content, at).map_err(Self::io(name))?;
            }
            Ok(())
        })
    }

    /// Writes the flat file `name` with what `fill` puts behind the header. The file appears whole and durable,
    /// or not at all.
    pub(super) fn write_whole(
        &self,
        name: &FlatName,
        header: &FlatHeader,
        fill: impl FnOnce(&File) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        // several may make one file: a fork makes again what it shares with its parent
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let temporary = format!("{name}.{}.tmp", WRITERS.fetch_add(1, Ordering::Relaxed));
        let path = self.path(&temporary);
        let written = (|| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true).mode(0o600);
            let file = open_regular(&path, &options).map_err(Self::io(&temporary))?;
            let page = format::encode(format::FLAT, header)
                .map_err(|reason| ImageError::Damaged { file: name.to_string(), reason })?;
            file.set_len(header.file_len()).map_err(Self::io(&temporary))?;
            file.write_all_at(&page, 0).map_err(Self::io(&temporary))?;
            fill(&file)?;
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

    /// Makes a flat file `name` of an image that has changed pages. It is the same image.
    pub fn flatten(&self, image: &Image, name: &FlatName) -> Result<(), ImageError> {
        let pages = image.reference.pages.iter().map(|p| Ok((p.memory, p.page, image.changed(p)?)));
        let source = image
            .reference
            .digest()
            .map_err(|reason| ImageError::Damaged { file: name.to_string(), reason })?;
        self.write_flat(name, &image.reference.memories, Some(&image.base), Some(source), pages)
    }
}

impl Image {
    /// The content of a changed page, checked.
    pub(super) fn changed(&self, page: &ChangedPage) -> Result<&[u8; PAGE], ImageError> {
        static ZEROS: [u8; PAGE] = [0; PAGE];
        if page.slot == ChangedPage::ZERO {
            return Ok(&ZEROS);
        }
        let file = &self.files[usize::from(page.file)];
        let content = file.page(page.slot)?;
        if crc32fast::hash(content) != page.check {
            return Err(ImageError::Damaged {
                file: file.name.to_string(),
                reason: format!("page {} does not match its checksum", page.slot),
            });
        }
        Ok(content)
    }
}

/// Copies the data between holes.
fn copy_data(from: &File, mut at: u64, to: &File, target: u64, len: u64) -> std::io::Result<()> {
    let (start, end) = (at, at + len);
    while at < end {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) if data < end => data,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data))?.min(end);
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
