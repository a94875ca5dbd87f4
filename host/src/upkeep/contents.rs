//! What an export holds, told without taking it in.

use std::io::Read;
use std::path::Path;

use zone_vfs::id::{GenerationNumber, Timestamp, Turn};
use zone_vfs::store::{Cause, ExportAbout};
use zone_vfs::zone::Usage;

use super::ImportOptions;
use crate::agent::{Agent, AgentError};
use crate::host::{Host, HostOptions};
use crate::journal::AgentAbout;
use crate::threads;

/// What an export holds, after all the checks of an import.
#[derive(Clone, Debug)]
pub struct ExportContents {
    /// What it says of itself.
    pub export: ExportAbout,
    /// The name that an import would give the agent.
    pub name: String,
    /// What is kept about the agent, its component first.
    pub about: AgentAbout,
    /// When the agent was made.
    pub created: Timestamp,
    /// The generation at which it stands.
    pub head: GenerationNumber,
    /// Its last turn.
    pub last_turn: Turn,
    /// Its zones, in order.
    pub zones: Vec<ExportedZoneContents>,
    /// Its generations, the oldest first.
    pub generations: Vec<ExportedGeneration>,
}

/// A zone of an agent in an export.
#[derive(Clone, Debug)]
pub struct ExportedZoneContents {
    /// The zone. Of a shared one, that which an import would mount.
    pub zone: zone_vfs::store::ZoneSpec,
    /// The name of the shared zone that is to be mounted, where it is one.
    pub shared: Option<String>,
    /// What the agent uses of it; nothing of a shared one, which is not in the export.
    pub used: Usage,
}

/// A generation of an agent in an export.
#[derive(Clone, Debug)]
pub struct ExportedGeneration {
    /// Its number.
    pub number: GenerationNumber,
    /// Why it was made.
    pub cause: Cause,
    /// The last turn before it.
    pub turn: Turn,
    /// When it was made.
    pub at: Timestamp,
    /// Bytes of linear memory; none where it keeps files only.
    pub memory: Option<u64>,
    /// blake3 of the component that the memory belongs to.
    pub component: Option<[u8; 32]>,
}

impl ExportContents {
    /// Reads and checks all of an export as [`Host::import`] with these options does, and keeps nothing: it is taken into
    /// a store of its own in `scratch`, an empty folder with room for what the export holds, which the caller removes.
    /// Limits are those of `options`. Shared zones that nobody says anything about are taken for those of the export.
    ///
    /// # Errors
    ///
    /// As [`Host::import`].
    pub async fn read(
        mut from: Box<dyn Read + Send>,
        scratch: &Path,
        options: &HostOptions,
        import: ImportOptions,
    ) -> Result<Self, AgentError> {
        let (export, begun, from) = threads::run(move || {
            let mut begun = Vec::new();
            let export = ExportAbout::read(&mut Keeping { from: &mut *from, kept: &mut begun })?;
            Ok::<_, AgentError>((export, begun, from))
        })
        .await??;
        let mut options = HostOptions { folder: scratch.to_owned(), ..options.clone() };
        options.store.create = true;
        let host = Host::open(options)?;
        let agent = host.import_as_named(Box::new(std::io::Cursor::new(begun).chain(from)), import).await?;
        let contents = Self::of(&host, &agent, export)?;
        drop(agent);
        host.close()?;
        Ok(contents)
    }

    fn of(host: &Host, agent: &Agent, export: ExportAbout) -> Result<Self, AgentError> {
        let info = agent.info()?;
        let store = host.store()?;
        let shared = store.shared_zones()?;
        let mut zones = Vec::with_capacity(info.zones.len());
        for (index, zone) in (0u16..).zip(info.zones) {
            let id = zone.shared.map(|mount| mount.zone);
            let shared = shared.iter().find(|it| Some(it.id) == id).map(|it| it.name.clone());
            let used = agent.disk().zone(index, |it| it.usage()).filter(|_| shared.is_none());
            zones.push(ExportedZoneContents { zone, shared, used: used.unwrap_or_default() });
        }
        let mut generations = Vec::new();
        for it in agent.generations() {
            let about = if it.about.is_empty() { None } else { Some(agent.generation_about(&it)?) };
            generations.push(ExportedGeneration {
                number: it.number,
                memory: about
                    .as_ref()
                    .and_then(|it| it.image.as_ref())
                    .map(crate::image::ImageReference::bytes),
                component: about.map(|it| it.component),
                cause: it.cause,
                turn: it.turn,
                at: it.at,
            });
        }
        Ok(Self {
            export,
            name: info.name,
            about: agent.about()?,
            created: info.created,
            head: info.head,
            last_turn: info.last_turn,
            zones,
            generations,
        })
    }
}

/// Keeps what is read.
struct Keeping<'a> {
    from: &'a mut dyn Read,
    kept: &'a mut Vec<u8>,
}

impl Read for Keeping<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buf)?;
        self.kept.extend_from_slice(&buf[..read]);
        Ok(read)
    }
}
