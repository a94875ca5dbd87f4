//! What a guest asks of its zones and of the world, and a digest of how it asks.

use std::hash::Hasher;

use zone_vfs::id::Inode;

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        /// A call of a guest's that reads or changes something besides its own memory and handles. The numbers are part of
        /// the journal's format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Call {
            $($(#[$doc])* $name = $number,)*
        }

        impl Call {
            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The call of this number, if there is one.
            pub fn numbered(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

calls! {
    /// The wall clock.
    WallClock = 1 "wall-clock now",
    /// The monotonic clock.
    MonotonicClock = 2 "monotonic-clock now",
    /// Random numbers.
    Random = 3 "random",
    /// Which pollables are ready.
    Poll = 4 "poll",
    /// Whether one is.
    Ready = 5 "pollable ready",
    /// Standard output or error is written.
    Print = 6 "print",
    /// fsync.
    Sync = 7 "sync",
    /// A file or folder is opened.
    Open = 16 "open",
    /// Another handle to what is open.
    OpenAgain = 17 "open again",
    /// One of them goes.
    Close = 18 "close",
    /// A stream that writes begins.
    WriteFrom = 19 "write via stream",
    /// Advice.
    Advise = 20 "advise",
    /// Attributes of what is open.
    Stat = 21 "stat",
    /// Attributes of a path.
    StatAt = 22 "stat at",
    /// A file is made longer or shorter.
    SetSize = 23 "set size",
    /// Times are set.
    SetTimes = 24 "set times",
    /// Times of a path are set.
    SetTimesAt = 25 "set times at",
    /// Content is read.
    Read = 26 "read",
    /// Content is written.
    Write = 27 "write",
    /// A folder is listed.
    List = 28 "read directory",
    /// A folder is made.
    CreateDirectory = 29 "create directory",
    /// One is removed.
    RemoveDirectory = 30 "remove directory",
    /// A name is removed.
    Unlink = 31 "unlink",
    /// A name becomes another.
    Rename = 32 "rename",
    /// Another name for a file.
    Link = 33 "link",
    /// A symbolic link is made.
    Symlink = 34 "symlink",
    /// One is read.
    Readlink = 35 "readlink",
    /// Two paths lie in different zones.
    CrossZone = 36 "cross zones",
    /// `dormouse:zones/history`.
    History = 64 "zones history",
    /// `dormouse:zones/history`, between generations.
    Diff = 65 "zones diff",
    /// `dormouse:zones/changes`.
    Changes = 66 "zones changes",
    /// `dormouse:zones/changes`, waiting.
    Wait = 67 "zones wait",
    /// `dormouse:zones/locks`.
    Lock = 68 "zones lock",
    /// `dormouse:session/events`.
    Session = 96 "session find",
}

/// A digest that tells calls apart. It need not resist whoever looks for two of one digest: all that goes into it is the
/// guest's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallDigest(u64);

/// The multiplier of `FxHash`, the hash function of Firefox.
const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;
/// Bytes at both ends of what is written that go into the digest of a write.
const SAMPLED: usize = 64;

impl CallDigest {
    /// The 32 bits that a journal keeps.
    pub fn finish32(self) -> u32 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(MULTIPLIER);
        (mixed >> 32) as u32
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for CallDigest {
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.word(word.into());
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.word(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.word(word.into());
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.word(word as u64);
    }
}

/// A call with what it asks for.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Asked {
    /// Which call.
    pub call: Call,
    /// The index of the zone that it concerns.
    pub zone: u16,
    /// Of its arguments.
    pub digest: CallDigest,
}

impl Call {
    /// The call, of nothing in a zone.
    pub fn plain(self) -> Asked {
        Asked { call: self, zone: u16::MAX, digest: CallDigest::default() }
    }

    /// The call, of a file or folder.
    #[inline]
    pub fn at(self, zone: u16, inode: Inode) -> Asked {
        Asked { zone, ..self.plain() }.with(zone.into()).with(inode.0)
    }
}

impl Asked {
    /// With a number among its arguments.
    #[inline]
    pub fn with(mut self, number: u64) -> Self {
        self.digest.word(number);
        self
    }

    /// With a text among its arguments.
    #[inline]
    pub fn text(mut self, text: &str) -> Self {
        self.digest.write(text.as_bytes());
        self
    }

    /// With content among its arguments, of which the length and both ends count.
    #[inline]
    pub fn content(mut self, bytes: &[u8]) -> Self {
        self.digest.word(bytes.len() as u64);
        if bytes.len() <= 2 * SAMPLED {
            self.digest.write(bytes);
        } else {
            self.digest.write(&bytes[..SAMPLED]);
            self.digest.write(&bytes[bytes.len() - SAMPLED..]);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_calls() {
        let known: Vec<Call> = (0..=u8::MAX).filter_map(Call::numbered).collect();
        assert!(known.iter().all(|call| Call::numbered(*call as u8) == Some(*call)));
        assert_eq!(known.len(), 34);
    }

    #[test]
    fn calls_that_ask_otherwise_have_another_digest() {
        let of = |asked: Asked| asked.digest.finish32();
        let stat = || Call::StatAt.at(1, Inode(7));
        let all = [
            of(stat().text("a")),
            of(stat().text("b")),
            of(stat().text("a\0")),
            of(Call::StatAt.at(2, Inode(7)).text("a")),
            of(Call::StatAt.at(1, Inode(8)).text("a")),
            of(stat().content(&[0; 200])),
            of(stat().content(&[0; 201])),
            of(stat().content(&[1; 200])),
        ];
        assert!(all.iter().enumerate().all(|(i, one)| all[..i].iter().all(|other| other != one)), "{all:?}");
        assert_eq!(all[0], of(stat().text("a")));
    }
}
