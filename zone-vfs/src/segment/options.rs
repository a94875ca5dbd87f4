//! How segments are kept.

/// How segments are kept.
#[derive(Clone, Copy, Debug)]
pub struct SegmentOptions {
    /// A segment takes no further frame beyond this length in bytes; at most [`MAX_SEGMENT`].
    pub segment_len: u64,
    /// Frames are gathered until so many bytes can be written at once.
    pub write_buffer: usize,
    /// Bytes of plain frames that are kept after reading.
    pub cache: usize,
    /// Bytes of tree nodes, as they are stored, that trees keep in memory before they let go of them.
    pub nodes: usize,
    /// A mistake to make, for tests that must notice it.
    #[cfg(test)]
    pub(crate) planted: Planted,
}

/// Mistakes that the crash tests have to catch.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    None,
    NoChecksum,
    FooterBeforeData,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            segment_len: 64 << 20,
            write_buffer: 1 << 20,
            cache: 32 << 20,
            nodes: 32 << 20,
            #[cfg(test)]
            planted: Planted::None,
        }
    }
}

impl SegmentOptions {
    /// Never, but where a test plants the mistake.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "the test build looks at it"))]
    pub(super) fn skips_checksums(&self) -> bool {
        #[cfg(test)]
        return self.planted == Planted::NoChecksum;
        #[cfg(not(test))]
        false
    }
}

/// The name of the index's file in a store's folder.
pub(crate) const INDEX_FILE: &str = "index.redb";

/// Where the index has a file. It is no part of the device, since it can be lost at any time.
#[derive(Clone, Debug)]
pub(crate) struct IndexPlace {
    /// The file.
    pub path: std::path::PathBuf,
    /// Bytes of it that are kept in memory.
    pub cache: usize,
}
