//! Connections that have asked one thing and stay silent.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;
use crate::frames;

/// Files that the program needs beside them: its own, and the connections that are not idle.
const OTHER_FILES: u64 = 2000;

/// Opens so many and waits for the one answer of each.
pub(crate) fn open(address: SocketAddr, count: u32) -> Result<Vec<TcpStream>, Failure> {
    use std::io::{Read as _, Write as _};
    let failed = || Failure::io(format!("an idle connection to {address}"));
    allow_open_files(u64::from(count) + OTHER_FILES)?;
    (0..count)
        .map(|_| {
            let mut stream = TcpStream::connect(address).map_err(failed())?;
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .map_err(failed())?;
            stream
                .write_all(&frames::api_versions())
                .map_err(failed())?;
            let mut prefix = [0; 4];
            stream.read_exact(&mut prefix).map_err(failed())?;
            let mut answer = vec![0; u32::from_be_bytes(prefix).min(1 << 20) as usize];
            stream.read_exact(&mut answer).map_err(failed())?;
            Ok(stream)
        })
        .collect()
}

/// For this program and what it starts from here on; a broker needs as many as its clients. As many as may be, if that is less.
pub(crate) fn allow_open_files(count: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let raise = |current: u64| Rlimit {
        current: Some(current),
        maximum: limit.maximum.map(|maximum| maximum.max(current)),
    };
    if setrlimit(Resource::Nofile, raise(count)).is_ok() {
        return Ok(());
    }
    let most = limit.maximum.unwrap_or(count);
    setrlimit(Resource::Nofile, raise(most))
        .map_err(|error| Failure::io("cannot raise the limit of open files")(error.into()))?;
    Err(Failure::told(format!(
        "only {most} files may be open and {count} are needed; raise ulimit -Hn"
    )))
}
