//! The command line.
//!
//! Exit status: a run's own for `run`; otherwise 0, 1 for what failed, 2 for wrong usage, 74 where standard
//! output could not be written, 130 after Ctrl-C, 143 after SIGTERM, 134 for a guest that trapped.

mod agents;
mod args;
mod contents;
mod diff;
mod finding;
mod inspect;
mod life;
mod limits;
mod log;
mod output;
mod progress;
mod replay;
mod run;
mod send;
mod stop;
mod storage;
mod terminal;
mod travel;
mod upgrade;
mod words;
mod zone;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use zone_vfs::store::StoreError;

use self::args::{Arguments, Command, CompileArguments};
use crate::code::{COMPILER_VARIABLE, Compiler};
use crate::{AgentError, Host, HostOptions, ImagePolicy};

/// The status of a guest that trapped: what a shell shows for an abort.
const TRAPPED: u8 = 134;

/// The variable that says how much memory what is read may take.
const CACHE_VARIABLE: &str = "DORMOUSE_CACHE";
/// The least that it may say. Bytes.
const MIN_CACHE: u64 = 1 << 20;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // clap sees no conflict between an option of all commands and one of this
    if let Command::Limits(a) = &arguments.command
        && let Some((set, none)) = limits::conflict(a, arguments.max_memory, arguments.max_cpu)
    {
        let told = format!("the argument '{set}' cannot be used with '{none}'");
        Arguments::command().error(ErrorKind::ArgumentConflict, told).exit();
    }
    refuse_large_files_with_an_error();
    let filter = variable("DORMOUSE_LOG").and_then(|v| v.into_string().ok());
    tracing_subscriber::fmt()
        .with_env_filter(
            filter
                .and_then(|f| tracing_subscriber::EnvFilter::try_new(f).ok())
                .unwrap_or_else(|| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // it would say so on standard error, and panic where that cannot be done
        .log_internal_errors(false)
        .init();
    if let Command::Compile(CompileArguments { memory, seconds, folder }) = &arguments.command {
        return match crate::code::compile_child(*memory, *seconds, folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                output::note(format_args!("{e}"));
                ExitCode::FAILURE
            }
        };
    }
    // all that blocks has threads of its own; a runtime that starts some panics where the system gives none
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            output::note(format_args!("dormouse: starting: {e}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(dispatch(arguments));
    // a thread that still reads standard input must not keep the process
    runtime.shutdown_background();
    match output::unless_reader_gone(result) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            output::report(&e);
            ExitCode::from(output::status_of(&e))
        }
    }
}

/// A variable of the environment; an empty one counts as none.
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Bytes of memory for what is read, where somebody says.
fn cache() -> anyhow::Result<Option<usize>> {
    let Some(text) = variable(CACHE_VARIABLE) else { return Ok(None) };
    let bytes = crate::size::parse(&text.to_string_lossy()).with_context(|| CACHE_VARIABLE.to_string())?;
    anyhow::ensure!(
        bytes >= MIN_CACHE,
        "{CACHE_VARIABLE}: {bytes} bytes, where at least {MIN_CACHE} are needed"
    );
    Ok(Some(usize::try_from(bytes).unwrap_or(usize::MAX)))
}

