//! Standard input, output and error.
//!
//! Whatever a guest prints goes to `/logs/stdout` and `/logs/stderr` of its agent, written by the
//! host, and besides to where the embedder says.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::output::Output;

/// Bytes of input that are read ahead.
const AHEAD: usize = 64 << 10;

/// Where a guest's standard streams lead.
#[derive(Default)]
pub struct Stdio {
    /// Standard input; none is an input at its end.
    pub stdin: Option<Input>,
    /// Where standard output goes besides the log.
    pub stdout: Option<Output>,
    /// Where standard error goes besides the log.
    pub stderr: Option<Output>,
    /// Standard input is a terminal.
    pub stdin_terminal: bool,
    /// Standard output is a terminal.
    pub stdout_terminal: bool,
    /// Standard error is a terminal.
    pub stderr_terminal: bool,
}

impl std::fmt::Debug for Stdio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdio").field("stdin", &self.stdin.is_some()).finish_non_exhaustive()
    }
}

impl Stdio {
    /// The streams of this process.
    pub fn inherit() -> Self {
        use std::io::IsTerminal;
        Self {
            stdin: Some(Input::reading(std::io::stdin())),
            stdout: Some(Output::writing_to(std::io::stdout())),
            stderr: Some(Output::writing_to(std::io::stderr())),
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal: std::io::stdout().is_terminal(),
            stderr_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// The one that a guest writes to: standard error, or else output.
    pub(super) fn output(&self, error: bool) -> Option<&Output> {
        if error { self.stderr.as_ref() } else { self.stdout.as_ref() }
    }

    /// Waits until all that was printed is written, or cannot be.
    pub(crate) async fn settled(&mut self) {
        for output in [&self.stdout, &self.stderr].into_iter().flatten() {
            // whoever gave it asks it what became of that
            if let Err(e) = output.written().await {
                tracing::debug!("what a guest printed: {}", e.message);
            }
        }
    }
}

#[derive(Default)]
struct Buffer {
    bytes: VecDeque<u8>,
    ended: bool,
    error: Option<String>,
    started: bool,
}

struct Shared {
    buffer: Mutex<Buffer>,
    filled: Notify,
    drained: std::sync::Condvar,
    source: Mutex<Option<Box<dyn Read + Send>>>,
}

/// A source of standard input. A thread reads it ahead, from when the guest first asks.
#[derive(Clone)]
pub struct Input(Arc<Shared>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Input")
    }
}

/// What a read of standard input gives.
#[derive(Debug, PartialEq, Eq)]
pub enum InputRead {
    /// Bytes; none where none have come yet.
    Bytes(Vec<u8>),
    /// The end.
    End,
    /// Reading failed.
    Failed(String),
}

impl Input {
    /// Reads from `source`.
    pub fn reading(source: impl Read + Send + 'static) -> Self {
        Self(Arc::new(Shared {
            buffer: Mutex::default(),
            filled: Notify::new(),
            drained: std::sync::Condvar::new(),
            source: Mutex::new(Some(Box::new(source))),
        }))
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.0.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) {
        let mut buffer = self.buffer();
        if std::mem::replace(&mut buffer.started, true) {
            return;
        }
        let source = self.0.source.lock().unwrap_or_else(PoisonError::into_inner).take();
        let weak = Arc::downgrade(&self.0);
        let spawned = std::thread::Builder::new().name("dormouse-stdin".into()).spawn(move || {
            let Some(mut source) = source else { return };
            let mut piece = vec![0u8; 8192];
            loop {
                let read = source.read(&mut piece);
                let Some(shared) = weak.upgrade() else { return };
                let mut buffer = shared.buffer.lock().unwrap_or_else(PoisonError::into_inner);
                match read {
                    Ok(0) => buffer.ended = true,
                    Ok(n) => buffer.bytes.extend(&piece[..n]),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => {
                        buffer.error = Some(e.to_string());
                        buffer.ended = true;
                    }
                }
                shared.filled.notify_waiters();
                if buffer.ended {
                    return;
                }
                while buffer.bytes.len() >= AHEAD {
                    if Arc::strong_count(&shared) == 1 {
                        return;
                    }
                    let wait = std::time::Duration::from_secs(1);
                    buffer =
                        shared.drained.wait_timeout(buffer, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        });
        if let Err(e) = spawned {
            buffer.error = Some(format!("starting the thread that reads standard input: {e}"));
            buffer.ended = true;
        }
    }

    /// Up to `max` bytes that have come already.
    pub fn read(&self, max: usize) -> InputRead {
        self.start();
        let mut buffer = self.buffer();
        if buffer.bytes.is_empty() && buffer.ended {
            return buffer.error.take().map_or(InputRead::End, InputRead::Failed);
        }
        let n = buffer.bytes.len().min(max);
        let bytes = buffer.bytes.drain(..n).collect();
        drop(buffer);
        self.0.drained.notify_one();
        InputRead::Bytes(bytes)
    }

    /// Whether a read would give something, or the end.
    pub fn is_ready(&self) -> bool {
        self.start();
        let buffer = self.buffer();
        buffer.ended || !buffer.bytes.is_empty()
    }

    /// Waits until a read would give something.
    pub async fn ready(&self) {
        loop {
            let filled = self.0.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            if self.is_ready() {
                return;
            }
            filled.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_comes_whole_and_ends() {
        let all: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let input = Input::reading(std::io::Cursor::new(all.clone()));
        let mut got = Vec::new();
        loop {
            input.ready().await;
            match input.read(1000) {
                InputRead::Bytes(bytes) => {
                    assert!(!bytes.is_empty() && bytes.len() <= 1000);
                    got.extend(bytes);
                }
                InputRead::End => break,
                InputRead::Failed(e) => panic!("{e}"),
            }
        }
        assert_eq!(got, all);
    }
}
