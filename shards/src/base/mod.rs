//! What everything else is made of: identities, time, error codes, limits.
pub mod error_code;
pub mod ids;
pub mod random;
pub mod time;
