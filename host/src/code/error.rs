use std::time::Duration;

use crate::component::ComponentError;

/// Why code could not be made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The component is refused.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// No program that compiles was found.
    #[error(
        "no `dormouse` program was found to compile with: put it into the path, or name it in DORMOUSE_COMPILER"
    )]
    NoCompiler,
    /// Compiling failed.
    #[error("the component could not be compiled: {0}")]
    Compile(String),
    /// Compiling took too long.
    #[error("compiling took longer than {0:?} and was stopped")]
    CompileTime(Duration),
    /// Compiling took too much memory.
    #[error(
        "compiling needs more than the {} MiB of memory that are its limit: the component is too large, or made to be",
        *.0 >> 20
    )]
    CompileMemory(u64),
    /// Nobody waits for the code any more.
    #[error("compiling was stopped")]
    Stopped,
    /// The cache of compiled code is not as it should be.
    #[error("compiled code: {0}")]
    Cache(String),
    /// The store has no component of this hash.
    #[error("the component {0} is not in the store, or is damaged")]
    NoComponent(String),
    /// The system refused something.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl CodeError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
