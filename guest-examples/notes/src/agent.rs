//! The agent: its state, and what each command does with it.

use std::collections::BTreeMap;
use std::fs::{self, File, ReadDir};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::time::{Duration, Instant, SystemTime};

use crate::bindings::StartCause;
use crate::command::Command;
use crate::handover;
use crate::life::{self, Dice};
use crate::load::{self, Ballast};
use crate::past;
use crate::zones;

/// What a command answers: text for the sender, or why it could not be done.
type Answer = Result<String, String>;

/// All that the agent knows. None of it is ever saved by this program, but for another version of it.
pub struct Agent {
    turns: u64,
    started: Option<Instant>,
    notes: Vec<String>,
    facts: BTreeMap<String, String>,
    numbers: Box<dyn Iterator<Item = u64>>,
    dice: Dice,
    ballast: Ballast,
    journal: Option<Journal>,
    folder: Option<ReadDir>,
    starts: Vec<String>,
}

/// Starts that are remembered.
const STARTS: usize = 100;

/// The journal, open twice: to append to it, and to read along behind.
struct Journal {
    end: File,
    reader: BufReader<File>,
}

impl Journal {
    fn open() -> io::Result<Self> {
        let end = zones::appender(zones::JOURNAL)?;
        let reader = BufReader::new(File::open(zones::JOURNAL)?);
        Ok(Self { end, reader })
    }
}

/// 0, 1, 1, 2, 3, 5, ... Where it stands is known to the closure alone.
fn fibonacci() -> Box<dyn Iterator<Item = u64>> {
    let (mut this, mut next) = (0_u64, 1_u64);
    Box::new(std::iter::from_fn(move || {
        let number = this;
        (this, next) = (next, this.wrapping_add(next));
        Some(number)
    }))
}

impl Agent {
    /// A new agent, which knows nothing.
    pub fn new() -> Self {
        Self {
            turns: 0,
            started: None,
            notes: Vec::new(),
            facts: BTreeMap::new(),
            numbers: fibonacci(),
            dice: Dice::new(),
            ballast: Ballast::default(),
            journal: None,
            folder: None,
            starts: Vec::new(),
        }
    }

    /// Its memory has come to life.
    pub fn resumed(&mut self, cause: StartCause, generation: u64) {
        let many = self.starts.len().saturating_sub(STARTS - 1);
        self.starts.drain(..many);
        self.starts.push(format!("{} {generation}", life::cause(cause)));
    }

    /// What another version of it is to know.
    pub fn save(&self) -> Vec<u8> {
        let facts = self.facts.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        handover::write(self.turns, self.notes.iter().map(String::as_str), facts)
    }

    /// An agent that knows what another version saved.
    pub fn load(state: &[u8]) -> Result<Self, String> {
        let (turns, notes, facts) = handover::read(state)?;
        Ok(Self { turns, notes, facts, ..Self::new() })
    }

    /// One turn.
    pub fn run(&mut self, command: Command) -> Answer {
        self.turns += 1;
        let told = |error: io::Error| error.to_string();
        match command {
            Command::Note(text) => self.note(&text).map_err(told),
            Command::List => Ok(self.list()),
            Command::Status => self.status().map_err(told),
            Command::ForgetTry => self.forget_try(),
            Command::Draft(text) => {
                zones::append_line(zones::DRAFT, &text).map(|()| "drafted".into()).map_err(told)
            }
            Command::ShowDraft => fs::read_to_string(zones::DRAFT).map_err(told),
            Command::Remember(key, value) => self.remember(key, value).map_err(told),
            Command::Recall(key) => {
                self.facts.get(&key).cloned().ok_or_else(|| format!("nothing is known of {key:?}"))
            }
            Command::Next => self.numbers.next().map(|n| n.to_string()).ok_or_else(|| "no more".into()),
            Command::Line => self.line().map_err(told),
            Command::Entry => self.entry().map_err(told),
            Command::Who => Ok(life::who(self.turns)),
            Command::Past(text) => past::told(&text),
            Command::Starts => Ok(self.starts.join("\n")),
            Command::Random => {
                let host = wasip2::random::random::get_random_u64();
                Ok(format!("{host:016x} {:016x}", self.dice.roll()))
            }
            Command::Time => self.time(),
            Command::Write(path, text) => {
                fs::write(path, &text).map(|()| format!("wrote {} bytes", text.len())).map_err(told)
            }
            Command::WriteSync(path, text) => write_sync(&path, &text).map_err(told),
            Command::Read(path) => fs::read_to_string(path).map_err(told),
            Command::Ls(path) => ls(&path).map_err(told),
            Command::Print(text) => print(&text).map_err(told),
            Command::Grow(mebibytes) => self.ballast.grow(mebibytes),
            Command::TouchPages(count) => self.ballast.touch(count),
            Command::Panic => panic!("the agent was told to panic"),
            Command::Spin => load::spin(),
            Command::Sleep(milliseconds) => {
                std::thread::sleep(Duration::from_millis(milliseconds));
                Ok("awake".into())
            }
            Command::Exit(code) => std::process::exit(code.into()),
        }
    }

