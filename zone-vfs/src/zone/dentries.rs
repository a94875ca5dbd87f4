//! Directory entries that were looked up lately, so that a path which is followed again costs no search of the tree.
//!
//! It is the tree's answer and no other: whoever changes an entry in the tree, or the tree as a whole, forgets it here.
//! Each place in the table has one entry, and a newer one takes it: names that a guest makes up to fall on one place
//! cost it what a search costs, and nobody else.

use crate::id::Inode;
use crate::tree::{FileKind, Name};

/// Places of a table that has just been begun, and of one that has grown.
const FEWEST: usize = 16;
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Dentries {
    places: Vec<Option<Dentry>>,
    /// How many entries another has taken the place of since the table has grown.
    displaced: usize,
}

struct Dentry {
    directory: Inode,
    name: Name,
    target: (Inode, FileKind),
}

impl Dentry {
    fn is(&self, directory: Inode, name: &[u8]) -> bool {
        self.directory == directory && self.name.as_bytes() == name
    }
}

impl Dentries {
    fn place(&self, directory: Inode, name: &[u8]) -> usize {
        // both halves of the product: as wyhash does (Wang Yi, 2019)
        let mix = |word: u64| {
            let product = u128::from(word ^ 0xe703_7ed1_a0b4_28db) * 0xa076_1d64_78bd_642f;
            product as u64 ^ (product >> 64) as u64
        };
        let mut word = directory.0;
        for part in name.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            word = mix(word ^ u64::from_le_bytes(bytes));
        }
        word as usize & (self.places.len() - 1)
    }

    /// What the entry stands for, where that is known.
    #[inline]
    pub(super) fn get(&self, directory: Inode, name: &[u8]) -> Option<(Inode, FileKind)> {
        if self.places.is_empty() {
            return None;
        }
        let dentry = self.places[self.place(directory, name)].as_ref()?;
        dentry.is(directory, name).then_some(dentry.target)
    }

    /// Notes what the tree has under an entry.
    pub(super) fn note(&mut self, directory: Inode, name: &Name, target: (Inode, FileKind)) {
        if self.places.is_empty() || (self.displaced >= self.places.len() && self.places.len() < MOST) {
            self.grow();
        }
        let place = self.place(directory, name.as_bytes());
        let before = self.places[place].replace(Dentry { directory, name: name.clone(), target });
        self.displaced += usize::from(before.is_some_and(|it| !it.is(directory, name.as_bytes())));
    }

    fn grow(&mut self) {
        let len = (self.places.len() * 2).max(FEWEST);
        let before = std::mem::take(self);
        self.places.resize_with(len, || None);
        for dentry in before.places.into_iter().flatten() {
            let place = self.place(dentry.directory, dentry.name.as_bytes());
            self.places[place] = Some(dentry);
        }
    }

    /// The tree has something else under the entry now.
    pub(super) fn forget(&mut self, directory: Inode, name: &Name) {
        if !self.places.is_empty() {
            let place = self.place(directory, name.as_bytes());
            self.places[place].take_if(|dentry| dentry.is(directory, name.as_bytes()));
        }
    }

    /// The tree is another one.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> Name {
        Name::new(format!("name-{number}").as_bytes()).unwrap()
    }

    #[test]
    fn what_is_known_of_an_entry_is_what_was_noted_last() {
        let mut dentries = Dentries::default();
        let (one, other) = ((Inode(7), FileKind::Regular), (Inode(8), FileKind::Directory));
        assert_eq!(dentries.get(Inode::ROOT, b"name-1"), None);
        dentries.forget(Inode::ROOT, &name(1));
        dentries.note(Inode::ROOT, &name(1), one);
        assert_eq!(dentries.get(Inode::ROOT, b"name-1"), Some(one));
        assert_eq!(dentries.get(Inode(2), b"name-1"), None, "in another folder");
        assert_eq!(dentries.get(Inode::ROOT, b"name-"), None);
        dentries.note(Inode::ROOT, &name(1), other);
        assert_eq!(dentries.get(Inode::ROOT, b"name-1"), Some(other));
        dentries.forget(Inode(2), &name(1));
        assert_eq!(dentries.get(Inode::ROOT, b"name-1"), Some(other));
        dentries.forget(Inode::ROOT, &name(1));
        assert_eq!(dentries.get(Inode::ROOT, b"name-1"), None);
    }

    #[test]
    fn a_table_grows_with_what_is_asked_of_it_and_not_for_ever() {
        let mut dentries = Dentries::default();
        let known = |dentries: &Dentries, count: u64| {
            (0..count)
                .filter(|n| {
                    let found = dentries.get(Inode::ROOT, name(*n).as_bytes());
                    assert!(found.is_none_or(|it| it == (Inode(*n), FileKind::Regular)), "{found:?} for {n}");
                    found.is_some()
                })
                .count()
        };
        for _ in 0..20 {
            (0..500).for_each(|n| dentries.note(Inode::ROOT, &name(n), (Inode(n), FileKind::Regular)));
        }
        assert!(known(&dentries, 500) > 350, "{} of 500 are known", known(&dentries, 500));
        (0..20_000).for_each(|n| dentries.note(Inode::ROOT, &name(n), (Inode(n), FileKind::Regular)));
        assert_eq!(dentries.places.len(), MOST);
        assert!(known(&dentries, 20_000) <= MOST);
        dentries.clear();
        assert_eq!(known(&dentries, 20_000), 0);
    }
}
