//! Which zones an agent has.

use zone_vfs::contract::ZoneKind;
use zone_vfs::store::{ExportedZone, SharedId, SharedMount, Store, StoreError, ZoneSpec};
use zone_vfs::zone::Quota;

use super::AgentError;
use super::quota::{InvalidQuota, QuotaOption};

/// What `--zone NAME=KIND[:QUOTA]` says, or `--zone NAME=/MOUNT[:ro|:rw][:QUOTA]` for a shared zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneOption {
    /// The zone's name; it is mounted at `/NAME`, or where the default zone of that name is. A shared
    /// zone's name is the store's.
    pub name: String,
    /// Its contract.
    pub kind: ZoneKind,
    /// Its bounds, where they are other than by default.
    pub quota: QuotaOption,
    /// Where a shared zone is mounted, and how; exactly for the kind shared.
    pub shared: Option<MountOption>,
}

/// Where a shared zone is mounted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOption {
    /// An absolute path.
    pub path: String,
    /// Whether the agent may write.
    pub writable: bool,
}

/// Bytes of a mount point, at most.
const MAX_MOUNT: usize = 255;

/// Names that no zone can have.
const RESERVED: [&str; 2] = ["credentials", "memory"];

/// Why a zone was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneOptionError {
    /// Not of the form.
    #[error(
        "`{0}`: a zone is given as NAME=KIND[:QUOTA], for example scratch=workspace:64M, and a shared one as \
         NAME=/MOUNT[:ro|:rw][:QUOTA]"
    )]
    Form(String),
    /// Not a kind.
    #[error("`{0}` is no kind of zone: there are episodic, semantic, procedural, workspace and logs")]
    Kind(String),
    /// Not a quota.
    #[error(transparent)]
    Quota(#[from] InvalidQuota),
    /// Not a name.
    #[error("`{0}` is no name for a zone: use letters, digits, `-` and `_`, at most 64")]
    Name(String),
    /// A name that is no zone's.
    #[error("`{0}` is reserved: credentials are no files, and /memory holds the zones of memory")]
    Reserved(String),
    /// A shared zone is given by its mount.
    #[error("`{0}`: a shared zone is given by where it is mounted, for example {0}=/{0} or {0}=/{0}:ro")]
    Shared(String),
    /// Not a mount point.
    #[error(
        "`{0}` is no place for a zone: give an absolute path of letters, digits, `-`, `_` and `.`, such as /team"
    )]
    Mount(String),
    /// Two zones would lie in each other.
    #[error("{mount} and {other} lie in each other: mount the zone elsewhere")]
    Overlap {
        /// Where the zone was to be mounted.
        mount: String,
        /// Where another is.
        other: String,
    },
    /// The quota of a shared zone is set when it is made.
    #[error(
        "the shared zone `{zone}` is there, with a quota of {} bytes and {} inodes: leave the quota out", quota.bytes,
        quota.inodes
    )]
    SharedQuota {
        /// The zone.
        zone: String,
        /// Its quota.
        quota: Quota,
    },
    /// A default zone keeps its kind.
    #[error("the zone `{name}` is {kind}; its quota can be set, its kind cannot")]
    FixedKind {
        /// The zone.
        name: String,
        /// Its kind.
        kind: ZoneKind,
    },
    /// An agent that was exported mounts a shared zone, and nobody has said what that is here.
    #[error(
        "the agent mounts the shared zone `{name}` at {mount}: say what to mount there, --zone {name}={mount}[:ro|:rw]"
    )]
    NotMounted {
        /// What it was called there.
        name: String,
        /// Where it is mounted.
        mount: String,
    },
    /// An agent that was exported has zones, and no others are added.
    #[error("the agent has no place for the zone `{0}`: only the shared zones that it mounts are to be said")]
    NoMount(String),
    /// Zones of an agent that was exported that no options ask for.
    #[error("it has other zones, or has them elsewhere, than an agent can have")]
    Other,
    /// A name was given twice.
    #[error("the zone `{0}` is given twice")]
    Twice(String),
}

