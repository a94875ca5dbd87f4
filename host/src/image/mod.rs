//! Images: the linear memories and globals of an instance, as pages that can be mapped.
//!
//! - [`slot`] hands wasmtime linear memories out of address space that an image can be mapped over.
//! - `made` says which of them are of which instance.
//! - `fault` keeps the process up where a page of one cannot be read.
//! - `touched` checks the pages that an instance has used.
//! - [`dirty`] finds the pages that an instance has written since.
//! - [`format`] is the layout of the two kinds of file: *flat* images, mapped whole, and *pages*
//!   files, to which the pages that a turn changed are appended.
//! - [`Image`] is one image, ready to be mapped: a flat base and the pages that differ from it.
//! - [`ImageStore`] is the folder of those files.
//! - `archive` is what the store keeps of them in chunks, so that a file that is gone can be made again.
//!
//! Globals are in an image too: an accessor module (see [`crate::component`]) copies them to and
//! from a linear memory of its own.

mod archive;
mod capture;
mod changed;
mod checks;
mod compare;
mod dirty;
mod fault;
mod flatten;
mod format;
mod made;
mod map;
mod reference;
mod slot;
mod store;
mod touched;

pub(crate) use self::archive::check_archived;
pub(crate) use self::compare::DifferentPage;
pub use self::dirty::DirtyTracking;
pub(crate) use self::format::PageRun;
pub(crate) use self::made::with_memories;
pub(crate) use self::map::{Ready, Small};
pub use self::reference::{FlatName, ImageReference, PagesName};
pub(crate) use self::slot::{Creator, EXCEPTION_HEAP};
pub use self::slot::{SlotMemory, Slots};
pub(crate) use self::store::ClosedImage;
pub use self::store::{Image, ImageStore};

/// What can go wrong with an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Reading, writing or mapping an image file failed.
    #[error("image file {file}")]
    Io {
        /// The file's name inside the image folder.
        file: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The folder of image files could not be made or read.
    #[error("the folder of image files, {folder}")]
    Folder {
        /// Which.
        folder: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what its name says, or is cut short.
    #[error("image file {file} is damaged: {reason}")]
    Damaged {
        /// The file's name inside the image folder.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What the archive has of an image is not what the file should be made of.
    #[error("image file {file} cannot be made again from the archive: {reason}")]
    Archive {
        /// The file's name inside the image folder.
        file: String,
        /// Why not.
        reason: String,
    },
    /// The image was made by a newer version of Dormouse.
    #[error("image file {file} has format {found}, this version reads up to {supported}")]
    Newer {
        /// The file's name inside the image folder.
        file: String,
        /// The format found.
        found: u32,
        /// The newest format that this version reads.
        supported: u32,
    },
    /// The image does not fit the instance it was to be mapped over.
    #[error("the image holds {image} memories, the instance has {instance}")]
    Mismatch {
        /// Memories in the image.
        image: usize,
        /// Memories in the instance.
        instance: usize,
    },
    /// The system refused address space or a mapping.
    #[error("mapping guest memory{hint}", hint = map_hint(.0))]
    Map(#[source] std::io::Error),
    /// The image is larger than an image may be.
    #[error("the guest's memory has {pages} changed pages, an image holds at most {limit}")]
    TooLarge {
        /// Pages that would have to be recorded.
        pages: usize,
        /// The limit.
        limit: usize,
    },
}

fn map_hint(e: &std::io::Error) -> &'static str {
    if e.raw_os_error() == Some(libc::ENOMEM) {
        " (the limit on mappings may be reached: raise it with `sysctl vm.max_map_count=N`, or let agents sleep)"
    } else {
        ""
    }
}

impl ImageError {
    /// True when a file is missing.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    /// True when a file is missing or damaged, and can be made again where the archive has it.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_missing() || matches!(self, Self::Damaged { .. })
    }

    /// The file that is missing or damaged.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            Self::Io { file, .. } | Self::Damaged { file, .. } => Some(file),
            _ => None,
        }
    }

    /// True when something is lacking, on the disk or to this process: nothing is known of the file.
    pub(crate) fn is_lack(&self) -> bool {
        matches!(
            self,
            Self::Io { source, .. } | Self::Folder { source, .. } | Self::Map(source)
                if zone_vfs::device::is_lack(source)
        )
    }

    /// True when the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } | Self::Folder { source, .. } if zone_vfs::device::is_no_space(source))
    }
}

/// Bytes of a page: the unit in which images are recorded.
pub const PAGE: usize = 4096;
