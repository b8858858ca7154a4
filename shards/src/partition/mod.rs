//! A partition that this node leads: produce, fetch, list offsets, delete records.

pub mod fetch_session;
