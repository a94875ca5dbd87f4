//! What is shown while something takes long, on a terminal.

use std::io::IsTerminal;
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
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what);
        let (stop, stopped) = channel();
        let moved = bar.clone();
        let move_it = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                moved.tick();
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
