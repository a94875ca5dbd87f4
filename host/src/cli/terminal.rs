//! Guest bytes on their way to a terminal.
//!
//! What a guest prints can move the cursor, rewrite the screen or answer for the user. So control
//! characters are shown, not obeyed, wherever the output is a terminal; elsewhere bytes pass as they
//! are.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

/// Whether a character would do something else than appear.
fn acts(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        // marks that reorder what is shown
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text with every character that acts written as an escape.
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().any(acts) {
        let mut escaped = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            if acts(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
        }
        Cow::Owned(escaped)
    } else {
        Cow::Borrowed(text)
    }
}

/// The same for what has to stay in its line: breaks and tabs are escaped, too.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    match escape(text) {
        text if text.contains(['\n', '\t']) => text.replace('\n', "\\n").replace('\t', "\\t").into(),
        text => text,
    }
}

/// A writer that escapes. A character may come in pieces.
#[derive(Debug)]
pub struct Escaping<W> {
    out: W,
    rest: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    /// Escapes what is written to `out`.
    pub fn new(out: W) -> Self {
        Self { out, rest: Vec::new() }
    }

    fn hex(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(4 * bytes.len());
        for byte in bytes {
            text.push_str("\\x");
            text.extend(
                [byte >> 4, byte & 15].map(|half| char::from(b"0123456789abcdef"[usize::from(half)])),
            );
        }
        text
    }

    /// Writes what was left of a character that never became whole.
    fn end(&mut self) -> std::io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.out.write_all(Self::hex(&rest).as_bytes())
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut text = String::new();
        let mut left = all.as_slice();
        loop {
            match std::str::from_utf8(left) {
                Ok(valid) => {
                    text.push_str(&escape(valid));
                    break;
                }
                Err(e) => {
                    let (valid, wrong) = left.split_at(e.valid_up_to());
                    text.push_str(&escape(&String::from_utf8_lossy(valid)));
                    let Some(len) = e.error_len() else {
                        self.rest = wrong.to_vec();
                        break;
                    };
                    text.push_str(&Self::hex(&wrong[..len]));
                    left = &wrong[len..];
                }
            }
        }
        self.out.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn pass(mut out: impl Write, is_terminal: bool, bytes: &[u8]) -> std::io::Result<()> {
    if is_terminal {
        let mut escaping = Escaping::new(&mut out);
        escaping.write_all(bytes)?;
        escaping.end()?;
    } else {
        out.write_all(bytes)?;
    }
    out.flush()
}

/// Writes guest bytes to standard output, escaped if that is a terminal.
pub fn print(bytes: &[u8]) -> std::io::Result<()> {
    pass(super::output::out(), std::io::stdout().is_terminal(), bytes)
}

/// The same for standard error.
pub fn print_error(bytes: &[u8]) -> std::io::Result<()> {
    pass(std::io::stderr().lock(), std::io::stderr().is_terminal(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut escaping = Escaping::new(&mut out);
        for piece in pieces {
            escaping.write_all(piece).unwrap();
        }
        escaping.end().unwrap();
        drop(escaping);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(through(&[b"a\x1b[2Jb\r\n\tc\x07"]), "a\\u{1b}[2Jb\\r\n\tc\\u{7}");
        assert_eq!(through(&["\u{9b}31m".as_bytes()]), "\\u{9b}31m");
        assert_eq!(through(&["\u{202e}evil".as_bytes()]), "\\u{202e}evil");
        assert_eq!(through(&[b"\xff\xfe"]), "\\xff\\xfe");
        assert_eq!(escape_line("a\nb\tc\x1b"), "a\\nb\\tc\\u{1b}");
    }

    #[test]
    fn characters_in_pieces_stay_whole() {
        let e = "é€".as_bytes();
        assert_eq!(through(&[&e[..1], &e[1..3], &e[3..]]), "é€");
        assert_eq!(through(&[&e[..1]]), "\\xc3");
        assert_eq!(through(&["\u{9b}".as_bytes().split_at(1).0, b"\x9b"]), "\\u{9b}");
    }
}
