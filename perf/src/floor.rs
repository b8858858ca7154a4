//! The floor: what a broker that does nothing but the unavoidable costs. One epoll thread reads frames, checks each batch's checksum, appends it to a
//! fresh preallocated file with one pwrite and answers. Without a directory it neither checks nor appends: then what is measured is the load itself.
//!
//! A bound to compare with, not a broker: it assigns no offsets, validates no records, keeps no index and serves no Fetch.

use std::collections::HashMap;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use corelog_wire::batch::{BatchHeader, verify_crc};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fs::{FallocateFlags, fallocate};

use crate::Failure;
use crate::answers::{self, ProduceSeen};
use crate::connection::Connection;
use crate::frames::{self, Malformed};

const LISTENER: u64 = u64::MAX;
/// A file grows by what it has, between these two.
const GROWTH_MIN: u64 = 1 << 20;
const GROWTH_MAX: u64 = 64 << 20;
const CORRUPT: i16 = 2;

/// Serves until the process is ended.
pub(crate) fn serve(address: SocketAddr, dir: Option<&Path>) -> Result<(), Failure> {
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir).map_err(Failure::at(dir))?;
    }
    let failed = || Failure::io(format!("cannot listen on {address}"));
    let listener = TcpListener::bind(address).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(by_epoll)?;
    let interest = epoll::EventFlags::IN;
    epoll::add(
        &epoll,
        &listener,
        epoll::EventData::new_u64(LISTENER),
        interest,
    )
    .map_err(by_epoll)?;
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut accepted = 0;
    let mut floor = Floor {
        dir: dir.map(Path::to_owned),
        files: HashMap::new(),
        answers: BytesMut::new(),
    };
    let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(by_epoll(error)),
        }
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                if let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true).map_err(failed())?;
                    stream.set_nonblocking(true).map_err(failed())?;
                    epoll::add(
                        &epoll,
                        &stream,
                        epoll::EventData::new_u64(accepted),
                        interest,
                    )
                    .map_err(by_epoll)?;
                    connections.insert(accepted, Connection::over(stream));
                    accepted += 1;
                }
            } else if let Some(connection) = connections.get_mut(&number)
                && !matches!(floor.serve(connection), Ok(true))
            {
                // Closing the socket takes it out of the epoll.
                connections.remove(&number);
            }
        }
    }
}

fn by_epoll(error: rustix::io::Errno) -> Failure {
    Failure::io("epoll")(error.into())
}

struct Floor {
    /// Without it nothing is checked and nothing is kept.
    dir: Option<PathBuf>,
    files: HashMap<(Vec<u8>, u32), Appended>,
    answers: BytesMut,
}

struct Appended {
    file: File,
    end: u64,
    allocated: u64,
    records: i64,
}

impl Floor {
    /// Handles what has arrived; whether the connection goes on.
    fn serve(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        let open = connection.receive(|frame| self.handle(frame))?;
        if !self.answers.is_empty() {
            connection.push(self.answers.split().freeze());
        }
        // Answers are small and bounded by the requests in flight: a socket that does not take them is one that nobody reads.
        Ok(connection.flush()? && open)
    }

    fn handle(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let (key, version, correlation, body) = answers::request_head(frame)?;
        match (key, version) {
            (frames::PRODUCE, frames::PRODUCE_VERSION) => {
                self.produce(&answers::produce_seen(correlation, body)?)
            }
            (frames::INIT_PRODUCER_ID, _) => {
                answers::put_producer_id(&mut self.answers, correlation);
                Ok(())
            }
            (frames::API_VERSIONS, _) => {
                answers::put_api_versions(&mut self.answers, correlation);
                Ok(())
            }
            (frames::CREATE_TOPICS | frames::DELETE_TOPICS, _) => {
                if key == frames::DELETE_TOPICS {
                    self.remove_all()?;
                }
                Ok(answers::put_topic_done(
                    &mut self.answers,
                    key,
                    correlation,
                    body,
                )?)
            }
            _ => Err(Malformed.into()),
        }
    }

    fn produce(&mut self, seen: &ProduceSeen<'_>) -> Result<(), Failure> {
        let (error, base_offset) = match &self.dir {
            None => (0, 0),
            Some(_) if !verify_crc(seen.batch) => (CORRUPT, -1),
            Some(dir) => (0, append(&mut self.files, dir, seen)?),
        };
        if seen.acks != 0 {
            answers::put_produced(&mut self.answers, seen, error, base_offset);
        }
        Ok(())
    }

