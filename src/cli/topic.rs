//! `corelog topic …`

use std::io::Write;

use corelog_shards::base::error_code::ErrorCode;
use corelog_wire::messages::{
    create_partitions, create_topics, delete_topics, describe_configs, incremental_alter_configs,
};
use corelog_wire::primitives::Text;

use super::args::{BrokerArgs, TopicCommand};
use super::client::{ClientError, check};
use super::cluster::{AutoCreate, Cluster, TopicView};
use super::failure::Failure;
use super::print;

/// `ConfigResource.Type.TOPIC`
const RESOURCE_TOPIC: i8 = 2;
/// Source of a value that was set for the topic itself (D-4).
const SOURCE_TOPIC: i8 = 1;
/// "As the broker has it" for the number of partitions and of replicas.
const BROKER_DEFAULT: i16 = -1;

pub(super) fn run(command: &TopicCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        TopicCommand::Create {
            broker,
            name,
            partitions,
            replication_factor,
            configs,
            if_not_exists,
        } => {
            let request = create_topics::RequestTopics {
                name: Text::from(name.clone()),
                num_partitions: partitions.unwrap_or(BROKER_DEFAULT.into()),
                replication_factor: replication_factor.unwrap_or(BROKER_DEFAULT),
                configs: pairs(configs)?
                    .into_iter()
                    .map(|(name, value)| create_topics::RequestTopicsConfigs {
                        name,
                        value: Some(value),
                    })
                    .collect(),
                ..create_topics::RequestTopics::default()
            };
            create(broker, request, *if_not_exists, out)
        }
        TopicCommand::List { broker, internal } => {
            let topics = Cluster::connect(broker)?.topics()?;
            let shown = topics.iter().filter(|topic| *internal || !topic.internal);
            shown
                .into_iter()
                .try_for_each(|topic| print::line(out, &topic.name))
        }
        TopicCommand::Describe { broker, names } => describe(broker, names, out),
        TopicCommand::Delete {
            broker,
            names,
            if_exists,
        } => delete(broker, names, *if_exists, out),
        TopicCommand::Alter {
            broker,
            name,
            partitions,
            set,
            unset,
        } => alter(broker, name, *partitions, set, unset, out),
    }
}

fn create(
    broker: &BrokerArgs,
    topic: create_topics::RequestTopics,
    if_not_exists: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut cluster = Cluster::connect(broker)?;
    let (response, _) = cluster.any().call(&create_topics::Request {
        topics: vec![topic],
        timeout_ms: broker_timeout(broker),
        ..create_topics::Request::default()
    })?;
    for topic in &response.topics {
        let there = ErrorCode(topic.error_code) == ErrorCode::TOPIC_ALREADY_EXISTS;
        if there && if_not_exists {
            print::line(out, &format!("topic {} is there already", topic.name))?;
            continue;
        }
        let what = format!("cannot create topic {}", topic.name);
        check(what, topic.error_code, topic.error_message.as_ref())?;
        print::line(out, &format!("created topic {}", topic.name))?;
    }
    Ok(())
}

