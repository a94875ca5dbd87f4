//! Errors with what is behind them, in one text.

use std::error::Error;

/// An error and its sources, from what was tried to what came of it, each told once.
pub fn told(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // many say themselves what is behind them
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Error as IoError;

    use super::*;
    use crate::device::DurableError;
    use crate::log::LogError;

    #[test]
    fn each_cause_is_told_once() {
        let e = LogError::Io { file: "log/1".into(), source: IoError::other("gone") };
        assert_eq!(told(&e), "log/1: gone");
        assert_eq!(told(&DurableError::Flush(IoError::other("gone"))), "flush failed: gone");
        assert_eq!(told(&IoError::other("gone")), "gone");
    }
}
