//! Why segments could not be opened.

use std::io;

use crate::chunks::ChunkError;
use crate::device::{advice, is_shortage};

/// Why segments could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The device failed.
    #[error("{file}{}", advice(source))]
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

impl SegmentError {
    /// Whether nothing is known, for want of file descriptors or memory.
    pub(super) fn is_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_shortage(source))
    }

    /// What is wrong with the file, in words that go on after its name.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "it is gone".to_owned(),
                io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
                _ => format!("the device failed to read it: {source}"),
            },
            Self::Damaged { reason, .. } => reason.clone(),
            Self::NewerFormat { .. } => self.to_string(),
        }
    }
}

impl From<SegmentError> for ChunkError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Io { source, .. } if is_shortage(&source) => Self::of_device(source),
            SegmentError::Io { file, source } => {
                Self::of_device(io::Error::new(source.kind(), format!("{file}: {source}")))
            }
            other => Self::of_device(io::Error::other(other.to_string())),
        }
    }
}
