//! What people read: tables, sizes, ages, errors.

use std::error::Error;
use std::fmt;
use std::io::{ErrorKind, IsTerminal, StdoutLock, Write};
use std::path::Path;
use std::time::Duration;

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use zone_vfs::id::Timestamp;
use zone_vfs::store::StoreError;

use super::terminal::{escape, escape_line};
use super::words;
use crate::AgentError;
pub use crate::size::time;

/// What helps where an agent is not found.
pub const LISTS_AGENTS: &str = "`dormouse ps` lists the agents";

/// Whoever read standard output has gone.
#[derive(Debug, thiserror::Error)]
#[error("whoever read standard output has gone")]
struct ReaderGone;

/// The status where standard output could not be written: that of `EX_IOERR`.
pub const UNWRITTEN: u8 = 74;

/// Standard output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}", said(done.as_deref()))]
struct Unwritten {
    /// What is done all the same, as a sentence.
    done: Option<String>,
    source: std::io::Error,
}

fn said(done: Option<&str>) -> String {
    done.map_or_else(
        || "standard output could not be written".into(),
        |done| format!("{done}, but its output could not be written"),
    )
}

/// Standard output. That it failed is told apart from any other error, and that its reader has gone from both.
pub struct Out(StdoutLock<'static>);

/// Standard output, for what a command prints.
pub fn out() -> Out {
    Out(std::io::stdout().lock())
}

/// Fails where standard output is a pipe that nobody reads any more: a command that waits for what there will be to print
/// learns that in no other way.
pub fn expect_reader() -> std::io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let out = std::io::stdout();
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut watched, Some(&now)) {
        Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
            marked(Err(ErrorKind::BrokenPipe.into()))
        }
        // that it cannot be asked says nothing
        _ => Ok(()),
    }
}

fn marked<T>(result: std::io::Result<T>) -> std::io::Result<T> {
    result.map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => std::io::Error::new(ErrorKind::BrokenPipe, ReaderGone),
        // it is tried again
        ErrorKind::Interrupted => e,
        kind => std::io::Error::new(kind, Unwritten { done: None, source: e }),
    })
}

/// The error of standard output that there is in a chain, not said to come after anything.
fn unwritten(e: &anyhow::Error) -> Option<&Unwritten> {
    e.chain().find_map(|cause| match cause.downcast_ref::<std::io::Error>() {
        Some(e) => e.get_ref()?.downcast_ref(),
        None => cause.downcast_ref(),
    })
}

/// Where standard output could not be written: says what is `done` all the same, unless that was said.
pub fn after<T>(done: impl FnOnce() -> String, result: anyhow::Result<T>) -> anyhow::Result<T> {
    result.map_err(|e| match unwritten(&e) {
        Some(Unwritten { done: None, source }) => {
            let source = source.raw_os_error().map_or_else(
                || std::io::Error::new(source.kind(), source.to_string()),
                std::io::Error::from_raw_os_error,
            );
            Unwritten { done: Some(done()), source }.into()
        }
        _ => e,
    })
}

/// The error of a guest's output that could not be written, where the guest was not told.
pub fn unwritten_by_guest(status: u8, message: &str) -> anyhow::Error {
    let done = Some(format!("the run is done (status {status})"));
    Unwritten { done, source: std::io::Error::other(message.to_string()) }.into()
}

/// The status that a command ends with for an error.
pub fn status_of(e: &anyhow::Error) -> u8 {
    if unwritten(e).is_some() { UNWRITTEN } else { 1 }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        marked(self.0.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        marked(self.0.flush())
    }
}

/// A command whose output nobody reads any more has come to a good end.
pub fn unless_reader_gone(result: anyhow::Result<u8>) -> anyhow::Result<u8> {
    let is_gone = |cause: &(dyn Error + 'static)| {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        inner.is_some_and(<dyn Error + Send + Sync>::is::<ReaderGone>)
    };
    match result {
        Err(e) if e.chain().any(is_gone) => Ok(0),
        result => result,
    }
}

/// Says a line on standard error, which stays one whatever is in it.
pub fn note(line: fmt::Arguments<'_>) {
    note_text(&escape_line(&line.to_string()));
}

