//! rskafka: `client-rskafka test|produce|consume BOOTSTRAP ...` (see ../../README.md).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use sha2::{Digest, Sha256};

type Failure = Box<dyn std::error::Error>;

const TIME_BASE_MS: i64 = 1_700_000_000_000;
const LENGTHS: [usize; 8] = [1, 7, 64, 500, 1500, 20, 9000, 3];
const LARGEST_VALUE: usize = 1_048_588 - 61 - 3 - 8;
const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::NoCompression),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

fn filler(i: usize, length: usize) -> Vec<u8> {
    let mut x = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..length)
        .map(|j| {
            if j % 2 == 1 {
                return 97 + (i % 26) as u8;
            }
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        })
        .collect()
}

/// Record `i` in its plain form: this client keeps headers in a map and has no null header.
fn record(i: usize) -> Record {
    let key = match i {
        _ if i % 5 == 2 => None,
        _ if i % 19 == 7 => Some(Vec::new()),
        _ => Some(format!("key-{}", i % 17).into_bytes()),
    };
    let value = match i {
        _ if i % 9 == 4 && key.is_some() => None,
        _ if i % 9 == 7 => Some(Vec::new()),
        _ => Some(filler(i, if i % 100 == 99 { 70_000 } else { LENGTHS[i % 8] })),
    };
    let headers: BTreeMap<String, Vec<u8>> = match i % 4 {
        0 => BTreeMap::new(),
        1 => BTreeMap::from([("empty".into(), Vec::new()), ("trace".into(), format!("t-{i}").into_bytes())]),
        2 => BTreeMap::from([("bin".into(), (1..=255).collect())]),
        _ => BTreeMap::from([("a".into(), b"1".to_vec()), ("naïve".into(), "é".as_bytes().to_vec())]),
    };
    Record { key, value, headers, timestamp: time(i as i64 * 10) }
}

fn time(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(TIME_BASE_MS + ms).expect("a time in this century")
}

fn digest(r: &Record) -> String {
    fn part(h: &mut Sha256, p: Option<&[u8]>) {
        h.update(p.map_or(-1, |p| p.len() as i32).to_be_bytes());
        h.update(p.unwrap_or_default());
    }
    let mut h = Sha256::new();
    part(&mut h, r.key.as_deref());
    part(&mut h, r.value.as_deref());
    for (name, value) in &r.headers {
        part(&mut h, Some(name.as_bytes()));
        part(&mut h, Some(value));
    }
    h.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect()
}

struct Cases {
    client: Client,
    passed: u32,
    failed: u32,
}

impl Cases {
    async fn create(&self, tag: &str, partitions: i32) -> Result<String, Failure> {
        let name = format!("t-{tag}-{}", Utc::now().timestamp_nanos_opt().unwrap_or_default());
        // This client cannot set configs: the records are read at once, before retention looks at their times.
        self.client.controller_client()?.create_topic(&name, partitions, 1, 5_000).await?;
        Ok(name)
    }

    async fn partition(&self, topic: &str, partition: i32) -> Result<PartitionClient, Failure> {
        Ok(self.client.partition_client(topic, partition, UnknownTopicHandling::Retry).await?)
    }

    async fn case(&mut self, name: &str, run: impl AsyncFnOnce(&Cases) -> Result<(), Failure>) {
        if let Ok(only) = std::env::var("ONLY")
            && !only.is_empty()
            && !only.split(',').any(|w| format!("rskafka/{name}").contains(w))
        {
            return;
        }
        match tokio::time::timeout(Duration::from_secs(60), run(self)).await {
            Ok(Ok(())) => {
                self.passed += 1;
                println!("PASS rskafka/{name}");
            }
            Ok(Err(why)) => {
                self.failed += 1;
                println!("FAIL rskafka/{name}: {why}");
            }
            Err(_) => {
                self.failed += 1;
                println!("FAIL rskafka/{name}: took more than 60 s");
            }
        }
    }
}

async fn read(p: &PartitionClient, start: i64, count: usize) -> Result<Vec<RecordAndOffset>, Failure> {
    let (mut got, mut next) = (Vec::new(), start);
    let end = Instant::now() + Duration::from_secs(30);
    while got.len() < count && Instant::now() < end {
        let (records, _) = p.fetch_records(next, 1..4_000_000, 1_000).await?;
        // A batch comes whole, also when what was asked for is in its middle.
        for r in records.into_iter().filter(|r| r.offset >= start) {
            next = r.offset + 1;
            got.push(r);
        }
    }
    Ok(got)
}

fn same(got: &[RecordAndOffset], want: &[Record], first: i64) -> Result<(), Failure> {
    if got.len() != want.len() {
        return Err(format!("got {} records, want {}", got.len(), want.len()).into());
    }
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        if g.offset != first + i as i64 || &g.record != w {
            return Err(format!("record {i} at offset {} is not what was sent", g.offset).into());
        }
    }
    Ok(())
}

fn expect(ok: bool, what: &str) -> Result<(), Failure> {
    if ok { Ok(()) } else { Err(what.into()) }
}

