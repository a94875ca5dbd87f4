//! What is shown while something takes long, on a terminal.

use std::io::{IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often it moves.
const EVERY: Duration = Duration::from_millis(100);

/// A line that says what is going on, until it is dropped.
pub struct Working(Option<Shown>);

struct Shown {
    bar: ProgressBar,
    stop: Option<Sender<()>>,
    moving: Option<JoinHandle<()>>,
}

impl Working {
    /// Shows `what`, if standard error is a terminal.
    pub fn on(what: String) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        Self::show(ProgressBar::new_spinner(), "{spinner} {msg} ({elapsed})", what, ProgressBar::tick)
    }

    /// As [`on`](Self::on), with the bytes that went so far, of `len` where that is known.
    pub fn on_bytes(what: String, count: Arc<AtomicU64>, len: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let (bar, style) = match len {
            Some(len) => (ProgressBar::new(len), "{msg} [{bar:30}] {bytes} of {total_bytes} ({elapsed})"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}: {bytes} ({elapsed})"),
        };
        Self::show(bar, style, what, move |bar| bar.set_position(count.load(Ordering::Relaxed)))
    }

    fn show(
        bar: ProgressBar,
        style: &str,
        what: String,
        step: impl Fn(&ProgressBar) + Send + 'static,
    ) -> Self {
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(what);
        let (stop, stopped) = channel();
        let moved = bar.clone();
        let move_it = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                step(&moved);
            }
        };
        // where the system gives no thread it stands still: a bar that moves by itself would panic
        let moving = std::thread::Builder::new().name("dormouse-progress".into()).spawn(move_it).ok();
        Self(Some(Shown { bar, stop: Some(stop), moving }))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let Some(shown) = &mut self.0 else { return };
        shown.stop = None;
        if let Some(moving) = shown.moving.take() {
            // it does nothing that can fail
            let _ = moving.join();
        }
        shown.bar.finish_and_clear();
    }
}

/// Counts the bytes that are read or written.
pub struct Counted<T> {
    inner: T,
    count: Arc<AtomicU64>,
}

impl<T> Counted<T> {
    pub fn new(inner: T) -> Self {
        Self { inner, count: Arc::default() }
    }

    pub fn count(&self) -> Arc<AtomicU64> {
        self.count.clone()
    }

    fn note(&self, bytes: std::io::Result<usize>) -> std::io::Result<usize> {
        if let Ok(bytes) = bytes {
            self.count.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        bytes
    }
}

impl<T: Read> Read for Counted<T> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buf);
        self.note(read)
    }
}

impl<T: Write> Write for Counted<T> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buf);
        self.note(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
