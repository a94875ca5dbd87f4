//! The commands, as plain text in the payload of an event: a word, then what belongs to it.

/// One command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Keeps a note: in memory, and in the episodic, semantic and log zones.
    Note(String),
    /// The notes in memory, numbered.
    List,
    /// How many notes there are in memory and in each zone, and whether that agrees.
    Status,
    /// Tries to overwrite the journal and reports what came of it.
    ForgetTry,
    /// Puts text at the end of the draft in the workspace.
    Draft(String),
    /// The draft.
    ShowDraft,
    /// Keeps a value under a key in memory, with a line in the journal.
    Remember(String, String),
    /// The value under a key.
    Recall(String),
    /// The next number of a sequence that lives in memory alone.
    Next,
    /// The next line of the journal, from where the reader that is held open stands.
    Line,
    /// The next name in the workspace, from a directory stream that is held open.
    Entry,
    /// What the host says about this agent.
    Who,
    /// What happened to it, as far as this text is in it.
    Past(String),
    /// The starts of its memory that it was told of: cause and generation.
    Starts,
    /// Random numbers: of the host, and of a generator seeded anew after each start.
    Random,
    /// The clocks.
    Time,
    /// Writes a whole file.
    Write(String, String),
    /// Writes a whole file and makes it durable before the answer.
    WriteSync(String, String),
    /// A whole file.
    Read(String),
    /// The names in a folder, sorted.
    Ls(String),
    /// Prints to standard output and standard error.
    Print(String),
    /// Takes that many MiB of memory and keeps them.
    Grow(usize),
    /// Writes to that many pages of the memory taken.
    TouchPages(usize),
    /// Fails as a program with a bug does.
    Panic,
    /// Never comes back.
    Spin,
    /// Sleeps that many milliseconds.
    Sleep(u64),
    /// Ends the program, which an agent should not do in the middle of a turn.
    Exit(u8),
}

impl Command {
    /// Reads a command. The error is for the sender.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = || match rest {
            "" => Err(format!("{word} needs a text")),
            _ => Ok(rest.to_string()),
        };
        let pair = || match rest.split_once(' ') {
            Some((first, second)) => Ok((first.to_string(), second.to_string())),
            None => Err(format!("{word} needs two words")),
        };
        Ok(match word {
            "note" => Self::Note(text()?),
            "list" => Self::List,
            "status" => Self::Status,
            "forget-try" => Self::ForgetTry,
            "draft" if rest.is_empty() => Self::ShowDraft,
            "draft" => Self::Draft(text()?),
            "remember" => pair().map(|(key, value)| Self::Remember(key, value))?,
            "recall" => Self::Recall(text()?),
            "next" => Self::Next,
            "line" => Self::Line,
            "entry" => Self::Entry,
            "who" => Self::Who,
            "past" => Self::Past(rest.to_string()),
            "starts" => Self::Starts,
            "random" => Self::Random,
            "time" => Self::Time,
            "write" => pair().map(|(path, text)| Self::Write(path, text))?,
            "write-sync" => pair().map(|(path, text)| Self::WriteSync(path, text))?,
            "read" => Self::Read(text()?),
            "ls" => Self::Ls(text()?),
            "print" => Self::Print(text()?),
            "grow" => Self::Grow(number(word, rest)?),
            "touch-pages" => Self::TouchPages(number(word, rest)?),
            "panic" => Self::Panic,
            "spin" => Self::Spin,
            "sleep" => Self::Sleep(number(word, rest)?),
            "exit" => Self::Exit(number(word, rest)?),
            _ => return Err(format!("{word:?} is not a command; try note, list, status, draft or who")),
        })
    }
}

fn number<N: std::str::FromStr>(word: &str, rest: &str) -> Result<N, String> {
    rest.parse().map_err(|_| format!("{word} needs a number, not {rest:?}"))
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn a_text_keeps_its_spaces() {
        assert_eq!(Command::parse("note two  words"), Ok(Command::Note("two  words".into())));
        assert_eq!(Command::parse("remember k a b"), Ok(Command::Remember("k".into(), "a b".into())));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        assert_eq!(Command::parse("note"), Err("note needs a text".into()));
        assert_eq!(Command::parse("exit 300"), Err("exit needs a number, not \"300\"".into()));
        assert!(Command::parse("fly").is_err_and(|error| error.contains("\"fly\"")));
    }
}
