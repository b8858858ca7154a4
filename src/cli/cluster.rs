//! Which broker leads what: the bootstrap connection, and one to each leader that is needed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corelog_shards::base::error_code::ErrorCode;
use corelog_wire::messages::{find_coordinator, metadata};
use corelog_wire::primitives::{Text, Uuid};

use super::args::BrokerArgs;
use super::client::{Call, Client, ClientError, check};

/// Between two attempts. Long enough not to be a burden, short enough not to be noticed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A topic as Metadata describes it.
#[derive(Debug, Clone)]
pub(super) struct TopicView {
    pub(super) name: Text,
    pub(super) id: Uuid,
    pub(super) internal: bool,
    /// In the order of their numbers.
    pub(super) partitions: Vec<metadata::ResponseTopicsPartitions>,
}

pub(super) struct Cluster {
    args: BrokerArgs,
    bootstrap: Client,
    brokers: BTreeMap<i32, String>,
    leaders: BTreeMap<i32, Client>,
}

impl Cluster {
    pub(super) fn connect(args: &BrokerArgs) -> Result<Cluster, ClientError> {
        Ok(Cluster {
            bootstrap: Client::connect(&args.bootstrap_server, args.timeout_ms)?,
            args: args.clone(),
            brokers: BTreeMap::new(),
            leaders: BTreeMap::new(),
        })
    }

    /// For requests that any broker answers.
    pub(super) fn any(&mut self) -> &mut Client {
        &mut self.bootstrap
    }

    pub(super) fn timeout_ms(&self) -> i32 {
        i32::try_from(self.args.timeout_ms).unwrap_or(i32::MAX)
    }

