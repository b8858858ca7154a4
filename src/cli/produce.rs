//! `corelog produce`: every line of stdin is a record.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use corelog_shards::base::error_code::ErrorCode;
use corelog_wire::batch::{BatchBuilder, NewRecord};
use corelog_wire::compress::Codec;
use corelog_wire::messages::produce;

use super::args::{Acks, Compression, ProduceArgs};
use super::client::{Call, ClientError, check};
use super::cluster::{AutoCreate, Cluster, TopicView};
use super::failure::Failure;
use super::partitioner;

/// A batch is sent when it is this large, and as soon as there is no more input at the moment.
const BATCH_BYTES: usize = 64 << 10;
/// Lines that may be read ahead of what is sent.
const LINES_AHEAD: usize = 1024;

/// One record, as a line gave it.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

/// Sends all of `input`; tells how many records there were, on `report`.
pub(super) fn run(
    args: &ProduceArgs,
    input: impl Read + Send + 'static,
    report: &mut dyn Write,
) -> Result<(), Failure> {
    let headers = headers(&args.headers)?;
    let mut producer = Producer::connect(args, headers)?;
    let lines = read_lines(input)?;
    let mut count = 0_u64;
    while let Ok(first) = lines.recv() {
        // What has arrived by now goes together; a pipe that pauses is not waited for.
        let mut next = Some(first);
        while let Some(line) = next {
            let line = line.map_err(Failure::Input)?;
            producer.add(parse(&line, args))?;
            count += 1;
            next = lines.try_recv().ok();
        }
        producer.send_all()?;
    }
    if !args.quiet {
        let plural = if count == 1 { "record" } else { "records" };
        writeln!(report, "produced {count} {plural}").map_err(Failure::Output)?;
    }
    Ok(())
}

/// Reads on a thread of its own, so that a slow input does not hold back what it has given already.
fn read_lines(
    input: impl Read + Send + 'static,
) -> Result<Receiver<std::io::Result<Vec<u8>>>, Failure> {
    let (sender, lines) = sync_channel(LINES_AHEAD);
    let read = move || {
        let mut input = BufReader::with_capacity(256 << 10, input);
        loop {
            let mut line = Vec::new();
            let read = input.read_until(b'\n', &mut line);
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            let line = match read {
                Ok(0) => return,
                Ok(_) => Ok(line),
                Err(error) => Err(error),
            };
            let failed = line.is_err();
            // Nobody listens any more: sending has failed, and says so.
            if sender.send(line).is_err() || failed {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(read)
        .map_err(Failure::Input)?;
    Ok(lines)
}

fn parse(line: &[u8], args: &ProduceArgs) -> Record {
    let split = args
        .key_separator
        .as_ref()
        .and_then(|separator| find(line, separator.as_bytes()).map(|at| (at, separator.len())));
    let (key, value) = match split {
        Some((at, length)) => (Some(&line[..at]), &line[at + length..]),
        None => (None, line),
    };
    let null = args.null.as_ref().map(String::as_bytes);
    let kept = |bytes: &[u8]| (Some(bytes) != null).then(|| bytes.to_vec());
    Record {
        key: key.and_then(kept),
        value: kept(value),
    }
}

fn find(line: &[u8], separator: &[u8]) -> Option<usize> {
    line.windows(separator.len().max(1))
        .position(|window| window == separator)
}

fn headers(texts: &[String]) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.as_bytes().to_vec())),
        None => Err(Failure::Told(format!(
            "\"{text}\" is no header; give name=value"
        ))),
    };
    texts.iter().map(pair).collect()
}

struct Producer {
    cluster: Cluster,
    topic: TopicView,
    /// Where everything goes, if the user said so.
    partition: Option<i32>,
    acks: i16,
    codec: Codec,
    headers: Vec<(String, Vec<u8>)>,
    /// Records that are not sent yet, by partition.
    batches: BTreeMap<i32, BatchBuilder>,
    /// Counts batches, to spread records without a key.
    rounds: u32,
}

impl Producer {
    fn connect(args: &ProduceArgs, headers: Vec<(String, Vec<u8>)>) -> Result<Producer, Failure> {
        let mut cluster = Cluster::connect(&args.broker)?;
        let topic = cluster.patient_topic(&args.topic, AutoCreate::Yes)?;
        if let Some(partition) = args.partition {
            cluster.leader(&topic, partition)?;
        }
        Ok(Producer {
            cluster,
            topic,
            partition: args.partition,
            acks: match args.acks {
                Acks::None => 0,
                Acks::Leader => 1,
                Acks::All => -1,
            },
            codec: match args.compression {
                Compression::None => Codec::None,
                Compression::Gzip => Codec::Gzip,
                Compression::Snappy => Codec::Snappy,
                Compression::Lz4 => Codec::Lz4,
                Compression::Zstd => Codec::Zstd,
            },
            headers,
            batches: BTreeMap::new(),
            rounds: 0,
        })
    }

