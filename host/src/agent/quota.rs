//! How the bounds of a zone are written.

use std::fmt;
use std::str::FromStr;

use zone_vfs::zone::Quota;

use crate::size::{self, InvalidSize};

/// What `--zone` says of a zone's bounds: `SIZE`, `inodes=COUNT`, or both with a comma between. What is not said is as
/// by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaOption {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Inodes, and names beyond the first of each; at least 1.
    pub inodes: Option<u64>,
}

/// Why a quota was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuota {
    /// A part that is neither a size nor a number of inodes.
    #[error("{0}, or inodes=COUNT, or both with a comma between, as in 64M,inodes=10000")]
    Size(#[from] InvalidSize),
    /// Not a number of inodes.
    #[error("`{0}` is no number of inodes: give a number from 1 on, as in inodes=10000")]
    Inodes(String),
    /// The same was said twice.
    #[error("`{0}` says the same twice: a quota is a size, inodes=COUNT, or both with a comma between")]
    Twice(String),
}

impl FromStr for QuotaOption {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut quota = Self::default();
        for part in text.split(',') {
            let (place, value) = match part.strip_prefix("inodes=") {
                Some(count) => {
                    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
                    let number = count.parse().ok().filter(|number| is_number && *number > 0);
                    (&mut quota.inodes, number.ok_or_else(|| InvalidQuota::Inodes(part.into()))?)
                }
                None => (&mut quota.bytes, size::parse(part)?),
            };
            if place.replace(value).is_some() {
                return Err(InvalidQuota::Twice(text.into()));
            }
        }
        Ok(quota)
    }
}

impl fmt::Display for QuotaOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bytes, self.inodes) {
            (Some(bytes), Some(inodes)) => write!(f, "{bytes},inodes={inodes}"),
            (Some(bytes), None) => write!(f, "{bytes}"),
            (None, Some(inodes)) => write!(f, "inodes={inodes}"),
            (None, None) => Ok(()),
        }
    }
}

impl QuotaOption {
    /// These bounds, with those of `quota` where they say nothing.
    pub fn or(self, quota: Quota) -> Quota {
        Quota { bytes: self.bytes.unwrap_or(quota.bytes), inodes: self.inodes.unwrap_or(quota.inodes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_and_refused() {
        let both = |bytes, inodes| Ok(QuotaOption { bytes, inodes });
        for (text, read) in [
            ("64M", both(Some(64 << 20), None)),
            ("inodes=10000", both(None, Some(10_000))),
            ("64M,inodes=10000", both(Some(64 << 20), Some(10_000))),
            ("inodes=1,0", both(Some(0), Some(1))),
            ("", Err(InvalidQuota::Size(InvalidSize(String::new())))),
            ("64M,", Err(InvalidQuota::Size(InvalidSize(String::new())))),
            ("inodes=0", Err(InvalidQuota::Inodes("inodes=0".into()))),
            ("inodes=", Err(InvalidQuota::Inodes("inodes=".into()))),
            ("inodes=+1", Err(InvalidQuota::Inodes("inodes=+1".into()))),
            ("1K,inodes=1K", Err(InvalidQuota::Inodes("inodes=1K".into()))),
            ("inode=7", Err(InvalidQuota::Size(InvalidSize("inode=7".into())))),
            ("1K,2K", Err(InvalidQuota::Twice("1K,2K".into()))),
            ("inodes=1,inodes=1", Err(InvalidQuota::Twice("inodes=1,inodes=1".into()))),
        ] {
            assert_eq!(text.parse(), read, "{text}");
            if let Ok(quota) = read {
                assert_eq!(quota.to_string().parse(), Ok(quota));
            }
        }
        let default = Quota::default();
        let some = QuotaOption { bytes: None, inodes: Some(3) };
        assert_eq!(some.or(default), Quota { inodes: 3, ..default });
        assert_eq!(QuotaOption::default().or(default), default);
    }
}