    /// One run at a time is measured, so the end of one of its topics is the end of all.
    fn remove_all(&mut self) -> Result<(), Failure> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        for number in 0..self.files.len() {
            let path = dir.join(format!("{number}.log"));
            std::fs::remove_file(&path).map_err(Failure::at(&path))?;
        }
        self.files.clear();
        Ok(())
    }
}

fn append(
    files: &mut HashMap<(Vec<u8>, u32), Appended>,
    dir: &Path,
    seen: &ProduceSeen<'_>,
) -> Result<i64, Failure> {
    let header = BatchHeader::parse(seen.batch).map_err(|_| Malformed)?;
    let key = (seen.topic.to_vec(), seen.partition);
    let number = files.len();
    let appended = match files.entry(key) {
        std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
        std::collections::hash_map::Entry::Vacant(new) => {
            new.insert(Appended::create(&dir.join(format!("{number}.log")))?)
        }
    };
    appended.append(seen.batch)?;
    let base_offset = appended.records;
    appended.records += i64::from(header.record_count);
    Ok(base_offset)
}

impl Appended {
    fn create(path: &Path) -> Result<Appended, Failure> {
        let file = File::create(path).map_err(Failure::at(path))?;
        Ok(Appended {
            file,
            end: 0,
            allocated: 0,
            records: 0,
        })
    }

    fn append(&mut self, batch: &[u8]) -> Result<(), Failure> {
        let end = self.end + batch.len() as u64;
        if end > self.allocated {
            let growth = self
                .allocated
                .clamp(GROWTH_MIN, GROWTH_MAX)
                .max(batch.len() as u64);
            fallocate(&self.file, FallocateFlags::empty(), self.allocated, growth)
                .map_err(|error| Failure::io("fallocate")(error.into()))?;
            self.allocated += growth;
        }
        self.file
            .write_all_at(batch, self.end)
            .map_err(Failure::io("pwrite"))?;
        self.end = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn floor(dir: Option<&Path>) -> Floor {
        Floor {
            dir: dir.map(Path::to_owned),
            files: HashMap::new(),
            answers: BytesMut::new(),
        }
    }

    #[test]
    fn a_batch_is_checked_appended_and_answered() {
        let dir = tempfile::tempdir().unwrap();
        let mut floor = floor(Some(dir.path()));
        let batch = frames::batch(&Workload::find("b2").unwrap(), 0).unwrap();
        let good = frames::produce("t", 3, 8, -1, &batch);
        floor.handle(&good[4..]).unwrap();
        let answer = floor.answers.split();
        assert_eq!(
            frames::produced(&answer[4..]),
            Ok(frames::Produced {
                number: 8,
                partition: 3,
                error: 0
            })
        );
        let mut torn = good.to_vec();
        *torn.last_mut().unwrap() ^= 1;
        floor.handle(&torn[4..]).unwrap();
        let answer = floor.answers.split();
        assert_eq!(frames::produced(&answer[4..]).unwrap().error, CORRUPT);
        let file = std::fs::read(dir.path().join("0.log")).unwrap();
        assert_eq!(&file[..batch.len()], &batch[..]);
        assert_eq!(floor.files[&(b"t".to_vec(), 3)].records, 16);
    }

    #[test]
    fn without_a_directory_everything_is_answered_and_nothing_looked_at() {
        let mut null = floor(None);
        null.handle(&frames::produce("t", 3, 8, -1, b"no batch")[4..])
            .unwrap();
        let answer = null.answers.split();
        assert_eq!(frames::produced(&answer[4..]).unwrap().error, 0);
        assert!(null.files.is_empty());
        null.handle(&frames::delete_topic("t")[4..]).unwrap();
        null.handle(&frames::init_producer_id()[4..]).unwrap();
    }

    #[test]
    fn deleting_the_topic_removes_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut floor = floor(Some(dir.path()));
        let batch = frames::batch(&Workload::find("b4").unwrap(), 0).unwrap();
        floor
            .handle(&frames::produce("t", 0, 0, 1, &batch)[4..])
            .unwrap();
        floor.handle(&frames::delete_topic("t")[4..]).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