async fn test(client: Client) -> Result<bool, Failure> {
    let mut cases = Cases { client, passed: 0, failed: 0 };
    for (name, codec) in CODECS {
        cases
            .case(&format!("codec_{name}"), async |c| {
                let p = c.partition(&c.create(name, 1).await?, 0).await?;
                let want: Vec<Record> = (0..300).map(record).collect();
                let offsets = p.produce(want.clone(), codec).await?;
                expect(offsets == (0..300).collect::<Vec<i64>>(), "offsets acknowledged")?;
                same(&read(&p, 0, 300).await?, &want, 0)
            })
            .await;
    }
    cases
        .case("from_one_byte_to_max_message_bytes", async |c| {
            let p = c.partition(&c.create("sizes", 1).await?, 0).await?;
            let plain = |n: usize| Record { key: None, value: Some(filler(n, n)), headers: BTreeMap::new(), timestamp: time(0) };
            let sizes = [1, 2, 127, 128, 16_384, 999_999, LARGEST_VALUE];
            for (i, n) in sizes.into_iter().enumerate() {
                let offsets = p.produce(vec![plain(n)], Compression::NoCompression).await?;
                expect(offsets == [i as i64], "offset acknowledged")?;
            }
            same(&read(&p, 0, sizes.len()).await?, &sizes.map(plain), 0)?;
            let refused = p.produce(vec![plain(LARGEST_VALUE + 1)], Compression::NoCompression).await;
            expect(refused.is_err_and(|e| e.to_string().contains("MessageTooLarge")), "one byte too many was not refused as too large")
        })
        .await;
    cases
        .case("by_offset_in_the_middle_of_a_batch", async |c| {
            let p = c.partition(&c.create("middle", 1).await?, 0).await?;
            let want: Vec<Record> = (0..400).map(record).collect();
            p.produce(want.clone(), Compression::Gzip).await?;
            for start in [0, 1, 199, 398, 399] {
                same(&read(&p, start, 400 - start as usize).await?, &want[start as usize..], start)?;
            }
            Ok(())
        })
        .await;
    cases
        .case("by_time", async |c| {
            let p = c.partition(&c.create("time", 1).await?, 0).await?;
            for i in 0..5 {
                p.produce((i * 20..i * 20 + 20).map(record).collect(), Compression::NoCompression).await?;
            }
            for (ms, want) in [(-5, 0), (1, 1), (495, 50), (500, 50), (990, 99), (991, -1)] {
                let got = p.get_offset(OffsetAt::Timestamp(time(ms))).await?;
                expect(got == want, &format!("offset for base{ms:+} ms: got {got}, want {want}"))?;
            }
            expect(p.get_offset(OffsetAt::Earliest).await? == 0, "earliest offset")?;
            expect(p.get_offset(OffsetAt::Latest).await? == 100, "latest offset")
        })
        .await;
    cases
        .case("partitions_are_kept_apart", async |c| {
            let topic = c.create("parts", 4).await?;
            for n in 0..4 {
                let want: Vec<Record> = (n..100).step_by(4).map(record).collect();
                c.partition(&topic, n as i32).await?.produce(want, Compression::Lz4).await?;
            }
            for n in 0..4 {
                let want: Vec<Record> = (n..100).step_by(4).map(record).collect();
                same(&read(&c.partition(&topic, n as i32).await?, 0, 25).await?, &want, 0)?;
            }
            Ok(())
        })
        .await;
    cases
        .case("records_are_deleted", async |c| {
            let p = c.partition(&c.create("trim", 1).await?, 0).await?;
            let want: Vec<Record> = (0..40).map(record).collect();
            p.produce(want.clone(), Compression::NoCompression).await?;
            p.delete_records(25, 5_000).await?;
            expect(p.get_offset(OffsetAt::Earliest).await? == 25, "earliest offset after deletion")?;
            same(&read(&p, 25, 15).await?, &want[25..], 25)
        })
        .await;
    cases
        .case("a_topic_is_listed_and_deleted", async |c| {
            let topic = c.create("admin", 3).await?;
            let listed = |topics: Vec<rskafka::topic::Topic>| topics.into_iter().find(|t| t.name == topic);
            let found = listed(c.client.list_topics().await?).ok_or("the topic is not listed")?;
            expect(found.partitions.len() == 3, "number of partitions")?;
            c.client.controller_client()?.delete_topic(&topic, 5_000).await?;
            expect(listed(c.client.list_topics().await?).is_none(), "the topic is listed after its deletion")
        })
        .await;
    println!("{} passed, {} failed, 0 skipped", cases.passed, cases.failed);
    Ok(cases.failed == 0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().collect();
    let [_, command, bootstrap, rest @ ..] = args.as_slice() else {
        return Err("usage: client-rskafka test|produce|consume HOST:PORT ...".into());
    };
    let client = ClientBuilder::new(vec![bootstrap.clone()]).build().await?;
    match (command.as_str(), rest) {
        ("test", []) => std::process::exit(i32::from(!test(client).await?)),
        ("produce", [topic, codec, count]) => {
            let (_, codec) = CODECS.into_iter().find(|(name, _)| name == codec).ok_or("unknown codec")?;
            let p = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
            let records: Vec<Record> = (0..count.parse()?).map(record).collect();
            for some in records.chunks(50) {
                p.produce(some.to_vec(), codec).await?;
            }
            Ok(())
        }
        ("consume", [topic, count]) => {
            let p = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
            for r in read(&p, 0, count.parse()?).await? {
                println!("{} {} {}", r.offset, r.record.timestamp.timestamp_millis(), digest(&r.record));
            }
            Ok(())
        }
        _ => Err("usage: client-rskafka test|produce|consume HOST:PORT ...".into()),
    }
}
