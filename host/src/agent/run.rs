//! A run of a command: one turn from genesis to exit.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::TypedFunc;
use zone_vfs::id::{GenerationNumber, Turn};
use zone_vfs::store::{Cause, NewGeneration, TurnStyle};

use super::generation::await_done;
use super::turn::failed;
use super::{Agent, AgentError, Live, Place};
use crate::code::metered;
use crate::image::{FlatName, ImageError, ImageStore};
use crate::journal::{self, AgentAbout, EventRecord, GenerationAbout, OutcomeRecord, World};
use crate::wasi::{Exit, GuestState, HandleTable, Lifecycle, LiveOutside, Mounts, Start, Stdio};

/// How a command is run.
#[derive(Debug, Default)]
pub struct RunOptions {
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Environment, added to the agent's own.
    pub env: Vec<(String, String)>,
    /// Standard streams.
    pub stdio: Stdio,
    /// The run is ended when it takes longer.
    pub timeout: Option<Duration>,
}

/// What became of a run. What it wrote is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The turn.
    pub turn: Turn,
    /// Its exit status, or why it ended without one.
    pub status: Result<u8, String>,
    /// The generation that was made, if the run ended.
    pub generation: Option<GenerationNumber>,
}

enum Ended {
    Exit(u8),
    Trapped(String),
    Stopped(AgentError),
}

/// The instance of a run, of which is asked in the end whether all that was used of its memory could be read: also where
/// nobody waits for the run any more, and the next who comes to the agent settles it.
struct Asked {
    live: Option<Live>,
    images: Arc<ImageStore>,
    /// What the memory is mapped from.
    base: FlatName,
    place: Arc<Place>,
}

impl Asked {
    /// Ends the instance. Gives what is wrong with the image beneath it, as far as it was used.
    fn end(&mut self) -> Option<ImageError> {
        let wrong = self.live.take().and_then(|live| live.look());
        if wrong.is_some() {
            self.images.note_unreadable(&self.base);
        }
        wrong
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.end().is_some() {
            self.place.note_unreadable();
        }
    }
}