impl std::str::FromStr for ZoneOption {
    type Err = ZoneOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.split_once('=').ok_or_else(|| ZoneOptionError::Form(text.into()))?;
        if rest.starts_with('/') {
            return shared_option(name, rest);
        }
        let (kind, quota) = match rest.split_once(':') {
            Some((kind, quota)) => (kind, Some(quota)),
            None => (rest, None),
        };
        check_name(name)?;
        if RESERVED.contains(&name) {
            return Err(ZoneOptionError::Reserved(name.into()));
        }
        let kind = ZoneKind::from_name(kind).ok_or_else(|| ZoneOptionError::Kind(kind.into()))?;
        if kind == ZoneKind::Shared {
            return Err(ZoneOptionError::Shared(name.into()));
        }
        let quota = quota.map(str::parse).transpose()?.unwrap_or_default();
        Ok(Self { name: name.into(), kind, quota, shared: None })
    }
}

fn check_name(name: &str) -> Result<(), ZoneOptionError> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        return Err(ZoneOptionError::Name(name.into()));
    }
    Ok(())
}

/// `NAME=/MOUNT[:ro|:rw][:QUOTA]`
fn shared_option(name: &str, rest: &str) -> Result<ZoneOption, ZoneOptionError> {
    check_name(name)?;
    let mut parts = rest.split(':');
    let path = parts.next().unwrap_or_default();
    let mut next = parts.next();
    let writable = next != Some("ro");
    if matches!(next, Some("ro" | "rw")) {
        next = parts.next();
    }
    let quota = next.map(str::parse).transpose()?.unwrap_or_default();
    if parts.next().is_some() {
        return Err(ZoneOptionError::Form(format!("{name}={rest}")));
    }
    let good = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(fits)
    };
    let reserved = path == "/memory" || path == "/credentials" || path.starts_with("/credentials/");
    if path.len() > MAX_MOUNT || reserved || !path[1..].split('/').all(good) {
        return Err(ZoneOptionError::Mount(path.into()));
    }
    let shared = Some(MountOption { path: path.into(), writable });
    Ok(ZoneOption { name: name.into(), kind: ZoneKind::Shared, quota, shared })
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

/// The zones of a new agent. Shared ones are only named so far.
pub(crate) struct ZonePlan {
    specs: Vec<ZoneSpec>,
    /// Index, name, whether writable, and the quota that is asked for.
    shared: Vec<(usize, String, bool, QuotaOption)>,
}

/// The default zones with what the options change and add.
pub(crate) fn zones(options: &[ZoneOption]) -> Result<ZonePlan, ZoneOptionError> {
    let mut specs = default_zones();
    let mut shared = Vec::new();
    for (index, option) in options.iter().enumerate() {
        let is_shared = option.shared.is_some();
        // the names of shared zones are the store's, not the agent's
        if options[..index].iter().any(|o| o.name == option.name && o.shared.is_some() == is_shared) {
            return Err(ZoneOptionError::Twice(option.name.clone()));
        }
        let quota = option.quota.or(Quota::default());
        let mut mount = format!("/{}", option.name);
        if let Some(at) = &option.shared {
            shared.push((specs.len(), option.name.clone(), at.writable, option.quota));
            mount.clone_from(&at.path);
        } else if let Some(zone) =
            specs.iter_mut().find(|z| z.name == option.name && z.kind != ZoneKind::Shared)
        {
            if zone.kind != option.kind {
                return Err(ZoneOptionError::FixedKind { name: zone.name.clone(), kind: zone.kind });
            }
            zone.quota = quota;
            continue;
        }
        let within = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
        if let Some(other) = specs.iter().find(|z| within(&mount, &z.mount) || within(&z.mount, &mount)) {
            return Err(ZoneOptionError::Overlap { mount, other: other.mount.clone() });
        }
        specs.push(ZoneSpec { name: option.name.clone(), mount, kind: option.kind, quota, shared: None });
    }
    Ok(ZonePlan { specs, shared })
}

/// Zones of an agent that is to be made, with the shared ones that were made for it.
pub(crate) struct Mounting {
    pub specs: Vec<ZoneSpec>,
    new: Vec<SharedId>,
}

impl Mounting {
    /// Removes the shared zones that were made for an agent that is not made. Someone else may have mounted one
    /// meanwhile: then it stays.
    pub(crate) fn take_back(self, store: &Store) {
        for zone in self.new {
            if let Err(e) = store.remove_shared(zone) {
                tracing::debug!("removing a shared zone that was made for nothing: {e}");
            }
        }
    }
}

