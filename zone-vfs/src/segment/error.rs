//! Why segments could not be opened.

use std::io;

/// Why segments could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The device failed.
    #[error("{file}")]
    Io {
        /// Which file.
        file: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A file is not a segment, and no crash makes such a one.
    #[error("{file} is damaged: {reason}")]
    Damaged {
        /// Which file.
        file: String,
        /// What was found.
        reason: String,
    },
    /// A segment was written by a newer version of this program.
    #[error("{file} has format {found}; this program reads up to {supported}")]
    NewerFormat {
        /// Which file.
        file: String,
        /// The version found.
        found: u32,
        /// The newest version that this program knows.
        supported: u32,
    },
}
