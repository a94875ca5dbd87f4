//! Whether what was written is anywhere in a store's files.

use std::collections::HashMap;

use super::*;
use crate::device::Caching;

/// Bytes of a needle. What does not compress is stored as it is, so that these are found in it.
const NEEDLE: usize = 24;
/// Bits of a number that says which beginnings there are.
const BITS: u32 = 16;

pub type Needle = [u8; NEEDLE];

/// Pieces of content that tell where it is.
#[derive(Clone, Debug, Default)]
pub struct Needles {
    by_beginning: HashMap<u64, Vec<Needle>>,
}

fn beginning(needle: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&needle[..8]);
    u64::from_le_bytes(bytes)
}

fn bit(beginning: u64) -> usize {
    (beginning.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

impl Needles {
    /// Adds a few of what does not compress.
    pub fn add(&mut self, content: &[u8]) {
        let Some(last) = content.len().checked_sub(NEEDLE) else { return };
        for at in [0, last / 2, last] {
            let mut needle = [0; NEEDLE];
            needle.copy_from_slice(&content[at..at + NEEDLE]);
            let known = self.by_beginning.entry(beginning(&needle)).or_default();
            if !known.contains(&needle) {
                known.push(needle);
            }
        }
    }

    /// These, but for those that are among `others`.
    #[must_use]
    pub fn without(&self, others: &BTreeSet<Needle>) -> Self {
        let mut left = self.clone();
        left.by_beginning.retain(|_, needles| {
            needles.retain(|it| !others.contains(it));
            !needles.is_empty()
        });
        left
    }

    /// Looks for them in content that `all` calls with.
    pub fn found(&self, all: impl FnOnce(&mut dyn FnMut(&[u8]))) -> BTreeSet<Needle> {
        let mut filter = vec![false; 1 << BITS];
        self.by_beginning.keys().for_each(|it| filter[bit(*it)] = true);
        let mut found = BTreeSet::new();
        all(&mut |bytes| {
            let Some(last) = bytes.len().checked_sub(NEEDLE) else { return };
            let mut window = 0;
            for (at, byte) in bytes.iter().enumerate() {
                window = window >> 8 | u64::from(*byte) << 56;
                if at < 7 || !filter[bit(window)] || at - 7 > last {
                    continue;
                }
                let here = &bytes[at - 7..at - 7 + NEEDLE];
                let known = self.by_beginning.get(&window).into_iter().flatten();
                found.extend(known.filter(|it| it[..] == *here));
            }
        });
        found
    }

    /// The files of a device in which any of them is, and which.
    pub fn found_on(&self, device: &Simulated) -> Vec<String> {
        let mut files = contents_of(device);
        if self.found(|each| files.iter().for_each(|(_, bytes)| each(bytes))).is_empty() {
            return Vec::new();
        }
        files.retain(|(_, bytes)| !self.found(|each| each(bytes)).is_empty());
        let said = |(path, bytes): (String, Vec<u8>)| {
            let found = self.found(|each| each(&bytes));
            let at = |needle: &Needle| bytes.windows(NEEDLE).position(|it| it == needle).unwrap_or_default();
            format!("{path} at {:?}", found.iter().map(at).collect::<Vec<_>>())
        };
        files.into_iter().map(said).collect()
    }
}

/// The files of a store on a device, and what is in them.
pub fn contents_of(device: &Simulated) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for folder in ["", "log", "segments"] {
        for name in device.list(folder).unwrap() {
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let Ok(file) = device.open(&path, Caching::Cached) else { continue };
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(0, &mut bytes).unwrap();
            files.push((path, bytes));
        }
    }
    files
}

#[test]
fn needles_are_found_wherever_they_are() {
    let mut needles = Needles::default();
    let (one, two) = (content(1, 300), content(2, NEEDLE));
    needles.add(&one);
    needles.add(&two);
    needles.add(b"too short to tell");
    let all = [&content(3, 100)[..], &one[200..], &content(4, 7), &two, b"end"].concat();
    let found = needles.found(|each| each(&all));
    assert_eq!(found.len(), 2, "the last of the one, and the other");
    let left = needles.without(&found);
    assert!(left.found(|each| each(&all)).is_empty());
    assert_eq!(left.found(|each| each(&one)).len(), 2);
    let device = Simulated::new(1);
    let file = device.create("log/1", 0, Caching::Cached).unwrap();
    file.write_at(0, &[&[0; 4000][..], &two].concat()).unwrap();
    assert_eq!(needles.found_on(&device), ["log/1 at [4000]"]);
    assert!(left.found_on(&device).is_empty());
}
