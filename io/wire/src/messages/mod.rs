//! Every RPC of Kafka, all versions.
//!
//! The modules with structs are written by the build script from `schema/rpcs.txt`: `create_topics::Request`,
//! `create_topics::RequestTopics` and so on, where the name of a nested struct is the path to it. All fields of all versions
//! stand in one struct; `decode` gives a field that the version lacks its default, and `encode` leaves it out.
//!
//! The data path does not use the structs of Produce and Fetch but the cursors and writers beside them, which allocate
//! nothing.

pub mod fetch_cursor;
pub mod fetch_writer;
pub mod produce_cursor;
pub mod produce_writer;
pub mod topic_ref;

/// One line of [`APIS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiSchema {
    pub key: i16,
    pub name: &'static str,
    /// The oldest version that can be read and written.
    pub min: i16,
    /// The newest stable one.
    pub max: i16,
    /// The first version with compact lengths and tags, if there is one.
    pub flexible_from: Option<i16>,
}

impl ApiSchema {
    pub const fn supports(&self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

/// The RPC with this key; `None` for unknown keys and for those that Kafka 4 removed (4 to 7).
pub fn api_schema(key: i16) -> Option<&'static ApiSchema> {
    let at = APIS.binary_search_by_key(&key, |api| api.key).ok()?;
    APIS.get(at)
}

include!(concat!(env!("OUT_DIR"), "/rpcs.rs"));

#[cfg(test)]
mod oracle_tests;
