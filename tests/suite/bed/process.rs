//! Processes, none of which a test waits for without end.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// After this time a process counts as hanging. It is far above what any takes on a slow machine.
const HANGS: Duration = Duration::from_mins(5);

/// A process that has ended.
pub struct Ran {
    /// What was run.
    pub command: String,
    /// Its exit status, unless a signal ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, status, out, err } = self;
        write!(f, "{command}\nstatus: {status:?}\nstdout: {out}\nstderr: {err}")
    }
}

impl Ran {
    /// It failed as it ought to: status 1, nothing on standard output, one message with these words.
    pub fn assert_refused(&self, words: &[&str]) {
        assert_eq!(self.status, Some(1), "{self}");
        assert_eq!(self.out, "", "{self}");
        self.assert_one_message(words);
    }

    /// Standard error holds one message of the program's, and these words are in it.
    pub fn assert_one_message(&self, words: &[&str]) {
        assert!(self.err.starts_with("dormouse: "), "{self}");
        assert_eq!(self.err.matches("dormouse: ").count(), 1, "{self}");
        assert!(!self.err.contains("panicked"), "{self}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is missing in\n{self}");
        }
    }
}

/// Runs a command to its end, with this input.
pub fn run(command: &mut Command, input: &[u8]) -> Ran {
    let mut running = Running::start(command);
    let mut stdin = running.input.take().expect("its input");
    // while it is fed its output has to be read, else each waits for the other
    std::thread::scope(|scope| {
        // a process may end before it has read everything
        let feeding = scope.spawn(move || drop(stdin.write_all(input)));
        let ran = running.end();
        feeding.join().expect("the feeder");
        ran
    })
}

/// A process that has been started.
pub struct Running {
    command: String,
    child: Option<Child>,
    /// Its standard input; closed when it is taken.
    pub input: Option<ChildStdin>,
    out: Option<BufReader<ChildStdout>>,
    /// What was read of the output so far.
    read: String,
}

impl Running {
    /// Starts a command, with pipes for its streams.
    pub fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let out = child.stdout.take().map(BufReader::new);
        let input = child.stdin.take();
        Self { command: format!("{command:?}"), child: Some(child), input, out, read: String::new() }
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("it has not ended")
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child().id()
    }

    /// The next line of its output, or nothing at the end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let out = self.out.as_mut().expect("it has not ended");
        out.read_line(&mut line).expect("output of the process");
        self.read.push_str(&line);
        (!line.is_empty()).then(|| line.trim_end().into())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.id() as i32).expect("the id of a process");
        kill_process(id, signal).expect("a signal to a process of this test's");
    }

    /// Waits until it has used this much time of a processor.
    #[cfg(target_os = "linux")]
    pub fn until_busy(&self, ticks: u64) {
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("a live process");
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = after_name.split_whitespace();
            assert_ne!(fields.next(), Some("Z"), "it ended: {}", self.command);
            // utime, the 14th field of the line
            if fields.nth(10).and_then(|t| t.parse::<u64>().ok()).is_some_and(|t| t > ticks) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Closes its input and waits for its end. One that hangs is killed, and fails the test.
    pub fn end(mut self) -> Ran {
        self.input = None;
        let mut child = self.child.take().expect("it has not ended");
        let (mut out, mut err) =
            (self.out.take().expect("its output"), child.stderr.take().expect("its errors"));
        let reading = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).map(|_| bytes)
        });
        let complaining = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            err.read_to_end(&mut bytes).map(|_| bytes)
        });
        let id = Pid::from_child(&child);
        let (ended, watch) = mpsc::channel::<()>();
        let watcher = std::thread::spawn(move || {
            let hangs = watch.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout);
            // it is not waited for yet, so the id is still its own
            hangs && kill_process(id, Signal::KILL).is_ok()
        });
        let text = |bytes: std::thread::Result<std::io::Result<Vec<u8>>>| {
            String::from_utf8_lossy(&bytes.expect("a reader").expect("output")).into_owned()
        };
        let out = std::mem::take(&mut self.read) + &text(reading.join());
        let err = text(complaining.join());
        drop(ended);
        let hung = watcher.join().expect("the watcher");
        let status = child.wait().expect("the process's end");
        let ran = Ran { command: std::mem::take(&mut self.command), status: status.code(), out, err };
        assert!(!hung, "it hung: {ran}");
        ran
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // a test that fails leaves no process behind; one that has ended needs no killing
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
