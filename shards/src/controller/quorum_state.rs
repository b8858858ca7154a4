//! The file `quorum-state` (kraft.md 9.1, 10): who leads in which epoch. Pure: text in, text out.
//!
//! The engine, at each start, before anything else is done with the metadata log: read the file, [`QuorumState::elected`], replace the file
//! atomically, and give the epoch to the controller.

use crate::base::ids::Uuid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumState {
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub form: Form,
}

/// How the voters are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// kraft.version 0: from the configuration; the file names them too.
    StaticVoters,
    /// kraft.version 1: from the log; the file has only the directory that was voted for.
    DynamicVoters { voted_directory: Uuid },
}

/// Why the file can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuorumState {
    #[error("quorum-state is no JSON object with the numbers leaderEpoch and data_version")]
    Unreadable,
    #[error("quorum-state has data_version {0}, which this release does not know")]
    Version(i64),
}

impl QuorumState {
    /// A directory without the file: nobody has been elected yet.
    pub fn new() -> QuorumState {
        QuorumState {
            leader_id: -1,
            leader_epoch: 0,
            form: Form::StaticVoters,
        }
    }

    pub fn parse(text: &str) -> Result<QuorumState, BadQuorumState> {
        let number = |name| number(text, name).ok_or(BadQuorumState::Unreadable);
        let form = match number("data_version")? {
            0 => Form::StaticVoters,
            1 => Form::DynamicVoters {
                voted_directory: string(text, "votedDirectoryId")
                    .and_then(|id| id.parse().ok())
                    .unwrap_or(Uuid::ZERO),
            },
            version => return Err(BadQuorumState::Version(version)),
        };
        let leader_epoch = number("leaderEpoch")?;
        Ok(QuorumState {
            leader_id: number("leaderId").map_or(-1, |id| id as i32),
            leader_epoch: i32::try_from(leader_epoch).map_err(|_| BadQuorumState::Unreadable)?,
            form,
        })
    }

    /// The only voter elects itself: the next epoch is its own.
    pub fn elected(&self, node_id: i32) -> QuorumState {
        QuorumState {
            leader_id: node_id,
            leader_epoch: self.leader_epoch + 1,
            form: self.form.clone(),
        }
    }

    /// The file's content.
    pub fn to_json(&self) -> String {
        let (leader, epoch) = (self.leader_id, self.leader_epoch);
        match &self.form {
            Form::StaticVoters => format!(
                r#"{{"clusterId":"","leaderId":{leader},"leaderEpoch":{epoch},"votedId":-1,"appliedOffset":0,"currentVoters":[{{"voterId":{leader}}}],"data_version":0}}"#
            ),
            Form::DynamicVoters { voted_directory } => format!(
                r#"{{"leaderId":{leader},"leaderEpoch":{epoch},"votedId":-1,"votedDirectoryId":"{voted_directory}","data_version":1}}"#
            ),
        }
    }
}

impl Default for QuorumState {
    fn default() -> QuorumState {
        QuorumState::new()
    }
}

/// What follows `"name":` in a flat object, without space before it. The file is only ever written by Kafka or by us: a JSON parser would
/// bring nothing but a dependency.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let quoted = format!("\"{name}\"");
    let (_, after) = text.split_once(&quoted)?;
    after.trim_start().strip_prefix(':').map(str::trim_start)
}

fn number(text: &str, name: &str) -> Option<i64> {
    let value = value(text, name)?;
    let end = value
        .find(|character: char| character != '-' && !character.is_ascii_digit())
        .unwrap_or(value.len());
    value[..end].parse().ok()
}

fn string<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = value(text, name)?.strip_prefix('"')?;
    value.split_once('"').map(|(string, _)| string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Apache Kafka 4.3.1 wrote it.
    const STATIC: &str = r#"{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}"#;
    const DYNAMIC: &str = r#"{"leaderId":1,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#;

    #[test]
    fn both_forms_of_the_file_are_read_and_written_back() {
        for text in [STATIC, DYNAMIC] {
            let state = QuorumState::parse(text);
            assert_eq!(state.map(|state| state.to_json()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn each_start_is_a_new_epoch() {
        let first = QuorumState::new().elected(1);
        assert_eq!(first.to_json(), STATIC);
        assert_eq!(first.elected(1).leader_epoch, 2);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(QuorumState::parse("{}"), Err(BadQuorumState::Unreadable));
        assert_eq!(
            QuorumState::parse(r#"{"data_version":2,"leaderEpoch":1}"#),
            Err(BadQuorumState::Version(2))
        );
    }
}
