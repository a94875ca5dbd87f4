//! The pages of a flat file that a guest may have used are checked before anything of what it did is kept.
//!
//! Mapping a file reads nothing, so that a resume costs the same whatever there is. At the end of what a guest does, the
//! system tells which pages of the mapping it can have seen: those that are present, or were copied as it wrote to them.
//! Each of them is read and compared with the file's table of checksums, once for as long as the file is open.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::checks::Checks;
use super::store::{FlatFile, lock};
use super::{ImageError, PAGE};

/// Pages that are read at once.
const BATCH: usize = 64;
const BITS: usize = u64::BITS as usize;

/// The pages of a file that have been checked.
#[derive(Debug, Default)]
pub(super) struct Checked(Mutex<Option<Arc<Known>>>);

#[derive(Debug)]
struct Known {
    /// None where the file has no table.
    checks: Option<Checks>,
    /// A bit for each page of all memories.
    done: Box<[AtomicU64]>,
}

impl Known {
    /// The first of these pages that have not been checked, counted through all memories; at most [`BATCH`].
    fn next(&self, pages: Range<usize>) -> Option<Range<usize>> {
        let mut at = pages.start;
        while at < pages.end {
            let word = self.done.get(at / BITS)?.load(Ordering::Acquire) >> (at % BITS);
            match word.trailing_ones() as usize {
                0 => break,
                // zeros were shifted in: what lies in the next word is not told
                ones => at += ones.min(BITS - at % BITS),
            }
        }
        let is_open = |page: &usize| {
            let word = self.done.get(page / BITS);
            word.is_some_and(|word| word.load(Ordering::Acquire) & (1 << (page % BITS)) == 0)
        };
        let end = (at..pages.end.min(at + BATCH)).take_while(is_open).last()? + 1;
        Some(at..end)
    }

    fn note(&self, pages: Range<usize>) {
        for page in pages {
            if let Some(word) = self.done.get(page / BITS) {
                word.fetch_or(1 << (page % BITS), Ordering::AcqRel);
            }
        }
    }
}

impl FlatFile {
    fn known(&self) -> Result<Arc<Known>, ImageError> {
        let mut known = lock(&self.checked.0);
        if let Some(known) = known.as_ref() {
            return Ok(known.clone());
        }
        let words = (self.header.pages() as usize).div_ceil(BITS);
        let done = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(known.insert(Arc::new(Known { checks: Checks::read(self)?, done })).clone())
    }

    /// Checks those of these pages of memory `memory`, by index, that have not been checked since the file was opened; all
    /// of them are in order, and `but` is not checked.
    pub fn check_once(
        &self,
        memory: usize,
        pages: &[Range<usize>],
        but: &[Range<usize>],
    ) -> Result<(), ImageError> {
        let known = self.known()?;
        let Some(checks) = &known.checks else { return Ok(()) };
        let start = checks.start(memory);
        let mut buffer = vec![0; BATCH * PAGE];
        for range in pages.iter().flat_map(|range| without(range, but)) {
            let mut rest = start + range.start..start + range.end;
            while let Some(run) = known.next(rest.clone()) {
                let content = &mut buffer[..run.len() * PAGE];
                self.read_pages(memory, run.start - start, content)?;
                checks.check(self, memory, run.start - start, content)?;
                rest.start = run.end;
                known.note(run);
            }
        }
        Ok(())
    }

    /// Reads what an instance gets of memory `memory` from page `page` on.
    fn read_pages(&self, memory: usize, page: usize, into: &mut [u8]) -> Result<(), ImageError> {
        let at = page * PAGE;
        if let Some(small) = self.small(memory) {
            let content = small.get(at..).unwrap_or_default();
            let part = content.len().min(into.len());
            into.fill(0);
            into[..part].copy_from_slice(&content[..part]);
            return Ok(());
        }
        let place = self.header.memories.get(memory).map_or(0, |place| place.offset);
        self.file.read_exact_at(into, place + at as u64).map_err(|e| ImageError::Damaged {
            file: self.name.to_string(),
            reason: format!("a page of it could not be read: {e}"),
        })
    }
}

/// What is left of a range without others, which are in order.
fn without(range: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let first = others.partition_point(|other| other.end <= range.start);
    let mut rest = range.clone();
    let mut left = Vec::new();
    for other in others[first..].iter().take_while(|other| other.start < range.end) {
        left.push(rest.start..other.start.max(rest.start));
        rest.start = other.end;
    }
    left.push(rest);
    left.retain(|part| part.start < part.end);
    left
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]
mod tests {
    use std::fs::File;

    use uuid::Uuid;

    use super::*;
    use crate::image::{FlatName, ImageStore};

    #[test]
    fn ranges_are_left_without_others() {
        let others = [2..4, 6..7, 9..20];
        for (range, left) in [
            (0..2, vec![0..2]),
            (0..10, vec![0..2, 4..6, 7..9]),
            (3..7, vec![4..6]),
            (10..15, vec![]),
            (18..22, vec![20..22]),
        ] {
            assert_eq!(without(&range, &others), left);
        }
        assert_eq!(without(&(3..5), &[]), vec![3..5]);
    }

    #[test]
    fn pages_are_checked_once_and_only_where_somebody_has_been() {
        let folder = tempfile::tempdir().unwrap();
        let images = ImageStore::open(folder.path()).unwrap();
        let name = FlatName::Generation(Uuid::nil(), 1);
        let lengths = [65536, 40 << 16];
        let content = [7; PAGE];
        images.write_flat(&name, &lengths, None, &[(0, 3, &content), (1, 200, &content)]).unwrap();
        let base = images.flat_image(&name).unwrap().base;
        let rot = |memory: usize, page: u64, with: &[u8]| {
            let file = File::options().write(true).open(images.path(&name)).unwrap();
            file.write_all_at(with, base.header.memories[memory].offset + page * PAGE as u64 + 9).unwrap();
        };
        // one that had content, and one that was a hole
        rot(1, 200, b"rot");
        rot(1, 2, b"rot");
        base.check_once(0, &[0..16], &[]).unwrap();
        base.check_once(1, &[0..2, 3..200, 201..640], &[]).unwrap();
        for (page, range) in [(2, 0..16), (200, 130..640)] {
            let told = base.check_once(1, &[range], &[]).unwrap_err().to_string();
            assert!(told.contains(&format!("page {page} of memory 1 does not match")), "{told}");
        }
        // what was laid over them is not theirs
        base.check_once(1, &[0..640], &[1..3, 200..201]).unwrap();
        rot(1, 200, &[7; 3]);
        base.check_once(1, &[130..640], &[]).unwrap();
        rot(1, 200, b"rot");
        base.check_once(1, &[130..640], &[]).unwrap();
        // whoever opens it anew looks at it anew
        let anew = images.afresh().flat_image(&name).unwrap().base;
        assert!(anew.check_once(1, &[130..640], &[]).is_err());
        let small = FlatName::Generation(Uuid::nil(), 2);
        images.write_flat(&small, &[65536], None, &[(0, 0, &content)]).unwrap();
        let file = File::options().write(true).open(images.path(&small)).unwrap();
        file.write_all_at(b"rot", PAGE as u64 + 9).unwrap();
        let base = images.flat_image(&small).unwrap().base;
        assert!(base.small(0).is_some(), "it is copied in");
        assert!(base.check_once(0, &[0..16], &[]).is_err(), "what was copied is looked at");
    }
}
