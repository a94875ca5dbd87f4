//! Exports: an agent as one file, with its components and the images of all its generations.
//!
//! What is the store's own stays: compiled code, names of image files, shared zones. So does the agent's environment,
//! which may be secret.

use std::collections::BTreeSet;
use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;

use tokio::sync::oneshot;
use zone_vfs::store::{Disk, ExportReport, Exporting, Generation, StoreError, StreamFile};

use crate::agent::{Agent, AgentError, Entered, await_done};
use crate::host::{Host, HostShared};
use crate::journal::{self, AgentAbout, GenerationAbout};
use crate::threads;

impl Host {
    /// Writes an agent to `to`: components, memory of all generations, zones and history, as it was committed last. A
    /// turn that is going on is waited for, and the next can begin as soon as it is settled what is exported.
    ///
    /// What `to` gets is not encrypted. It holds no environment, no compiled code, and nothing of shared zones.
    ///
    /// # Errors
    ///
    /// [`AgentError::ImageLost`] where the memory of a generation does not read: an export lacks nothing.
    pub async fn export(
        &self,
        agent: &Agent,
        mut to: Box<dyn Write + Send>,
    ) -> Result<ExportReport, AgentError> {
        let entered = self.archived(agent).await?;
        let (shared, disk) = (self.shared.clone(), agent.disk().clone());
        let (frozen, is_frozen) = oneshot::channel();
        let export = threads::run(move || shared.export(&disk, &mut *to, false, Some(frozen)));
        let turns = async {
            // it ended before, where the sender is gone
            let _ = is_frozen.await;
            drop(entered);
        };
        let (exported, ()) = tokio::join!(export, turns);
        exported?
    }

    /// As [`export`](Self::export), and nothing here goes on with the agent from then on: it is marked, durably, when
    /// all was written and `finish` has made that durable, to be read and removed only. Whoever comes to the agent meanwhile
    /// waits, and is refused then. Where any of it fails, the agent goes on here.
    ///
    /// # Errors
    ///
    /// Those of [`export`](Self::export), what `finish` says, and [`AgentError::Moved`] where it was moved before.
    pub async fn export_move(
        &self,
        agent: &Agent,
        mut to: Box<dyn Write + Send>,
        finish: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<ExportReport, AgentError> {
        agent.expect_here()?;
        let mut entered = self.archived(agent).await?;
        // it may have been moved while this waited
        agent.expect_here()?;
        let (shared, disk) = (self.shared.clone(), agent.disk().clone());
        let finished = threads::run(move || {
            let report = shared.export(&disk, &mut *to, true, None)?;
            drop(to);
            finish().map_err(writing)?;
            Ok::<_, AgentError>(report)
        });
        let report = finished.await??;
        let about = AgentAbout { moved: Some(report.made), ..agent.about()? };
        let about = journal::encode(&about)?;
        agent.place.note_here(false);
        await_done(agent.disk(), |done| agent.disk().set_about(&about, done)).await?;
        *entered = None;
        Ok(report)
    }

    /// Archives all of an agent's memory, most of it while turns go on, and waits for the turn that is going on. What has
    /// no image gets one: whoever takes the export in has other ids and clocks than turns that are run again would need.
    async fn archived<'a>(&self, agent: &'a Agent) -> Result<Entered<'a>, AgentError> {
        let archive = {
            let (shared, disk) = (self.shared.clone(), agent.disk().clone());
            move || shared.archive_of(&disk)
        };
        let disk = agent.disk();
        for generation in disk.generations().into_iter().filter(|it| it.number != disk.head()) {
            agent.completed_or_gone(&mut None, generation.number).await?;
        }
        threads::run(archive.clone()).await??;
        let mut entered = agent.enter_wherever().await?;
        for generation in disk.generations() {
            agent.completed_or_gone(&mut entered, generation.number).await?;
        }
        threads::run(archive).await??;
        Ok(entered)
    }
}

fn writing(source: io::Error) -> AgentError {
    AgentError::Io { what: "writing the export".into(), source }
}

impl HostShared {
    /// Must not be called from an async task: it waits.
    fn export(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
        to: &mut dyn Write,
        is_move: bool,
        mut frozen: Option<oneshot::Sender<()>>,
    ) -> Result<ExportReport, AgentError> {
        let store = self.store()?;
        let info = disk.info()?;
        // no file goes that a generation names; turns go on
        let _files_stay = self.imaging.blocking_read();
        let mut begin = |generations: &[Generation]| {
            if let Some(frozen) = frozen.take() {
                // who waited may have gone
                let _ = frozen.send(());
            }
            let about: AgentAbout = journal::decode(&info.about).map_err(cannot)?;
            let mut components = BTreeSet::from([about.component]);
            for generation in generations {
                let Some(it) = generation_about(&store.payload(&generation.about)?)? else { continue };
                if it.image.is_some() && generation.attachment.is_none() {
                    let reason = format!("the memory of generation {} is not archived", generation.number);
                    return Err(cannot(reason));
                }
                components.insert(it.component);
            }
            let files = components.iter().map(|hash| self.component_file(hash)).collect::<Result<_, _>>()?;
            let about = AgentAbout { env: Vec::new(), parent: None, moved: None, ..about };
            Ok((journal::encode(&about).map_err(cannot)?, files))
        };
        let report = store.export(
            disk,
            to,
            &mut Exporting {
                begin: &mut begin,
                generation: &mut |_, bytes| {
                    let Some(mut about) = generation_about(bytes)? else { return Ok(Vec::new()) };
                    about.image = about.image.map(|image| image.without_files());
                    journal::encode(&about).map_err(cannot)
                },
                is_move,
            },
        )?;
        to.flush().map_err(writing)?;
        Ok(report)
    }

    /// A component, which is read and checked now and again when it is its turn.
    fn component_file(self: &Arc<Self>, hash: &[u8; 32]) -> Result<StreamFile, StoreError> {
        let len = self.components.read(hash).map_err(cannot)?.len() as u64;
        let (shared, hash) = (self.clone(), *hash);
        let open = move || {
            let bytes = shared.components.read(&hash).map_err(io::Error::other)?;
            Ok(Box::new(Cursor::new(bytes)) as Box<dyn Read>)
        };
        let name = blake3::Hash::from_bytes(hash).to_hex().to_string();
        Ok(StreamFile { name, len, hash, open: Box::new(open) })
    }

    /// Archives the images of all of an agent's generations. Must not be called from an async task: it waits.
    fn archive_of(&self, disk: &Arc<Disk>) -> Result<(), AgentError> {
        let _files_stay = self.imaging.blocking_read();
        for generation in disk.generations() {
            match self.archive_now(disk, &generation) {
                // dropped meanwhile
                Err(AgentError::Store(StoreError::NoGeneration { .. })) => {}
                Err(AgentError::Image(source)) if source.is_lost() => {
                    let reason = "an export lacks nothing: `dormouse fsck --repair` makes whole what can be, and \
                                  `dormouse rm AGENT@GENERATION` drops a generation that does not read";
                    return Err(AgentError::ImageLost { generation: generation.number, reason, source });
                }
                archived => archived?,
            }
        }
        Ok(())
    }
}

/// The embedder's part of a generation; none where it keeps files only.
fn generation_about(bytes: &[u8]) -> Result<Option<GenerationAbout>, StoreError> {
    if bytes.is_empty() { Ok(None) } else { journal::decode(bytes).map(Some).map_err(cannot) }
}

fn cannot(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Export(format!("cannot be made: {reason}"))
}
