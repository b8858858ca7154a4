//! Why a command failed, for people.

use std::io;

use corelog_io::disk::dir::LockError;

use super::client::ClientError;
use crate::config::ConfigError;
use crate::config::format::FormatError;
use crate::console::ConsoleError;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Console(#[from] ConsoleError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    #[error("cannot read the input: {0}")]
    Input(io::Error),
    /// A sentence that says what, why and what to do.
    #[error("{0}")]
    Told(String),
}