    /// All topics, by name.
    pub(super) fn topics(&mut self) -> Result<Vec<TopicView>, ClientError> {
        let response = self.metadata(None, AutoCreate::No)?;
        let mut topics = Vec::with_capacity(response.topics.len());
        for topic in response.topics {
            topics.push(view(topic)?);
        }
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// One topic.
    pub(super) fn topic(
        &mut self,
        name: &str,
        auto_create: AutoCreate,
    ) -> Result<TopicView, ClientError> {
        let response = self.metadata(Some(name), auto_create)?;
        match response.topics.into_iter().next() {
            Some(topic) => view(topic),
            // Every broker answers for every name that it is asked for.
            None => Err(self.unreadable("metadata", "nothing about the topic")),
        }
    }

    /// One topic, once its partitions have leaders: a moment after it was created they may not have.
    pub(super) fn patient_topic(
        &mut self,
        name: &str,
        auto_create: AutoCreate,
    ) -> Result<TopicView, ClientError> {
        let mut asked = false;
        self.patiently(|cluster| {
            // A topic that is being created is unknown for a moment; one that nobody creates stays so.
            let answer = cluster.topic(name, auto_create);
            let unknown = answer
                .as_ref()
                .is_err_and(|error| error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
            if unknown && auto_create == AutoCreate::Yes && !asked {
                asked = true;
                std::thread::sleep(RETRY_PAUSE);
                return cluster.topic(name, auto_create);
            }
            answer
        })
    }

    /// Asks again, for a while, as long as the answer is that a partition is not ready.
    pub(super) fn patiently<T>(
        &mut self,
        mut ask: impl FnMut(&mut Cluster) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + Duration::from_millis(self.args.timeout_ms.into());
        loop {
            let answer = ask(self);
            let not_ready = matches!(
                answer.as_ref().err().and_then(ClientError::code),
                Some(
                    ErrorCode::LEADER_NOT_AVAILABLE
                        | ErrorCode::NOT_LEADER_OR_FOLLOWER
                        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                        | ErrorCode::COORDINATOR_NOT_AVAILABLE
                        | ErrorCode::NOT_COORDINATOR
                )
            );
            if !not_ready || Instant::now() > deadline {
                return answer;
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// An answer that lacks what was asked.
    pub(super) fn unreadable(&self, call: &'static str, why: &str) -> ClientError {
        ClientError::Unreadable {
            address: self.args.bootstrap_server.clone(),
            call,
            why: why.to_owned(),
        }
    }

    /// The connection to the leader of a partition.
    pub(super) fn leader(
        &mut self,
        topic: &TopicView,
        partition: i32,
    ) -> Result<&mut Client, ClientError> {
        let what = format!("partition {partition} of topic {}", topic.name);
        let found = topic
            .partitions
            .iter()
            .find(|view| view.partition_index == partition);
        let Some(found) = found else {
            let last = topic.partitions.len().saturating_sub(1);
            return Err(ClientError::Refused {
                what,
                code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                message: Some(format!("the topic has partitions 0 to {last}")),
            });
        };
        check(what.clone(), found.error_code, None)?;
        let leader = found.leader_id;
        let Some(address) = self.brokers.get(&leader) else {
            return Err(ClientError::Refused {
                what,
                code: ErrorCode::LEADER_NOT_AVAILABLE,
                message: None,
            });
        };
        let address = address.clone();
        self.broker(leader, &address)
    }

    fn broker(&mut self, id: i32, address: &str) -> Result<&mut Client, ClientError> {
        if !self.leaders.contains_key(&id) {
            let client = Client::connect(address, self.args.timeout_ms)?;
            self.leaders.insert(id, client);
        }
        Ok(self.leaders.get_mut(&id).expect("inserted above"))
    }

    /// The connection to the coordinator of a group.
    pub(super) fn coordinator(&mut self, group: &str) -> Result<&mut Client, ClientError> {
        let key = Text::from(group.to_owned());
        // Both fields: versions up to 3 read the first, later ones the second.
        let (response, version) = self.bootstrap.call(&find_coordinator::Request {
            key: key.clone(),
            coordinator_keys: vec![key],
            ..find_coordinator::Request::default()
        })?;
        let what = format!("cannot find the coordinator of group {group}");
        if version < 4 {
            check(what, response.error_code, response.error_message.as_ref())?;
            return self.broker(response.node_id, &address(&response.host, response.port));
        }
        let Some(found) = response.coordinators.into_iter().next() else {
            return Err(self.unreadable("find_coordinator", "nothing about the group"));
        };
        check(what, found.error_code, found.error_message.as_ref())?;
        self.broker(found.node_id, &address(&found.host, found.port))
    }

    /// Asks every broker.
    pub(super) fn everywhere<C: Call>(
        &mut self,
        request: &C,
    ) -> Result<Vec<C::Response>, ClientError> {
        self.metadata(None, AutoCreate::No)?;
        let brokers: Vec<(i32, String)> = self
            .brokers
            .iter()
            .map(|(id, address)| (*id, address.clone()))
            .collect();
        let mut responses = Vec::with_capacity(brokers.len());
        for (id, address) in brokers {
            let (response, _) = self.broker(id, &address)?.call(request)?;
            responses.push(response);
        }
        Ok(responses)
    }

    fn metadata(
        &mut self,
        name: Option<&str>,
        auto_create: AutoCreate,
    ) -> Result<metadata::Response, ClientError> {
        let topics = name.map(|name| {
            vec![metadata::RequestTopics {
                name: Some(Text::from(name.to_owned())),
                ..metadata::RequestTopics::default()
            }]
        });
        let (response, _) = self.bootstrap.call(&metadata::Request {
            topics,
            allow_auto_topic_creation: auto_create == AutoCreate::Yes,
            ..metadata::Request::default()
        })?;
        check("Metadata", response.error_code, None)?;
        self.brokers = response
            .brokers
            .iter()
            .map(|broker| (broker.node_id, address(&broker.host, broker.port)))
            .collect();
        Ok(response)
    }
}

/// Whether a topic may come to be because somebody asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AutoCreate {
    Yes,
    No,
}

fn view(topic: metadata::ResponseTopics) -> Result<TopicView, ClientError> {
    let name = topic.name.unwrap_or_default();
    check(format!("topic {name}"), topic.error_code, None)?;
    let mut partitions = topic.partitions;
    partitions.sort_by_key(|partition| partition.partition_index);
    Ok(TopicView {
        name,
        id: topic.topic_id,
        internal: topic.is_internal,
        partitions,
    })
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
