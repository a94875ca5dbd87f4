//! What `N[@GEN]:PATH` names.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use zone_vfs::contract::{PAST_NAMES, Principal};
use zone_vfs::id::{ChangeSequence, GenerationNumber, Inode, Timestamp};
use zone_vfs::store::{SharedZone, ZoneSpec, wait};
use zone_vfs::tree::{Changes, Name};
use zone_vfs::zone::{Access, Stat, Zone, ZoneError};

use crate::cli::output::OfAgent;
use crate::{Agent, Host};

/// Bytes that are copied at once.
pub const PIECE: usize = 1 << 20;

/// `N[@GEN][:PATH]`, or `@ZONE:PATH` for a zone that agents share.
#[derive(Clone)]
pub struct Place {
    pub name: String,
    /// It is the name of a shared zone.
    pub is_shared: bool,
    pub generation: Option<u64>,
    /// As it was given.
    pub path: Option<String>,
}

impl Place {
    /// The agent, with the generation that is looked into: for messages.
    pub fn agent(&self) -> String {
        match self.generation {
            _ if self.is_shared => format!("@{}", self.name),
            Some(number) => format!("{}@{number}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Reads `N[@GEN][:PATH]`, where `--at` may name the generation as well.
pub fn parse(text: &str, at: Option<u64>) -> anyhow::Result<Place> {
    let (agent, path) = match text.split_once(':') {
        Some((agent, path)) => (agent, Some(path.to_string())),
        None => (text, None),
    };
    if let Some(name) = agent.strip_prefix('@') {
        if at.is_some() || name.contains('@') {
            bail!("a shared zone has no generations, only what it holds now: write @{name}:PATH");
        }
        return Ok(Place { name: name.into(), is_shared: true, generation: None, path });
    }
    let (name, generation) = of_generation(agent)?;
    let generation = generation.map(|it| it.0);
    if let (Some(one), Some(other)) = (generation, at)
        && one != other
    {
        bail!("two generations are given: {one} with @, {other} with --at");
    }
    Ok(Place { name: name.into(), is_shared: false, generation: generation.or(at), path })
}

/// Reads `N[@GEN]`. No agent's name has an `@`.
pub fn of_generation(text: &str) -> anyhow::Result<(&str, Option<GenerationNumber>)> {
    let Some((name, number)) = text.split_once('@') else { return Ok((text, None)) };
    let number = number.parse().map_err(|_| {
        anyhow!("`{number}` is no generation: it is a number, and `dormouse generations {name}` lists them")
    })?;
    Ok((name, Some(GenerationNumber(number))))
}

/// A path without empty parts and without `.`, beginning with a slash. `..` stays: the zone says what
/// it leads to.
pub fn normal(path: &str) -> String {
    let mut normal = String::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        normal.push('/');
        normal.push_str(part);
    }
    if normal.is_empty() { "/".into() } else { normal }
}

/// Whether the content of a folder is meant, and not the folder: it is written `FOLDER/.`.
pub fn means_content(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes == b"." || bytes.ends_with(b"/.")
}

/// The agent, the zone in which the path lies, and the rest of the path, which begins with a slash or is empty.
fn locate(host: &Host, place: &Place) -> anyhow::Result<(Agent, u16, ZoneSpec, String)> {
    let agent = host.agent(&place.name)?;
    let Some(path) = &place.path else {
        bail!("give a path: {}:/workspace, for example", place.name);
    };
    let absolute = normal(path);
    let zones = agent.disk().zones();
    let found = (0u16..)
        .zip(&zones)
        .filter(|(_, z)| absolute == z.mount || absolute.starts_with(&format!("{}/", z.mount)))
        .max_by_key(|(_, z)| z.mount.len());
    let Some((index, spec)) = found else {
        let mounts: Vec<_> = zones.iter().map(|z| z.mount.as_str()).collect();
        bail!("{absolute} is in no zone of {}: there are {}", place.name, mounts.join(", "));
    };
    let rest = absolute[spec.mount.len()..].to_string();
    Ok((agent, index, spec.clone(), rest))
}

/// The agent, the zone, and the path from the zone's root: for what is done to an agent's zone, whatever stands
/// there now. Refuses generations and shared zones.
pub fn of_agent(host: &Host, place: &Place, what: &str) -> anyhow::Result<(Agent, u16, String)> {
    if place.is_shared || place.generation.is_some() {
        bail!("`zone {what}` is about a zone of an agent: write N:PATH");
    }
    let (agent, index, _, path) = locate(host, place)?;
    Ok((agent, index, path.trim_start_matches('/').to_string()))
}

/// Where a zone is found.
enum Source {
    /// An agent's, as it stands; whether it is the mount of a shared one.
    Agent { agent: Agent, zone: u16, is_shared: bool },
    /// As it was in a generation.
    Past(Box<Zone>),
    /// A shared zone itself.
    Shared(SharedZone),
}

/// A zone of an agent, now or in a generation, or a shared zone, and a path in it.
pub struct View {
    source: Source,
    mount: String,
    /// Relative to the zone's root; empty for the root itself.
    pub path: String,
    /// It was written with a slash at its end: a folder is meant.
    pub is_folder: bool,
    /// The agent as it was asked for, for messages.
    of: String,
}

impl View {
    /// Finds the zone that a path lies in.
    pub fn open(host: &Host, place: &Place) -> anyhow::Result<Self> {
        if place.is_shared {
            return Self::of_shared(host, place);
        }
        let (agent, index, spec, path) = locate(host, place)?;
        Self::of_zone(agent, place, index, &spec.mount, &path)
    }

    fn of_shared(host: &Host, place: &Place) -> anyhow::Result<Self> {
        let store = host.store()?;
        let id = store.find_shared(&place.name)?;
        let id = id.ok_or_else(|| anyhow!("no shared zone named `{}`", place.name))?;
        let path = normal(place.path.as_deref().unwrap_or("/"));
        Ok(Self {
            source: Source::Shared(store.shared_zone(id)?),
            mount: String::new(),
            path: path.trim_start_matches('/').to_string(),
            is_folder: place.path.as_ref().is_some_and(|path| path.ends_with('/')),
            of: place.agent(),
        })
    }

    /// A path in the zone with this index.
    pub fn of_zone(agent: Agent, place: &Place, zone: u16, mount: &str, path: &str) -> anyhow::Result<Self> {
        let of = place.agent();
        let source = if let Some(number) = place.generation {
            let zone = agent.disk().zone_at(GenerationNumber(number), zone);
            Source::Past(Box::new(zone.with_context(|| OfAgent(place.name.clone()))?))
        } else {
            if let Some(fault) = agent.disk().mount_fault(zone) {
                return Err(anyhow!(fault).context(format!("{of}:{mount}")));
            }
            let specs = agent.disk().zones();
            let is_shared = specs.get(usize::from(zone)).is_some_and(|spec| spec.shared.is_some());
            Source::Agent { agent, zone, is_shared }
        };
        let is_folder = place.path.as_ref().is_some_and(|path| path.ends_with('/'));
        let path = path.trim_start_matches('/').to_string();
        Ok(Self { source, mount: mount.into(), path, is_folder, of })
    }

    /// A path of the zone as the operator writes it.
    pub fn shown(&self, path: &str) -> String {
        let slash = if path.is_empty() && !self.mount.is_empty() { "" } else { "/" };
        format!("{}:{}{slash}{path}", self.of, self.mount)
    }

    /// The path that was asked for, as the operator writes it.
    pub fn target(&self) -> String {
        self.shown(&self.path)
    }

    /// What the path that was asked for is called.
    pub fn name(&self) -> &str {
        let path = match &self.source {
            _ if !self.path.is_empty() => &self.path,
            Source::Shared(zone) => zone.name(),
            _ => &self.mount,
        };
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Works on the zone. An error names `path`.
    pub fn with<R>(
        &mut self,
        path: &str,
        work: impl FnOnce(&mut Zone, Access) -> Result<R, ZoneError>,
    ) -> anyhow::Result<R> {
        let access = Access::new(Principal::Host, Timestamp::now());
        let result = match &mut self.source {
            Source::Past(zone) => Some(work(zone, access)),
            Source::Agent { agent, zone, .. } => agent.disk().zone(*zone, |zone| work(zone, access)),
            Source::Shared(zone) => zone.zone(|zone| work(zone, access)),
        };
        let result = result.ok_or_else(|| anyhow!("the zone is gone"))?;
        result.map_err(|e| anyhow::Error::new(e).context(self.shown(path)))
    }

    /// Entries of the zone's change feed: of an agent's zone those that are committed.
    pub fn changes(&mut self, after: ChangeSequence, limit: usize) -> anyhow::Result<Changes> {
        match &self.source {
            Source::Agent { agent, zone, .. } => {
                let found = agent.disk().changes(*zone, after, limit);
                Ok(found.ok_or_else(|| anyhow!("the zone is gone"))??)
            }
            Source::Past(_) | Source::Shared(_) => self.with("", |z, access| z.changes(access, after, limit)),
        }
    }

    /// Refuses to change a generation, or an agent that was moved. What a sleeping agent has open stays open, whatever is removed.
    pub fn writable(&self) -> anyhow::Result<()> {
        match &self.source {
            Source::Past(_) => bail!("{}: a generation cannot be changed", self.target()),
            Source::Agent { agent, .. } => {
                agent.expect_here()?;
                if let Err(e) = agent.stand_by() {
                    tracing::warn!("files that {} has open may go with their names: {e}", self.of);
                }
            }
            Source::Shared(_) => {}
        }
        Ok(())
    }

    /// What a path of the zone stands for.
    pub fn resolve(&mut self, path: &str, follow: bool) -> anyhow::Result<Stat> {
        self.with(path, |z, access| {
            let inode = if path.is_empty() {
                Inode::ROOT
            } else {
                z.resolve(access, Inode::ROOT, path.as_bytes(), follow)?
            };
            z.stat(access, inode)
        })
    }

    /// What the path that was asked for stands for.
    pub fn resolve_target(&mut self) -> anyhow::Result<Stat> {
        self.resolve(&self.path.clone(), true)
    }

    /// Refuses a path under which nothing is told of the past: what there was never, as `had` says where nothing is
    /// there now; one with `..`, since such paths are compared and not followed; and views of the past, which
    /// never change.
    pub fn told_of(&mut self, had: impl FnOnce(&mut Self) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let path = self.path.clone();
        let now = self.resolve(&path, true);
        if path.split('/').any(|part| part == "..") {
            now?;
            bail!("{}: write the path without `..`", self.target());
        }
        let first = path.split('/').next().unwrap_or_default();
        if PAST_NAMES.contains(&first.as_bytes()) && self.with("", |z, _| Ok(z.kind().keeps_versions()))? {
            now?;
            bail!("{} is a view of the past, which never changes: write the path itself", self.target());
        }
        match now {
            Err(missing) if !had(self)? => Err(missing),
            _ => Ok(()),
        }
    }

    /// The entries of a folder, by name.
    pub fn list(&mut self, path: &str, inode: Inode) -> anyhow::Result<Vec<(String, Stat)>> {
        let mut all = Vec::new();
        let mut after: Option<Name> = None;
        loop {
            let last = after.clone();
            let some = self.with(path, |z, access| {
                let entries = z.readdir(access, inode, last.as_ref(), 1000)?;
                entries
                    .into_iter()
                    .map(|e| Ok((z.stat(access, e.inode)?, e.name)))
                    .collect::<Result<Vec<_>, ZoneError>>()
            })?;
            let Some((_, last)) = some.last() else { return Ok(all) };
            after = Some(last.clone());
            let text = |name: Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
            all.extend(some.into_iter().map(|(stat, name)| (text(name), stat)));
        }
    }

    /// Hands the content of a file on, piece by piece.
    pub fn content(
        &mut self,
        path: &str,
        inode: Inode,
        mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        self.with(path, |z, _| z.open_inode(inode))?;
        let result = (|| {
            let mut at = 0;
            let mut piece = vec![0; PIECE];
            loop {
                let read = self.with(path, |z, access| z.read(access, inode, at, &mut piece))?;
                if read == 0 {
                    return Ok(());
                }
                each(&piece[..read])?;
                at += read as u64;
            }
        })();
        self.with(path, |z, _| z.close(inode))?;
        result
    }

    /// Makes what was written durable.
    pub fn commit(&self) -> anyhow::Result<()> {
        match &self.source {
            Source::Past(_) => {}
            Source::Agent { agent, .. } => wait(|done| agent.disk().sync(done))?,
            Source::Shared(zone) => wait(|done| zone.sync(done))?,
        }
        Ok(())
    }

    /// Whether several see what is changed here, at once and for good.
    pub fn is_shared(&self) -> bool {
        matches!(self.source, Source::Shared(_) | Source::Agent { is_shared: true, .. })
    }

    /// Takes back what was written and is not committed. In a shared zone there is nothing of that.
    pub fn abandon(&self) -> anyhow::Result<()> {
        match &self.source {
            Source::Agent { agent, .. } => Ok(agent.disk().abandon()?),
            Source::Past(_) | Source::Shared(_) => Ok(()),
        }
    }
}

/// The path of something in a folder.
pub fn child(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.into() } else { format!("{folder}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place = parse("team/a@7:/workspace/x@2", None).unwrap();
        assert_eq!((place.name.as_str(), place.generation), ("team/a", Some(7)));
        assert_eq!(place.path.as_deref(), Some("/workspace/x@2"));
        assert_eq!(place.agent(), "team/a@7");
        assert_eq!(parse("a:/x", Some(3)).unwrap().generation, Some(3));
        assert_eq!(parse("a@3", Some(3)).unwrap().path, None);
        assert!(parse("a@3:/x", Some(4)).is_err());
        assert!(parse("a@first:/x", None).is_err());
    }

    #[test]
    fn paths_become_normal() {
        for (path, same) in [
            ("", "/"),
            ("/", "/"),
            ("workspace", "/workspace"),
            ("//workspace/./a/", "/workspace/a"),
            ("/workspace/.", "/workspace"),
            ("/workspace/../x", "/workspace/../x"),
        ] {
            assert_eq!(normal(path), same);
        }
        assert!(means_content(Path::new(".")) && means_content(Path::new("a/.")));
        assert!(!means_content(Path::new("a.")) && !means_content(Path::new("..")));
    }
}
