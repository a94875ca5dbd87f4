//! Why a file cannot become an agent's component.

use std::fmt;

use super::refuse::Refusal;

/// What is wrong with a component or core module. None of it changes by trying again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComponentError {
    /// The file is not WebAssembly at all.
    #[error("not a WebAssembly file: it does not start with the bytes `\\0asm`")]
    NotWasm,
    /// The file is WebAssembly by name, and damaged or of a version that nobody knows.
    #[error("not a valid WebAssembly file: {message} (at offset {offset:#x})")]
    Invalid {
        /// What the validator found.
        message: String,
        /// Byte offset in the file.
        offset: u64,
    },
    /// A limit of [`super::limits`] is exceeded.
    #[error("too large: {found} {what}, where at most {limit} are allowed")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How many were found; counting stops at the first too many.
        found: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The component is valid, but a snapshot of it would not be complete, or it uses something that
    /// is not supported.
    #[error("{}", Refusals(.0))]
    Refused(Vec<Refusal>),
    /// A core module that cannot be made a component.
    #[error("cannot make a component of this core module: {0}")]
    Wrap(String),
    /// The rewriter produced something invalid: a fault of ours, on a form that it does not know.
    #[error("the component has a form that the rewriter does not know: {0}")]
    Rewriter(String),
}

impl ComponentError {
    pub(super) fn invalid(error: &wasmparser::Error) -> Self {
        Self::Invalid { message: error.message().to_owned(), offset: error.offset() as u64 }
    }

    pub(super) fn limit(what: &'static str, found: usize, limit: usize) -> Result<(), Self> {
        if found > limit { Err(Self::Limit { what, found, limit }) } else { Ok(()) }
    }
}

struct Refusals<'a>(&'a [Refusal]);

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this component cannot be captured:")?;
        for (n, refusal) in self.0.iter().enumerate() {
            write!(f, "{} {refusal}", if n == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}