/// A file that would grow beyond `ulimit -f` is an error of the write, not the end of the process.
fn refuse_large_files_with_an_error() {
    // SAFETY: ignoring a signal runs no code of ours, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

async fn dispatch(arguments: Arguments) -> anyhow::Result<u8> {
    let store = arguments.store.or_else(|| variable("DORMOUSE_STORE").map(Into::into));
    if let Command::Inspect(inspect) = arguments.command {
        return inspect::inspect(&inspect, store, arguments.wait).await;
    }
    let is_named = store.is_some();
    let mut options = HostOptions::new(match store {
        Some(folder) => folder,
        None => default_store()?,
    });
    // a store begins with the first agent; a mistyped name makes none
    options.store.create =
        matches!(arguments.command, Command::New(_) | Command::Run(_) | Command::Import(_));
    // what is set for one agent is no bound of the host's
    let is_agents = matches!(arguments.command, Command::Limits(_));
    if let Some(limit) = arguments.max_memory.filter(|_| !is_agents) {
        options.memory.memory = usize::try_from(limit).unwrap_or(usize::MAX);
    }
    // a command ends soon: what has no image would be run again by the next
    options.images = ImagePolicy::EVERY_TURN;
    options.cpu_time = arguments.max_cpu;
    if let Some(bytes) = cache()? {
        // for content as for the trees of zones
        options.store.cache = bytes / 2;
        options.store.nodes = bytes / 2;
    }
    if let Command::Reap(a) = &arguments.command
        && let Some(limit) = a.image_cache
    {
        options.image_cache = limit;
    }
    if let Command::Restore(a) = &arguments.command {
        let restored = output::unless_reader_gone(storage::restore(&options, a).await);
        return output::after(|| "what was asked for is done".into(), restored);
    }
    options.compiler = Some(match variable(COMPILER_VARIABLE) {
        Some(_) => Compiler::find()?,
        None => Compiler::this()?,
    });
    // what comes through a pipe is read before the store is opened: until then nobody is kept waiting
    let (mut payload, mut piped, mut spooled) = (Vec::new(), None, None);
    match &arguments.command {
        // nor is a store made for a file that is not there
        Command::New(a) => run::expect_component(&a.component)?,
        Command::Run(a) => a.command.first().map_or(Ok(()), |path| run::expect_component(Path::new(path)))?,
        Command::Import(a) => spooled = travel::spool(&a.from)?,
        Command::Send(a) => payload = send::payload(a)?,
        Command::Log(a) if a.follow => return log::follow(options, a).await,
        Command::Zone(a) => {
            if let Some(what) = zone::followed(a)? {
                return zone::follow(options, what).await;
            }
            piped = zone::piped(a)?;
        }
        _ => {}
    }
    let folder = options.folder.clone();
    if let Command::Import(a) = &arguments.command
        && a.dry_run
    {
        let limits = (arguments.max_memory, arguments.max_cpu);
        return contents::look(options, a, spooled, limits, arguments.wait).await;
    }
    let mut mended = None;
    let host = match open(options.clone(), arguments.wait).await {
        Err(AgentError::Store(e)) if e.is_mendable() => match &arguments.command {
            Command::Fsck(a) if a.repair => {
                let mending = || format!("mending the store {}", folder.display());
                mended = Some(storage::mend(&options, &e, a).with_context(mending)?);
                open(options, arguments.wait).await
            }
            _ => Err(e.into()),
        },
        // before the first agent there is nothing in the usual place, which is no mistake
        Err(AgentError::Store(StoreError::NoStore { .. })) if !is_named => match &arguments.command {
            Command::Ps(a) => return output::unless_reader_gone(agents::list_none(a)),
            _ => Err(StoreError::NoStore { folder: folder.display().to_string() }.into()),
        },
        opened => opened,
    };
    let host = host.map_err(|e| output::of_store(e, &folder))?;
    let changes = match &arguments.command {
        Command::Limits(a) => limits::changes(a, arguments.max_memory, arguments.max_cpu),
        command => changes(command),
    };
    let result = match arguments.command {
        Command::Run(a) => run::run(&host, a).await,
        Command::New(a) => agents::new(&host, a, arguments.max_memory, arguments.max_cpu).await,
        Command::Rm(a) => agents::remove(&host, a).await,
        Command::Ps(a) => agents::list(&host, &a),
        Command::Logs(a) => agents::logs(&host, &a),
        Command::Send(a) => send::send(&host, a, payload).await,
        Command::Pause(a) => life::pause(&host, &a).await,
        Command::Resume(a) => life::resume(&host, &a).await,
        Command::Fork(a) => life::fork(&host, &a).await,
        Command::Rewind(a) => life::rewind(&host, &a).await,
        Command::Upgrade(a) => upgrade::upgrade(&host, &a).await,
        Command::Limits(a) => limits::limits(&host, &a, arguments.max_memory, arguments.max_cpu).await,
        Command::Generations(a) => life::generations(&host, &a),
        Command::Replay(a) => replay::replay(&host, &a).await,
        Command::Log(a) => log::log(&host, &a),
        Command::Trace(a) => log::trace(&host, &a),
        Command::Pin(a) => life::pin(&host, &a, true).await,
        Command::Unpin(a) => life::pin(&host, &a, false).await,
        Command::Zone(a) => zone::zone(&host, a, piped).await,
        Command::Diff(a) => diff::diff(&host, &a),
        Command::Du(a) => storage::du(&host, &a).await,
        Command::Fsck(a) => storage::fsck(&host, &a, mended.is_some(), mended.unwrap_or_default()).await,
        Command::Backup(a) => storage::backup(&host, &a).await,
        Command::Export(a) => travel::export(&host, &a).await,
        Command::Import(a) => {
            let limits = (arguments.max_memory, arguments.max_cpu);
            travel::import(&host, &a, spooled, limits).await
        }
        Command::Reap(a) => storage::reap(&host, &a).await,
        Command::Inspect(_) | Command::Compile(_) | Command::Restore(_) => Ok(0),
    };
    let closed = host.close().context("closing the store");
    let code = output::unless_reader_gone(result);
    let code = if changes { output::after(|| "what was asked for is done".into(), code) } else { code }?;
    closed?;
    Ok(code)
}

/// Whether a command changes something. It is done then before it is told.
fn changes(command: &Command) -> bool {
    match command {
        Command::New(_)
        | Command::Rm(_)
        | Command::Pause(_)
        | Command::Resume(_)
        | Command::Fork(_)
        | Command::Rewind(_)
        | Command::Pin(_)
        | Command::Unpin(_)
        | Command::Upgrade(_)
        | Command::Restore(_) => true,
        Command::Import(a) => !a.dry_run,
        Command::Fsck(a) => a.repair,
        Command::Reap(a) => !a.dry_run,
        Command::Backup(a) => a.to.as_os_str() != "-",
        Command::Export(a) => a.to.as_os_str() != "-",
        Command::Zone(a) => zone::changes(a),
        // a run and a turn say more, by themselves
        Command::Run(_)
        | Command::Send(_)
        | Command::Ps(_)
        | Command::Logs(_)
        | Command::Generations(_)
        | Command::Limits(_)
        | Command::Replay(_)
        | Command::Log(_)
        | Command::Trace(_)
        | Command::Diff(_)
        | Command::Du(_)
        | Command::Inspect(_)
        | Command::Compile(_) => false,
    }
}

/// Opens the store, and waits so long while another process has it open.
async fn open(options: HostOptions, wait: Option<Duration>) -> Result<Host, AgentError> {
    /// How often it is tried.
    const EVERY: Duration = Duration::from_millis(20);
    let end = wait.and_then(|wait| Instant::now().checked_add(wait));
    loop {
        match Host::open(options.clone()) {
            Err(AgentError::Store(StoreError::Locked { .. }))
                if wait.is_some() && end.is_none_or(|end| Instant::now() < end) =>
            {
                tokio::time::sleep(EVERY).await;
            }
            opened => return opened,
        }
    }
}

/// Where the store is when nobody says otherwise.
fn default_store() -> anyhow::Result<std::path::PathBuf> {
    let base = if cfg!(target_os = "macos") {
        std::env::home_dir().map(|h| h.join("Library/Application Support"))
    } else {
        std::env::var_os("XDG_DATA_HOME")
            .map(std::path::PathBuf::from)
            .filter(|p| p.is_absolute())
            .or_else(|| std::env::home_dir().map(|h| h.join(".local/share")))
    };
    let base =
        base.context("there is no home folder for the store: name one by --store DIR or DORMOUSE_STORE")?;
    Ok(base.join("dormouse"))
}