fn delete(
    broker: &BrokerArgs,
    names: &[String],
    if_exists: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut cluster = Cluster::connect(broker)?;
    let texts: Vec<Text> = names.iter().cloned().map(Text::from).collect();
    // Both fields: versions up to 5 read the names, later ones the topics.
    let (response, _) = cluster.any().call(&delete_topics::Request {
        topics: texts
            .iter()
            .map(|name| delete_topics::RequestTopics {
                name: Some(name.clone()),
                ..delete_topics::RequestTopics::default()
            })
            .collect(),
        topic_names: texts,
        timeout_ms: broker_timeout(broker),
    })?;
    let mut failed = None;
    for topic in response.responses {
        let name = topic.name.clone().unwrap_or_default();
        let missing = ErrorCode(topic.error_code) == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        if missing && if_exists {
            print::line(out, &format!("topic {name} is not there"))?;
            continue;
        }
        let what = format!("cannot delete topic {name}");
        match check(what, topic.error_code, topic.error_message.as_ref()) {
            Ok(()) => print::line(out, &format!("deleted topic {name}"))?,
            // The others are deleted all the same: say so before failing.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn describe(broker: &BrokerArgs, names: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    let mut cluster = Cluster::connect(broker)?;
    let topics = if names.is_empty() {
        cluster.topics()?
    } else {
        names
            .iter()
            .map(|name| cluster.topic(name, AutoCreate::No))
            .collect::<Result<Vec<TopicView>, ClientError>>()?
    };
    let configs = topic_configs(&mut cluster, &topics)?;
    for (topic, configs) in topics.iter().zip(configs) {
        let replicas = topic
            .partitions
            .first()
            .map_or(0, |partition| partition.replica_nodes.len());
        print::line(
            out,
            &format!(
                "topic {}  id {}  partitions {}  replicas {replicas}",
                topic.name,
                topic.id,
                topic.partitions.len(),
            ),
        )?;
        for (name, value) in configs {
            print::line(out, &format!("  {name}={value}"))?;
        }
        let mut rows = vec![
            ["  partition", "leader", "epoch", "replicas", "isr"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(topic.partitions.iter().map(|partition| {
            vec![
                format!("  {}", partition.partition_index),
                partition.leader_id.to_string(),
                partition.leader_epoch.to_string(),
                numbers(&partition.replica_nodes),
                numbers(&partition.isr_nodes),
            ]
        }));
        print::table(out, &rows)?;
    }
    Ok(())
}

/// What each topic sets for itself, in the order of `topics`.
fn topic_configs(
    cluster: &mut Cluster,
    topics: &[TopicView],
) -> Result<Vec<Vec<(Text, Text)>>, Failure> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let resources = topics
        .iter()
        .map(|topic| describe_configs::RequestResources {
            resource_type: RESOURCE_TOPIC,
            resource_name: topic.name.clone(),
            configuration_keys: None,
        });
    let (response, _) = cluster.any().call(&describe_configs::Request {
        resources: resources.collect(),
        ..describe_configs::Request::default()
    })?;
    let mut configs = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut results = response.results.iter();
        let Some(result) = results.find(|result| result.resource_name == topic.name) else {
            configs.push(Vec::new());
            continue;
        };
        let what = format!("cannot describe topic {}", topic.name);
        check(what, result.error_code, result.error_message.as_ref())?;
        let own = result.configs.iter();
        let own = own.filter(|config| config.config_source == SOURCE_TOPIC);
        configs.push(
            own.map(|config| {
                (
                    config.name.clone(),
                    config.value.clone().unwrap_or_default(),
                )
            })
            .collect(),
        );
    }
    Ok(configs)
}

fn alter(
    broker: &BrokerArgs,
    name: &str,
    partitions: Option<i32>,
    set: &[String],
    unset: &[String],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if partitions.is_none() && set.is_empty() && unset.is_empty() {
        return Err(Failure::Told(
            "nothing to alter; give --partitions, --set or --unset".to_owned(),
        ));
    }
    let changes = changes(set, unset)?;
    let mut cluster = Cluster::connect(broker)?;
    if !changes.is_empty() {
        let (response, _) = cluster.any().call(&incremental_alter_configs::Request {
            resources: vec![incremental_alter_configs::RequestResources {
                resource_type: RESOURCE_TOPIC,
                resource_name: Text::from(name.to_owned()),
                configs: changes,
            }],
            validate_only: false,
        })?;
        for result in &response.responses {
            let what = format!("cannot alter topic {name}");
            check(what, result.error_code, result.error_message.as_ref())?;
        }
        print::line(out, &format!("altered the properties of topic {name}"))?;
    }
    if let Some(count) = partitions {
        let (response, _) = cluster.any().call(&create_partitions::Request {
            topics: vec![create_partitions::RequestTopics {
                name: Text::from(name.to_owned()),
                count,
                assignments: None,
            }],
            timeout_ms: broker_timeout(broker),
            validate_only: false,
        })?;
        for result in &response.results {
            let what = format!("cannot add partitions to topic {name}");
            check(what, result.error_code, result.error_message.as_ref())?;
        }
        print::line(out, &format!("topic {name} has {count} partitions"))?;
    }
    Ok(())
}

fn changes(
    set: &[String],
    unset: &[String],
) -> Result<Vec<incremental_alter_configs::RequestResourcesConfigs>, Failure> {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    let change =
        |name, config_operation, value| incremental_alter_configs::RequestResourcesConfigs {
            name,
            config_operation,
            value,
        };
    let set = pairs(set)?
        .into_iter()
        .map(|(name, value)| change(name, SET, Some(value)));
    let unset = unset
        .iter()
        .map(|name| change(Text::from(name.clone()), DELETE, None));
    Ok(set.chain(unset).collect())
}

fn pairs(texts: &[String]) -> Result<Vec<(Text, Text)>, Failure> {
    texts
        .iter()
        .map(|text| match text.split_once('=') {
            Some((name, value)) => Ok((
                Text::from(name.trim().to_owned()),
                Text::from(value.to_owned()),
            )),
            None => Err(Failure::Told(format!(
                "\"{text}\" is no property with a value; give property=value"
            ))),
        })
        .collect()
}

fn numbers(numbers: &[i32]) -> String {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    texts.join(",")
}

fn broker_timeout(broker: &BrokerArgs) -> i32 {
    i32::try_from(broker.timeout_ms).unwrap_or(i32::MAX)
}