    fn add(&mut self, record: Record) -> Result<(), Failure> {
        let partition = self.partition_of(record.key.as_deref());
        let codec = self.codec;
        let batch = self
            .batches
            .entry(partition)
            .or_insert_with(|| BatchBuilder::new(codec));
        let headers: Vec<(&str, Option<&[u8]>)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), Some(value.as_slice())))
            .collect();
        batch.add(&NewRecord {
            timestamp_ms: now_ms(),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
        if batch.len() >= BATCH_BYTES {
            self.send(partition)?;
        }
        Ok(())
    }

    /// As Kafka's clients do: by the key's hash; without a key, one partition per batch, in turns.
    fn partition_of(&self, key: Option<&[u8]>) -> i32 {
        let count = self.topic.partitions.len().max(1) as u32;
        match (self.partition, key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partitioner::of_key(key, count),
            (None, None) => (self.rounds % count) as i32,
        }
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        while let Some((&partition, _)) = self.batches.first_key_value() {
            self.send(partition)?;
        }
        Ok(())
    }

    fn send(&mut self, partition: i32) -> Result<(), Failure> {
        let Some(batch) = self.batches.remove(&partition) else {
            return Ok(());
        };
        self.rounds = self.rounds.wrapping_add(1);
        let records = batch
            .build()
            .map_err(|error| Failure::Told(format!("cannot compress a batch: {error}")))?;
        let request = produce::Request {
            acks: self.acks,
            timeout_ms: self.cluster.timeout_ms(),
            topic_data: vec![produce::RequestTopicData {
                name: self.topic.name.clone(),
                topic_id: self.topic.id,
                partition_data: vec![produce::RequestTopicDataPartitionData {
                    index: partition,
                    records: Some(records),
                }],
            }],
            ..produce::Request::default()
        };
        let topic = self.topic.clone();
        let acks = self.acks;
        self.cluster
            .patiently(|cluster| {
                let leader = cluster.leader(&topic, partition)?;
                if acks == 0 {
                    let version = leader.version::<produce::Request>()?;
                    return leader.send(&request, version);
                }
                let (response, _) = leader.call(&request)?;
                accepted(&response, &topic, partition)
            })
            .map_err(Failure::from)
    }
}

fn accepted(
    response: &produce::Response,
    topic: &TopicView,
    partition: i32,
) -> Result<(), ClientError> {
    let answers = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    let mut answers = answers.filter(|answer| answer.index == partition);
    let what = format!(
        "cannot produce to partition {partition} of topic {}",
        topic.name
    );
    match answers.next() {
        Some(answer) => check(what, answer.error_code, answer.error_message.as_ref()),
        None => Err(ClientError::Refused {
            what,
            code: ErrorCode::UNKNOWN_SERVER_ERROR,
            message: Some(format!(
                "the answer to {} is empty",
                <produce::Request as Call>::NAME
            )),
        }),
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Arguments, Command};
    use super::*;

    fn args(line: &str) -> ProduceArgs {
        let words = ["corelog", "produce", "t"].into_iter();
        let words = words.chain(line.split_ascii_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Produce(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn record(key: Option<&str>, value: Option<&str>) -> Record {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Record {
            key: key.map(bytes),
            value: value.map(bytes),
        }
    }

    #[test]
    fn a_line_is_a_value_or_a_key_and_a_value() {
        assert_eq!(parse(b"a:b", &args("")), record(None, Some("a:b")));
        let keyed = args("--key-separator :");
        assert_eq!(parse(b"a:b:c", &keyed), record(Some("a"), Some("b:c")));
        assert_eq!(parse(b"abc", &keyed), record(None, Some("abc")));
        assert_eq!(parse(b":", &keyed), record(Some(""), Some("")));
        let wide = args("--key-separator ==");
        assert_eq!(parse(b"a=b==c", &wide), record(Some("a=b"), Some("c")));
    }

    #[test]
    fn a_text_may_stand_for_null() {
        let nulls = args("--key-separator : --null NULL");
        assert_eq!(parse(b"NULL:NULL", &nulls), record(None, None));
        assert_eq!(parse(b"k:NULL", &nulls), record(Some("k"), None));
        assert_eq!(parse(b"NULLS", &nulls), record(None, Some("NULLS")));
    }

    #[test]
    fn lines_are_read_to_the_last_even_without_a_line_end() {
        let lines = read_lines(&b"a\n\nb"[..]).unwrap();
        let lines: Vec<Vec<u8>> = lines.iter().map(Result::unwrap).collect();
        assert_eq!(lines, [b"a".to_vec(), Vec::new(), b"b".to_vec()]);
    }

    #[test]
    fn headers_are_names_with_values() {
        let pairs = headers(&["a=b=c".to_owned()]).unwrap();
        assert_eq!(pairs, [("a".to_owned(), b"b=c".to_vec())]);
        assert!(headers(&["a".to_owned()]).is_err());
    }
}