    fn journal(&mut self) -> io::Result<&mut Journal> {
        if self.journal.as_ref().is_some_and(|journal| journal.end.metadata().is_err()) {
            // the operator had the file forgotten: what was open of it leads nowhere
            self.journal = None;
        }
        match &mut self.journal {
            Some(journal) => Ok(journal),
            closed @ None => Ok(closed.insert(Journal::open()?)),
        }
    }

    /// Memory and four zones change together here, so that a turn which is torn apart shows.
    fn note(&mut self, text: &str) -> io::Result<String> {
        let text = text.replace('\n', " ");
        let number = self.notes.len() + 1;
        zones::learn_how_to()?;
        writeln!(self.journal()?.end, "note {number}: {text}")?;
        self.notes.push(text);
        zones::replace_notes(&self.notes)?;
        zones::append_line(zones::LOG, &format!("turn {}: kept note {number}", self.turns))?;
        Ok(format!("kept note {number}"))
    }

    fn list(&self) -> String {
        let lines = self.notes.iter().enumerate().map(|(at, note)| format!("{}. {note}", at + 1));
        match self.notes.len() {
            0 => "no notes yet".into(),
            _ => lines.collect::<Vec<_>>().join("\n"),
        }
    }

    fn status(&mut self) -> io::Result<String> {
        let memory = self.notes.len();
        let journal = zones::count_lines(zones::JOURNAL)?;
        let semantic = zones::count_lines(zones::NOTES)?;
        let logs = zones::count_lines(zones::LOG)?;
        Ok(format!("memory={memory} journal={journal} semantic={semantic} logs={logs} turns={}", self.turns))
    }

    /// Three ways to change what happened; an episodic zone refuses each.
    fn forget_try(&mut self) -> Answer {
        // to write at the start of an empty file would be to append to it
        let journal = self.journal().map_err(|error| error.to_string())?;
        if journal.end.metadata().map_err(|error| error.to_string())?.len() == 0 {
            writeln!(journal.end, "nothing has happened yet").map_err(|error| error.to_string())?;
        }
        let overwrite = File::options().write(true).open(zones::JOURNAL).and_then(|mut file| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(b"it never happened")
        });
        let attempts = [
            ("overwrite", overwrite),
            ("truncate", File::options().write(true).truncate(true).open(zones::JOURNAL).map(drop)),
            ("remove", fs::remove_file(zones::JOURNAL)),
        ];
        let mut lines = Vec::new();
        for (what, outcome) in attempts {
            match outcome {
                Ok(()) => return Err(format!("{what} was possible: what happened has been changed")),
                Err(error) => lines.push(format!("{what}: {error}")),
            }
        }
        Ok(lines.join("\n"))
    }

    fn remember(&mut self, key: String, value: String) -> io::Result<String> {
        writeln!(self.journal()?.end, "{key}={value}")?;
        let answer = format!("remembered {key}");
        self.facts.insert(key, value);
        Ok(format!("{answer} ({} known)", self.facts.len()))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.journal()?.reader.read_line(&mut line)? {
            0 => Ok("(end)".into()),
            _ => Ok(line.trim_end().into()),
        }
    }

    fn entry(&mut self) -> io::Result<String> {
        if self.folder.is_none() {
            self.folder = Some(fs::read_dir(zones::WORKSPACE)?);
        }
        match self.folder.as_mut().and_then(Iterator::next) {
            Some(entry) => Ok(entry?.file_name().to_string_lossy().into_owned()),
            None => Ok("(end)".into()),
        }
    }

    /// The wall clock since 1970, and how long ago the first `time` was; both in nanoseconds.
    fn time(&mut self) -> Answer {
        let started = *self.started.get_or_insert_with(Instant::now);
        let wall = SystemTime::UNIX_EPOCH.elapsed().map_err(|error| error.to_string())?;
        let elapsed =
            Instant::now().checked_duration_since(started).ok_or("the monotonic clock went back")?;
        Ok(format!("{} {}", wall.as_nanos(), elapsed.as_nanos()))
    }
}

fn write_sync(path: &str, text: &str) -> io::Result<String> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(format!("wrote {} bytes for good", text.len()))
}

fn ls(path: &str) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join("\n"))
}

fn print(text: &str) -> io::Result<String> {
    writeln!(io::stdout(), "{text}")?;
    writeln!(io::stderr(), "{text}")?;
    Ok("printed".into())
}
