//! What the test programs share: counting checks, and finding a preopened folder.

use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;

use wasip2::filesystem::types::Descriptor;

/// What a check comes to; the error says what was seen instead.
pub type Outcome = Result<(), Box<dyn Error>>;

/// The highest exit status that a number of failures becomes.
const MOST_FAILURES: u8 = 125;

/// Runs checks, prints `ok NAME` or `FAIL NAME detail` for each, and counts.
#[derive(Default)]
pub struct Checks {
    run: u32,
    failed: u32,
    collected: Option<String>,
}

impl Checks {
    /// No check so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Prints nothing, and keeps the lines for [`Checks::report`].
    pub fn collecting() -> Self {
        Self { collected: Some(String::new()), ..Self::default() }
    }

    /// Runs one check.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Outcome) {
        self.run += 1;
        let line = match check() {
            Ok(()) => format!("ok {name}"),
            Err(error) => {
                self.failed += 1;
                format!("FAIL {name} {}", error.to_string().replace('\n', " "))
            }
        };
        match &mut self.collected {
            None => println!("{line}"),
            Some(lines) => {
                lines.push_str(&line);
                lines.push('\n');
            }
        }
    }

    /// The collected lines: as an error when a check failed or none was made.
    pub fn report(self) -> Result<String, String> {
        let lines = self.collected.unwrap_or_default();
        if self.failed == 0 && self.run > 0 { Ok(lines) } else { Err(lines) }
    }

    /// The exit status: how many checks failed. A program that checked nothing has failed as well.
    pub fn finish(self) -> ExitCode {
        println!("{} checks, {} failed", self.run, self.failed);
        match (self.run, self.failed) {
            (0, _) => ExitCode::FAILURE,
            (_, failed) => ExitCode::from(u8::try_from(failed).unwrap_or(MOST_FAILURES).min(MOST_FAILURES)),
        }
    }
}

/// Both values are the same.
pub fn same<T: PartialEq + Debug + ?Sized>(got: &T, want: &T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("got {got:?}, want {want:?}").into()) }
}

/// The condition holds; `what` is said where it does not.
pub fn holds(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(what.into()) }
}

/// The call failed, with one of these errors.
pub fn fails<T, E: PartialEq + Debug>(result: Result<T, E>, with: &[E]) -> Outcome {
    match result {
        Ok(_) => Err(format!("succeeded, want one of {with:?}").into()),
        Err(error) if with.contains(&error) => Ok(()),
        Err(error) => Err(format!("failed with {error:?}, want one of {with:?}").into()),
    }
}

/// The preopened folder of this name.
pub fn preopen(name: &str) -> Result<Descriptor, Box<dyn Error>> {
    let found = wasip2::filesystem::preopens::get_directories().into_iter().find(|(_, path)| path == name);
    found.map(|(folder, _)| folder).ok_or_else(|| format!("no folder {name} is preopened").into())
}
