//! Why a measurement failed, for people.

use std::io;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    /// A sentence that says what, why and what to do.
    #[error("{0}")]
    Told(String),
}

impl Failure {
    pub(crate) fn told(sentence: impl Into<String>) -> Failure {
        Failure::Told(sentence.into())
    }

    /// For `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        let what = what.into();
        move |error| Failure::Io { what, error }
    }

    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Failure {
        Failure::io(path.display().to_string())
    }
}
