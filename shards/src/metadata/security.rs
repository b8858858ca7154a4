//! What the log says about who may do what: credentials, access control, tokens, quotas. Kept whole, for the records it came with.

use std::collections::BTreeMap;

use corelog_wire::records::metadata::{
    AccessControlEntryRecord, DelegationTokenRecord, UserScramCredentialRecord,
};

use crate::base::ids::{Text, Uuid};

/// An entity of quotas: (type, name; `None` = the default one), sorted by type.
pub type QuotaEntity = Vec<(Text, Option<Text>)>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Security {
    /// By (user, mechanism).
    pub scram: BTreeMap<(Text, i8), UserScramCredentialRecord>,
    pub acls: BTreeMap<Uuid, AccessControlEntryRecord>,
    pub tokens: BTreeMap<Text, DelegationTokenRecord>,
    pub quotas: BTreeMap<QuotaEntity, BTreeMap<Text, f64>>,
}
