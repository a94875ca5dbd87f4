//! Several that hold one zone open: each by a mount of its own.
//!
//! A zone of one agent's is held by that agent alone, and nothing here is used. In a shared zone each
//! mount is a [`Holder`], and what it has open is counted under it: nobody closes what another holds
//! open, and what a holder leaves behind can be closed as a whole.

use std::collections::BTreeMap;

use super::{Access, ErrorCode, Result, Zone};
use crate::contract::Mount;
use crate::id::Inode;

/// One mount of a shared zone in this opening of the store. Never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub(crate) u64);

/// Whose mount a shared zone is worked on through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Through {
    pub holder: Holder,
    /// A mount that is not writable takes all writing away, whoever asks.
    pub writable: bool,
}

#[derive(Default)]
pub(super) struct Holders {
    now: Option<Through>,
    /// How often each holder has an inode open.
    open: BTreeMap<(Holder, Inode), u32>,
}

impl Holders {
    /// The mount that `access` is by, without what the holder's mount takes away.
    #[inline]
    pub fn narrow(&self, access: Access) -> Mount {
        let through = self.now.is_none_or(|it| it.writable);
        Mount { writable: access.mount.writable && through, ..access.mount }
    }

    #[inline]
    pub fn opened(&mut self, inode: Inode) {
        if let Some(now) = self.now {
            *self.open.entry((now.holder, inode)).or_default() += 1;
        }
    }

    /// Refuses to close what this holder does not have open.
    #[inline]
    pub fn may_close(&self, inode: Inode) -> Result<()> {
        match self.now {
            Some(now) if !self.open.contains_key(&(now.holder, inode)) => {
                Err(ErrorCode::BadDescriptor.into())
            }
            _ => Ok(()),
        }
    }

    /// Nobody has an inode open any more: it was forgotten.
    pub fn forget(&mut self, inode: Inode) {
        self.open.retain(|(_, held), _| *held != inode);
    }

    #[inline]
    pub fn closed(&mut self, inode: Inode) {
        if let Some(now) = self.now {
            let key = (now.holder, inode);
            match self.open.get_mut(&key) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.open.remove(&key)),
            }
        }
    }
}

impl Zone {
    /// Works on the zone through a holder's mount.
    pub(crate) fn through<R>(&mut self, through: Through, work: impl FnOnce(&mut Zone) -> R) -> R {
        self.holders.now = Some(through);
        let result = work(self);
        self.holders.now = None;
        result
    }

    /// Closes all that a holder has open; files without a name that nobody else has open are freed.
    ///
    /// What cannot be closed stays open, the rest is closed all the same, and the first error is
    /// given.
    pub(crate) fn close_all(&mut self, holder: Holder) -> Result<()> {
        let all = (holder, Inode(0))..=(holder, Inode(u64::MAX));
        let held: Vec<_> = self.holders.open.range(all).map(|((_, inode), count)| (*inode, *count)).collect();
        self.through(Through { holder, writable: true }, |zone| {
            let mut first = Ok(());
            for (inode, count) in held {
                for _ in 0..count {
                    let closed = zone.close(inode);
                    if closed.is_err() {
                        first = first.and(closed);
                        break;
                    }
                }
            }
            first
        })
    }
}