/// The mounts of shared zones that `mounts` say nothing about, under the names that these had.
pub(crate) fn named_mounts(
    exported: &[ExportedZone],
    mounts: &[ZoneOption],
) -> Result<Vec<ZoneOption>, ZoneOptionError> {
    let is_missing = |zone: &&ExportedZone| {
        !mounts.iter().any(|it| it.shared.as_ref().is_some_and(|at| at.path == zone.mount))
    };
    let named = exported.iter().filter(is_missing).filter_map(|zone| {
        let (name, writable) = zone.shared.as_ref()?;
        Some(format!("{name}={}:{}", zone.mount, if *writable { "rw" } else { "ro" }).parse())
    });
    named.collect()
}

/// The plan for zones that another store's agent has, with the mounts of shared ones as the operator's options
/// say. Zones and their places have to be such as options can ask for.
pub(crate) fn zones_as(
    exported: &[ExportedZone],
    mounts: &[ZoneOption],
) -> Result<ZonePlan, ZoneOptionError> {
    let mut options = Vec::with_capacity(exported.len());
    for zone in exported {
        let option = if let Some((name, _)) = &zone.shared {
            let mounted = |it: &&ZoneOption| it.shared.as_ref().is_some_and(|at| at.path == zone.mount);
            let given = mounts.iter().find(mounted);
            given.cloned().ok_or_else(|| ZoneOptionError::NotMounted {
                name: name.clone(),
                mount: zone.mount.clone(),
            })?
        } else {
            if zone.quota.inodes == 0 {
                return Err(InvalidQuota::Inodes("inodes=0".into()).into());
            }
            let text = format!("{}={}", zone.name, zone.kind.name());
            let quota = QuotaOption { bytes: Some(zone.quota.bytes), inodes: Some(zone.quota.inodes) };
            ZoneOption { quota, ..text.parse()? }
        };
        options.push(option);
    }
    if let Some(other) = mounts.iter().find(|it| !options.contains(it)) {
        return Err(ZoneOptionError::NoMount(other.name.clone()));
    }
    let plan = zones(&options)?;
    let is_same =
        |(there, here): (&ExportedZone, &ZoneSpec)| (&there.mount, there.kind) == (&here.mount, here.kind);
    if plan.specs.len() != exported.len() || !exported.iter().zip(&plan.specs).all(is_same) {
        return Err(ZoneOptionError::Other);
    }
    Ok(plan)
}

impl ZonePlan {
    /// Makes an agent of these zones. A shared zone that is missing is made for it, and goes again
    /// if the agent is not made.
    pub(crate) fn make<T>(
        self,
        store: &Store,
        make: impl FnOnce(Vec<ZoneSpec>) -> Result<T, StoreError>,
    ) -> Result<T, AgentError> {
        let mounting = self.mount(store)?;
        let made = make(mounting.specs.clone());
        if made.is_err() {
            mounting.take_back(store);
        }
        Ok(made?)
    }

