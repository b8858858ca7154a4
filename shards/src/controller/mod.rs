//! The embedded single-voter controller (kraft.md 9). Lives on shard 0.

/// What is asked of the controller.
pub enum Request {}

/// What it answers.
pub enum Reply {}
