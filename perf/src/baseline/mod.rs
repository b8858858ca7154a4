//! A baseline: everything measured on one machine on one day, for the record and to compare with.
//!
//! - `plan`: which runs, and what to do about an interruption
//! - `aims`: what is wanted of them
//! - `page`: the Markdown

mod aims;
mod page;
mod plan;

pub(crate) use page::{today, write_page};
pub(crate) use plan::{Form, run};