    /// The zones, with the shared ones that are mounted. One that is missing is made.
    pub(crate) fn mount(mut self, store: &Store) -> Result<Mounting, AgentError> {
        let mut new = Vec::new();
        let made = (|| {
            for (index, name, writable, quota) in self.shared {
                let zone = if let Some(zone) = store.find_shared(&name)? {
                    // one that was removed a moment ago is refused when it is mounted
                    let there = store.shared_zone(zone)?.zone(|z| z.quota());
                    if let Some(there) = there.filter(|there| quota.or(*there) != *there) {
                        return Err(ZoneOptionError::SharedQuota { zone: name, quota: there }.into());
                    }
                    zone
                } else {
                    let zone = store.create_shared(&name, self.specs[index].quota)?;
                    new.push(zone);
                    zone
                };
                self.specs[index].shared = Some(SharedMount { zone, writable });
            }
            Ok(())
        })();
        let mounting = Mounting { specs: self.specs, new };
        match made {
            Ok(()) => Ok(mounting),
            Err(e) => {
                mounting.take_back(store);
                Err(e)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> QuotaOption {
        QuotaOption { bytes: Some(bytes), inodes: None }
    }

    fn parse(text: &str) -> Result<ZoneOption, ZoneOptionError> {
        text.parse()
    }

    #[test]
    fn options_are_read_and_refused() {
        let zone = parse("scratch=workspace:64M").unwrap();
        assert_eq!(
            (zone.name.as_str(), zone.kind, zone.quota),
            ("scratch", ZoneKind::Workspace, bytes(64 << 20))
        );
        assert_eq!(parse("x=episodic").unwrap().quota, QuotaOption::default());
        let both = QuotaOption { bytes: Some(1024), inodes: Some(7) };
        assert_eq!(parse("x=episodic:1K,inodes=7").unwrap().quota, both);
        assert!(matches!(parse("x=logs:inodes=none"), Err(ZoneOptionError::Quota(_))));
        assert!(matches!(parse("x"), Err(ZoneOptionError::Form(_))));
        assert!(matches!(parse("x=disk"), Err(ZoneOptionError::Kind(_))));
        assert!(matches!(parse("x=logs:many"), Err(ZoneOptionError::Quota(_))));
        assert!(matches!(parse("../x=logs"), Err(ZoneOptionError::Name(_))));
        assert!(matches!(parse("x=shared"), Err(ZoneOptionError::Shared(_))));
        assert!(matches!(parse("credentials=workspace"), Err(ZoneOptionError::Reserved(_))));
        assert!(matches!(parse("memory=logs"), Err(ZoneOptionError::Reserved(_))));
        assert!(matches!(parse("x=logs:99999999999T"), Err(ZoneOptionError::Quota(_))));
    }

    #[test]
    fn mounts_of_shared_zones_are_read_and_refused() {
        let read = |text: &str| {
            let zone = parse(text).unwrap();
            let mount = zone.shared.unwrap();
            (zone.name, zone.kind, mount.path, mount.writable, zone.quota)
        };
        let team = |writable, quota| ("team".into(), ZoneKind::Shared, "/shared".into(), writable, quota);
        assert_eq!(read("team=/shared"), team(true, QuotaOption::default()));
        assert_eq!(read("team=/shared:ro"), team(false, QuotaOption::default()));
        assert_eq!(read("team=/shared:1K"), team(true, bytes(1024)));
        assert_eq!(read("team=/shared:ro:1K"), team(false, bytes(1024)));
        assert_eq!(read("team=/shared:rw:1K"), team(true, bytes(1024)));
        let inodes = QuotaOption { bytes: None, inodes: Some(9) };
        assert_eq!(read("team=/shared:rw:inodes=9"), team(true, inodes));
        assert_eq!(read("team=/memory/team").2, "/memory/team");
        for path in
            ["/", "//", "/a/", "/a/../b", "/.hidden", "/a b", "/memory", "/credentials", "/credentials/a"]
        {
            assert!(matches!(parse(&format!("team={path}")), Err(ZoneOptionError::Mount(_))), "{path}");
        }
        assert!(matches!(parse("team=/shared:ro:1K:2K"), Err(ZoneOptionError::Form(_))));
        assert!(matches!(parse("team=/shared:wo"), Err(ZoneOptionError::Quota(_))));
        assert!(matches!(parse("a/b=/shared"), Err(ZoneOptionError::Name(_))));
    }

    #[test]
    fn no_zone_lies_in_another() {
        let made = |texts: &[&str]| {
            let options: Vec<_> = texts.iter().map(|text| parse(text).unwrap()).collect();
            zones(&options).map(|plan| plan.specs)
        };
        let specs = made(&["workspace=/team", "other=/team2:ro", "memory=/memory/team"]).unwrap();
        let mounts: Vec<_> = specs[5..].iter().map(|z| (z.name.as_str(), z.mount.as_str())).collect();
        assert_eq!(mounts, [("workspace", "/team"), ("other", "/team2"), ("memory", "/memory/team")]);
        for wrong in [&["a=/workspace"][..], &["a=/workspace/a"], &["a=/a/b", "b=/a"], &["a=logs", "b=/a"]] {
            assert!(matches!(made(wrong), Err(ZoneOptionError::Overlap { .. })), "{wrong:?}");
        }
        assert!(matches!(made(&["a=/a", "a=/b"]), Err(ZoneOptionError::Twice(_))));
    }

    #[test]
    fn defaults_keep_their_kind_and_take_a_quota() {
        let made =
            zones(&[parse("workspace=workspace:1K").unwrap(), parse("more=semantic:inodes=5").unwrap()])
                .unwrap()
                .specs;
        assert_eq!(made.len(), 6);
        assert_eq!(made.iter().find(|z| z.name == "workspace").unwrap().quota.bytes, 1024);
        assert_eq!(made.last().unwrap().mount, "/more");
        assert_eq!(made.last().unwrap().quota, Quota { inodes: 5, ..Quota::default() });
        assert!(matches!(zones(&[parse("logs=workspace").unwrap()]), Err(ZoneOptionError::FixedKind { .. })));
        let twice = parse("a=logs").unwrap();
        assert!(matches!(zones(&[twice.clone(), twice]), Err(ZoneOptionError::Twice(_))));
    }
}
