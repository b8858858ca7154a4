//! One self-contained page.
//!
//! - `chart`: lines as SVG
//! - `html`: escaping and tables
//! - `page`: what stands on it

mod chart;
mod html;
mod page;

pub(crate) use chart::{Axis, Line, draw};
pub(crate) use html::{document, escaped, of_markdown};
pub(crate) use page::page;