/// Says something on standard error that may have several lines. Everything that is said there goes through here.
pub fn note_text(text: &str) {
    let line = format!("{}\n", escape(text));
    // where it cannot be said nobody is left to be told, and what is being done goes on
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Prints an error: what happened, why, and what to do next.
pub fn report(e: &anyhow::Error) {
    let mut text = words::told(e);
    if let Some(hint) = hint(e) {
        text.push_str("\n  ");
        text.push_str(&hint);
    }
    note_text(&format!("dormouse: {text}"));
}

/// Why a store could not be opened, which names the store.
pub fn of_store(e: AgentError, folder: &Path) -> anyhow::Error {
    let folder = folder.display().to_string();
    let names_it = e.to_string().contains(&folder);
    let e = anyhow::Error::new(e);
    if names_it { e } else { e.context(format!("opening the store {folder}")) }
}

/// The agent that an error is about, as context of it.
#[derive(Debug)]
pub struct OfAgent(pub String);

impl fmt::Display for OfAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hint(e: &anyhow::Error) -> Option<String> {
    if unwritten(e).is_some() {
        return None;
    }
    let name = e.downcast_ref::<OfAgent>().map_or("N", |it| &it.0);
    if e.chain().any(|it| matches!(store_error(it), Some(StoreError::NoGeneration { .. }))) {
        return Some(format!("`dormouse generations {name}` lists those that are kept"));
    }
    fixed_hint(e).map(Into::into)
}

/// The store's error that `e` is, wrapped or not.
fn store_error<'e>(e: &'e (dyn Error + 'static)) -> Option<&'e StoreError> {
    match e.downcast_ref::<AgentError>() {
        Some(AgentError::Store(e)) => Some(e),
        Some(_) => None,
        None => e.downcast_ref::<StoreError>(),
    }
}

fn fixed_hint(e: &anyhow::Error) -> Option<&'static str> {
    for cause in e.chain() {
        match cause.downcast_ref::<AgentError>() {
            Some(AgentError::NoAgent(_)) => return Some(LISTS_AGENTS),
            Some(AgentError::Upgrade { .. } | AgentError::StateTooLarge { .. }) => {
                return Some("`dormouse upgrade --fresh` hands nothing over: memory begins anew");
            }
            Some(e) if e.is_no_space() => return Some("nothing was lost: free some space and try again"),
            _ => {}
        }
        match store_error(cause) {
            Some(StoreError::NameTaken(_)) => {
                return Some("choose another name, or remove that agent with `dormouse rm`");
            }
            Some(StoreError::Locked { .. }) => {
                return Some("wait for it to end (`--wait` does so), or use another store with --store DIR");
            }
            Some(StoreError::DamagedAgent { may_pass: true, .. }) => {
                return Some("the disk failed, which may pass: try again; `dormouse fsck` reads everything");
            }
            Some(StoreError::DamagedAgent { .. }) => {
                return Some("the other agents are as they were; `dormouse rm N` removes this one");
            }
            Some(e) if e.is_mendable() => {
                return Some(
                    "nothing was changed: put the folder back from a copy, or have `dormouse fsck --repair` bring back what \
                     can be and say what is lost",
                );
            }
            Some(StoreError::UnfinishedRestore { .. }) => {
                return Some("`dormouse restore` begins it anew, from the same backups or others");
            }
            Some(StoreError::NoStore { .. }) => {
                return Some("`dormouse new` and `dormouse run` make one; --store DIR names another");
            }
            Some(StoreError::NotAStore { .. }) => {
                return Some("name an empty or a new folder with --store DIR");
            }
            _ => {}
        }
    }
    None
}

/// A table with a header, plain where the output is no terminal.
pub fn table(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let bold = std::io::stdout().is_terminal();
    table.set_header(
        header.iter().map(|h| if bold { Cell::new(h).add_attribute(Attribute::Bold) } else { Cell::new(h) }),
    );
    for row in rows {
        table.add_row(row.iter().map(|cell| escape_line(cell)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints a table without trailing blanks.
pub fn print_table(table: &Table) -> anyhow::Result<()> {
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    print(text.as_bytes())
}

/// Prints what is whole lines. An error is known when this returns: nothing is kept back.
fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = out();
    Ok(out.write_all(text).and_then(|()| out.flush())?)
}

/// Prints a line, which stays one whatever is in it.
pub fn say(line: fmt::Arguments<'_>) -> anyhow::Result<()> {
    print(format!("{}\n", escape_line(&line.to_string())).as_bytes())
}

/// Prints a value as JSON.
pub fn print_json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    print(&text)
}

/// Prints a value as one line of JSON.
pub fn print_json_line<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    print(&text)
}

/// A time that others stand under, in a table: of one width, and as precise as times are.
pub fn column_time(t: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0)).map_or_else(|_| t.0.to_string(), |t| format!("{t:.9}"))
}

/// A number of things, of which `one` is one: `1 file`, `2 files`.
pub fn count(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// How long ago, in one unit.
pub fn age(t: Timestamp) -> String {
    let seconds = Timestamp::now().0.saturating_sub(t.0) / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Bytes, in powers of 1024.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration, in the unit that suits it.
pub fn duration(d: Duration) -> String {
    let nanoseconds = d.as_nanos();
    match nanoseconds {
        0..1_000_000 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.1} s", d.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_read_well() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(20 << 20), "20.0 MiB");
        assert_eq!(duration(Duration::from_nanos(14_250)), "14.2 us");
        assert_eq!(duration(Duration::from_millis(12)), "12.0 ms");
        assert_eq!(duration(Duration::from_secs(2)), "2.0 s");
        assert_eq!(["0 files", "1 file", "2 files"].map(String::from), [0, 1, 2].map(|n| count(n, "file")));
    }

    #[test]
    fn times_in_columns_have_one_width() {
        let (whole, part) = (Timestamp(1_800_000_000_000_000_000), Timestamp(1_800_000_000_120_000_000));
        assert_eq!(column_time(part), "2027-01-15T08:00:00.120000000Z");
        assert_eq!(column_time(whole).len(), column_time(part).len());
    }

    #[test]
    fn a_generation_that_is_not_there_is_looked_for_where_it_may_be() {
        let missing = || StoreError::NoGeneration { generation: zone_vfs::id::GenerationNumber(7) };
        let of_agent = anyhow::Error::new(AgentError::from(missing())).context(OfAgent("scribe".into()));
        assert_eq!(words::told(&of_agent), "scribe: no generation 7");
        let hint = hint(&of_agent.context("more"));
        assert_eq!(hint.as_deref(), Some("`dormouse generations scribe` lists those that are kept"));
    }
}
