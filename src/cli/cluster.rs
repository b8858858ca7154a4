//! Which broker leads what: the bootstrap connection, and one to each leader that is needed.

use std::collections::BTreeMap;

use corelog_wire::messages::metadata;
use corelog_wire::primitives::{Text, Uuid};

use super::args::BrokerArgs;
use super::client::{Client, ClientError, check};

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
            None => Err(ClientError::Unreadable {
                address: self.args.bootstrap_server.clone(),
                call: "metadata",
                why: format!("nothing about topic {name}"),
            }),
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
            const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
            let last = topic.partitions.len().saturating_sub(1);
            let message = Text::from(format!("the topic has partitions 0 to {last}"));
            check(what, UNKNOWN_TOPIC_OR_PARTITION, Some(&message))?;
            unreachable!("the code is an error");
        };
        check(what.clone(), found.error_code, None)?;
        let leader = found.leader_id;
        let Some(address) = self.brokers.get(&leader) else {
            const LEADER_NOT_AVAILABLE: i16 = 5;
            check(what, LEADER_NOT_AVAILABLE, None)?;
            unreachable!("the code is an error");
        };
        if !self.leaders.contains_key(&leader) {
            let client = Client::connect(address, self.args.timeout_ms)?;
            self.leaders.insert(leader, client);
        }
        Ok(self.leaders.get_mut(&leader).expect("inserted above"))
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
