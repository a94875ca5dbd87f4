//! Which zones an agent has.

use zone_vfs::contract::ZoneKind;
use zone_vfs::store::ZoneSpec;
use zone_vfs::zone::Quota;

use crate::size::{self, InvalidSize};

/// What `--zone NAME=KIND[:QUOTA]` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneOption {
    /// The zone's name; it is mounted at `/NAME`, or where the default zone of that name is.
    pub name: String,
    /// Its contract.
    pub kind: ZoneKind,
    /// Bytes, where they are bounded other than by default.
    pub quota: Option<u64>,
}

/// Names that no zone can have.
const RESERVED: [&str; 2] = ["credentials", "memory"];

/// Why a zone was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneOptionError {
    /// Not of the form.
    #[error("`{0}`: a zone is given as NAME=KIND[:QUOTA], for example scratch=workspace:64M")]
    Form(String),
    /// Not a kind.
    #[error("`{0}` is no kind of zone: there are episodic, semantic, procedural, workspace and logs")]
    Kind(String),
    /// Not a size.
    #[error(transparent)]
    Quota(#[from] InvalidSize),
    /// Not a name.
    #[error("`{0}` is no name for a zone: use letters, digits, `-` and `_`, at most 64")]
    Name(String),
    /// A name that is no zone's.
    #[error("`{0}` is reserved: credentials are no files, and /memory holds the zones of memory")]
    Reserved(String),
    /// Shared zones need a store of their own.
    #[error(
        "shared zones are not there yet: give the zone one of the kinds episodic, semantic, procedural, workspace or logs"
    )]
    Shared,
    /// A default zone keeps its kind.
    #[error("the zone `{name}` is {kind}; its quota can be set, its kind cannot")]
    FixedKind {
        /// The zone.
        name: String,
        /// Its kind.
        kind: ZoneKind,
    },
    /// A name was given twice.
    #[error("the zone `{0}` is given twice")]
    Twice(String),
}

impl std::str::FromStr for ZoneOption {
    type Err = ZoneOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.split_once('=').ok_or_else(|| ZoneOptionError::Form(text.into()))?;
        let (kind, quota) = match rest.split_once(':') {
            Some((kind, quota)) => (kind, Some(quota)),
            None => (rest, None),
        };
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
            return Err(ZoneOptionError::Name(name.into()));
        }
        if RESERVED.contains(&name) {
            return Err(ZoneOptionError::Reserved(name.into()));
        }
        let kind = ZoneKind::from_name(kind).ok_or_else(|| ZoneOptionError::Kind(kind.into()))?;
        if kind == ZoneKind::Shared {
            return Err(ZoneOptionError::Shared);
        }
        let quota = quota.map(size::parse).transpose()?;
        Ok(Self { name: name.into(), kind, quota })
    }
}

/// The zones that every agent has.
pub fn default_zones() -> Vec<ZoneSpec> {
    let zone = |name: &str, mount: &str, kind| ZoneSpec {
        name: name.into(),
        mount: mount.into(),
        kind,
        quota: Quota::default(),
        shared: None,
    };
    vec![
        zone("episodic", "/memory/episodic", ZoneKind::Episodic),
        zone("semantic", "/memory/semantic", ZoneKind::Semantic),
        zone("procedural", "/memory/procedural", ZoneKind::Procedural),
        zone("workspace", "/workspace", ZoneKind::Workspace),
        zone("logs", "/logs", ZoneKind::Logs),
    ]
}

/// The default zones with what the options change and add.
pub(crate) fn zones(options: &[ZoneOption]) -> Result<Vec<ZoneSpec>, ZoneOptionError> {
    let mut zones = default_zones();
    for (index, option) in options.iter().enumerate() {
        if options[..index].iter().any(|o| o.name == option.name) {
            return Err(ZoneOptionError::Twice(option.name.clone()));
        }
        let bytes = option.quota.unwrap_or(Quota::default().bytes);
        if let Some(zone) = zones.iter_mut().find(|z| z.name == option.name) {
            if zone.kind != option.kind {
                return Err(ZoneOptionError::FixedKind { name: zone.name.clone(), kind: zone.kind });
            }
            zone.quota.bytes = bytes;
        } else {
            zones.push(ZoneSpec {
                name: option.name.clone(),
                mount: format!("/{}", option.name),
                kind: option.kind,
                quota: Quota { bytes, ..Quota::default() },
                shared: None,
            });
        }
    }
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ZoneOption, ZoneOptionError> {
        text.parse()
    }

    #[test]
    fn options_are_read_and_refused() {
        let zone = parse("scratch=workspace:64M").unwrap();
        assert_eq!(
            (zone.name.as_str(), zone.kind, zone.quota),
            ("scratch", ZoneKind::Workspace, Some(64 << 20))
        );
        assert_eq!(parse("x=episodic").unwrap().quota, None);
        assert!(matches!(parse("x"), Err(ZoneOptionError::Form(_))));
        assert!(matches!(parse("x=disk"), Err(ZoneOptionError::Kind(_))));
        assert!(matches!(parse("x=logs:many"), Err(ZoneOptionError::Quota(_))));
        assert!(matches!(parse("../x=logs"), Err(ZoneOptionError::Name(_))));
        assert!(matches!(parse("x=shared"), Err(ZoneOptionError::Shared)));
        assert!(matches!(parse("credentials=workspace"), Err(ZoneOptionError::Reserved(_))));
        assert!(matches!(parse("memory=logs"), Err(ZoneOptionError::Reserved(_))));
        assert!(matches!(parse("x=logs:99999999999T"), Err(ZoneOptionError::Quota(_))));
    }

    #[test]
    fn defaults_keep_their_kind_and_take_a_quota() {
        let made =
            zones(&[parse("workspace=workspace:1K").unwrap(), parse("more=semantic").unwrap()]).unwrap();
        assert_eq!(made.len(), 6);
        assert_eq!(made.iter().find(|z| z.name == "workspace").unwrap().quota.bytes, 1024);
        assert_eq!(made.last().unwrap().mount, "/more");
        assert!(matches!(zones(&[parse("logs=workspace").unwrap()]), Err(ZoneOptionError::FixedKind { .. })));
        let twice = parse("a=logs").unwrap();
        assert!(matches!(zones(&[twice.clone(), twice]), Err(ZoneOptionError::Twice(_))));
    }
}
