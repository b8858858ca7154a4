//! Consumer groups under kill -9: members that come, go, hang and die in several groups while the broker is killed in the middle of their
//! rebalances and commits. In reading order: `requests` (what a member sends), `ledger` (what a group was promised), `stage`,
//! `member` (one's life), `rounds`. `scale` measures many
//! groups and a large one.

mod ledger;
mod member;
mod requests;
pub(crate) mod rounds;
pub(crate) mod scale;
mod stage;
