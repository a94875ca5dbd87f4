//! Backups beside everything else, since the one before or not; and scrubs.
//!
//! What a backup holds is what a crash would have left when it was asked for, whatever happens while it is written.
//! One that was not acknowledged is refused: to restore from, and to make another since.

use std::io::{Cursor, Read, Write};

use super::work::{Goes, Work};
use super::*;

/// Backups in one chain, at most.
const PARTS: usize = 4;
/// Bytes that are written between two steps of the agents, about.
const PACE: u64 = 12_000;

/// What is written, while the agents go on.
struct Beside<'a> {
    work: &'a mut Work,
    written: Vec<u8>,
    next: u64,
    goes: Goes,
}

impl Write for Beside<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written.extend_from_slice(bytes);
        if matches!(self.goes, Ok(true)) && self.written.len() as u64 >= self.next {
            self.next += 1 + self.work.rng.below(PACE * 2);
            self.goes = self.work.step_beside();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn restored(parts: &[(usize, Vec<u8>)]) -> Result<World, StoreError> {
    let device = Simulated::new(parts.len() as u64);
    let mut readers: Vec<_> = parts.iter().map(|(_, it)| it.as_slice()).collect();
    let mut readers: Vec<&mut dyn Read> = readers.iter_mut().map(|it| it as &mut dyn Read).collect();
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    Store::restore_on(&shared, &mut readers, &mut |_, _, _| Ok(()))?;
    World::try_of(&try_start(&device)?)
}

impl Work {
    pub fn back_up(&mut self) -> Goes {
        let mut parts = std::mem::take(&mut self.backups);
        if parts.len() >= PARTS || self.rng.one_in(3) {
            parts.clear();
        }
        self.steps.push(format!("back up since {}", parts.len()));
        let Some(store) = self.store.clone() else { return Ok(false) };
        let asked = self.device.traced();
        let mut since = parts.last().map(|(_, it)| Cursor::new(it.clone()));
        let since = since.as_mut().map(|it| it as &mut dyn ReadSeek);
        let mut to = Beside { work: self, written: Vec::new(), next: PACE, goes: Ok(true) };
        let made = store.backup(&mut to, since, &mut |_| Ok(Vec::new()));
        drop(store);
        let Beside { written, goes, .. } = to;
        let goes = goes?;
        parts.push((self.device.traced(), written));
        match made {
            // what could not be read is not in it, and it says so
            Ok(report) if !report.damage.is_empty() => {
                let fails = matches!(self.trouble, Trouble::Fails(_));
                if fails { Ok(false) } else { Err(format!("a sound store is damaged: {:?}", report.damage)) }
            }
            Ok(_) => {
                let found = restored(&parts).map_err(|e| format!("the backup cannot be restored: {e}"))?;
                let explained = self.timeline.explain(&found, asked);
                explained.map_err(|what| format!("the backup holds something else: {what}"))?;
                self.backups = parts;
                Ok(goes)
            }
            Err(e) => {
                if restored(&parts).is_ok() {
                    return Err(format!("a backup that failed is restored: {e}"));
                }
                let mut unfinished = Cursor::new(parts.pop().unwrap_or_default().1);
                let since = &mut unfinished as &mut dyn ReadSeek;
                if self.store().backup(&mut Vec::new(), Some(since), &mut |_| Ok(Vec::new())).is_ok() {
                    return Err(format!("there is a backup since one that failed: {e}"));
                }
                self.backups = parts;
                if e.is_no_space() { Ok(false) } else { self.broken(&e) }
            }
        }
    }

    /// Reads everything again, and finds nothing.
    pub fn scrub(&mut self) -> Goes {
        let repair = self.rng.one_in(2);
        self.steps.push(format!("scrub{}", if repair { " and repair" } else { "" }));
        let mut findings = Vec::new();
        let scrubbed = self.store().scrub(repair, &mut |it| findings.push(it.clone()));
        match scrubbed {
            // a device that fails may well be found to
            _ if matches!(self.trouble, Trouble::Fails(_)) && !findings.is_empty() => Ok(false),
            _ if !findings.is_empty() => Err(format!("a sound store is damaged: {findings:?}")),
            Ok(_) => Ok(true),
            Err(e) if e.is_no_space() => Ok(false),
            Err(e) => self.broken(&e),
        }
    }
}