impl Agent {
    /// Runs the command to its end. It is a process as on any system: what it wrote stays, whatever
    /// its exit status, also when it traps or `cancel` comes first.
    pub async fn run(
        &self,
        options: RunOptions,
        cancel: impl Future<Output = ()>,
    ) -> Result<RunOutcome, AgentError> {
        self.expect(World::Command, "its turns are taken by `dormouse send`, not `run`")?;
        let running = self.enter().await?;
        let info = self.disk.info()?;
        let about: AgentAbout = journal::decode(&info.about)?;
        let template = self.template_of(&about.component).await?;
        let genesis = template.genesis(&self.host.images).await?;
        let (limits, cpu_time) = (self.limits(&about), self.cpu_time(&about));
        genesis.fits(&limits)?;
        let event = EventRecord::Run(options.args.clone());
        let starts = self.generation_about(&self.disk.generation(info.head)?)?.starts + 1;
        let mut env = about.env.clone();
        for (key, value) in options.env {
            env.retain(|(k, _)| *k != key);
            env.push((key, value));
        }
        let mut state = GuestState {
            args: std::iter::once(about.component_name.clone()).chain(options.args).collect(),
            env: env.into(),
            stdio: options.stdio,
            lifecycle: Lifecycle::of(&info, self.host.fresh_start(starts), Start::Created),
            limits,
            before_forgetting: Some(self.purging()),
            ..GuestState::over(LiveOutside::new(0, true))
        };
        let mounts = Mounts::of(&info.zones);
        let turn = self.disk.begin(TurnStyle::Process, &journal::encode(&event)?)?;
        let time = state.cpu.begin(cpu_time);
        let made = async {
            if genesis.touched.any() {
                state.attach(self.disk.clone(), &mounts, false)?;
                template.boot(state).await
            } else {
                state.table = genesis.handles.clone();
                state.attach(self.disk.clone(), &mounts, false)?;
                let (mut live, _) = template.slot(&genesis.image, limits, &self.host).await?;
                live.restore(&genesis.image, state).await?;
                Ok(live)
            }
        };
        // it outlives its call, and is asked whatever becomes of that
        let mut asked = Asked {
            live: None,
            images: self.host.images.clone(),
            base: genesis.image.reference().base().clone(),
            place: self.place.clone(),
        };
        let ended = {
            // also what its instantiation computes
            let whole = metered(time, async { Ok(call_run(asked.live.insert(made.await?)).await) });
            let limit = options.timeout;
            let timeout = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = whole => ended,
                () = cancel => Ok(Ended::Stopped(AgentError::Cancelled)),
                () = timeout => Ok(Ended::Stopped(AgentError::Timeout(limit.unwrap_or_default()))),
            }
        };
        let ended = match asked.end() {
            Some(wrong) => Err(self.not_read(genesis.image.reference().base(), wrong)),
            None => ended,
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(e) => {
                self.abandon().await?;
                if let AgentError::ImageRead { source, .. } = &e
                    && let Err(not) = self.mend_genesis(&template, source).await
                {
                    // the next run tries again, and is told
                    tracing::warn!("the genesis image was not made again: {}", zone_vfs::told(&not));
                }
                return Err(e);
            }
        };
        let result = self.finish_run(turn, ended, about.component, starts).await;
        if let Err(e) = &result
            && !matches!(e, AgentError::Cancelled | AgentError::Timeout(_))
        {
            self.abandon().await?;
        }
        self.disk.release()?;
        drop(running);
        result
    }

    async fn finish_run(
        &self,
        turn: Turn,
        ended: Ended,
        component: [u8; 32],
        starts: u64,
    ) -> Result<RunOutcome, AgentError> {
        match ended {
            Ended::Exit(status) => {
                let about = GenerationAbout {
                    component,
                    component_name: Some(self.about()?.component_name),
                    layout: crate::component::LAYOUT_VERSION,
                    image: None,
                    handles: HandleTable::default(),
                    monotonic: 0,
                    starts,
                    next_start: Start::Resumed,
                };
                let outcome = journal::encode(&OutcomeRecord::Exit(status))?;
                let generation =
                    NewGeneration { cause: Cause::Turn, about: journal::encode(&about)?, on: None };
                self.before_forgetting().await?;
                let number =
                    await_done(&self.disk, |done| self.disk.end(&outcome, Some(generation), done)).await?;
                Ok(RunOutcome { turn, status: Ok(status), generation: Some(number) })
            }
            Ended::Trapped(reason) => {
                self.settled_fail(&reason).await?;
                Ok(RunOutcome { turn, status: Err(reason), generation: None })
            }
            Ended::Stopped(reason) => {
                self.settled_fail(&reason.to_string()).await?;
                Err(reason)
            }
        }
    }

    /// Fails a turn once no commit of it is under way.
    pub(super) async fn settled_fail(&self, reason: &str) -> Result<(), AgentError> {
        if self.about()?.world == World::Command {
            // what a process has forgotten stays forgotten, however it ends
            self.before_forgetting().await?;
        }
        loop {
            match await_done(&self.disk, |done| self.disk.fail(reason, done)).await {
                Err(zone_vfs::store::StoreError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
                // its last commit was under way, and has ended it
                Err(zone_vfs::store::StoreError::NoTurn) => return Ok(()),
                result => return result.map(|_| ()).map_err(Into::into),
            }
        }
    }
}

async fn call_run(live: &mut Live) -> Ended {
    let run = match run_export(live) {
        Ok(run) => run,
        Err(e) => return Ended::Stopped(e),
    };
    live.store.set_epoch_deadline(1);
    let ended = run.call_async(&mut live.store, ()).await;
    // the run is not over before what it has printed is
    live.store.data_mut().stdio.settled().await;
    match ended {
        Ok((Ok(()),)) => Ended::Exit(0),
        Ok((Err(()),)) => Ended::Exit(1),
        Err(e) => match e.downcast_ref::<Exit>() {
            Some(exit) => Ended::Exit(exit.0),
            None => match failed(&e) {
                AgentError::Trap { reason } => Ended::Trapped(reason),
                e => Ended::Stopped(e),
            },
        },
    }
}

type Run = TypedFunc<(), (Result<(), ()>,)>;

fn run_export(live: &mut Live) -> Result<Run, AgentError> {
    let instance = live.instance;
    let missing = |e: String| AgentError::Instantiate(format!("its `wasi:cli/run` cannot be called: {e}"));
    for minor in (0..=MAX_RUN_MINOR).rev() {
        let name = format!("wasi:cli/run@0.2.{minor}");
        if let Some(interface) = instance.get_export_index(&mut live.store, None, &name) {
            let function = instance.get_export_index(&mut live.store, Some(&interface), "run");
            let function = function.ok_or_else(|| missing("it exports no function `run`".into()))?;
            return instance.get_typed_func(&mut live.store, function).map_err(|e| missing(format!("{e:#}")));
        }
    }
    Err(missing("no version of it is exported".into()))
}

/// The newest 0.2.x of `wasi:cli/run` that is looked for.
const MAX_RUN_MINOR: u32 = 99;
