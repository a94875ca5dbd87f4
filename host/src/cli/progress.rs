//! What is shown while something takes long, on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A line that says what is going on, until it is dropped.
pub struct Working(ProgressBar);

impl Working {
    /// Shows `what`, if standard error is a terminal.
    pub fn on(what: String) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
