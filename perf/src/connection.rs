//! A socket that never blocks: frames out by vectored writes without copying, frames in from one buffer.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Buf as _, Bytes};

use crate::Failure;

/// More in one call gains nothing.
const SLICES_MAX: usize = 64;
const FIRST_INPUT_BYTES: usize = 64 << 10;
/// No answer of a run is larger: a Fetch asks for less.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    output: VecDeque<Bytes>,
    input: Vec<u8>,
    /// Bytes of `input` that have arrived.
    filled: usize,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Connection, Failure> {
        let failed = || Failure::io(format!("cannot connect to {address}"));
        let stream =
            TcpStream::connect_timeout(&address, Duration::from_secs(10)).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        stream.set_nonblocking(true).map_err(failed())?;
        Ok(Connection::over(stream))
    }

    /// `stream` must not block.
    pub(crate) fn over(stream: TcpStream) -> Connection {
        Connection {
            stream,
            output: VecDeque::new(),
            input: vec![0; FIRST_INPUT_BYTES],
            filled: 0,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn push(&mut self, frame: Bytes) {
        self.output.push_back(frame);
    }

    /// Writes what the socket takes; whether all is written.
    pub(crate) fn flush(&mut self) -> Result<bool, Failure> {
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.output.len().min(SLICES_MAX);
            for (slice, frame) in slices.iter_mut().zip(&self.output) {
                *slice = IoSlice::new(frame);
            }
            match (&self.stream).write_vectored(&slices[..count]) {
                Ok(written) => self.written(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::io("cannot write to the broker")(error)),
            }
        }
        Ok(true)
    }

    fn written(&mut self, mut count: usize) {
        while let Some(front) = self.output.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.output.pop_front();
        }
    }

    /// Reads once and calls `each` with every frame that is complete, without its length. False when the other side has closed.
    pub(crate) fn receive(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let count = match (&self.stream).read(&mut self.input[self.filled..]) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(true);
            }
            Err(error) => return Err(Failure::io("cannot read from the other side")(error)),
        };
        self.filled += count;
        let mut at = 0;
        while let Some(length) = frame_length(&self.input[at..self.filled])? {
            let (begin, end) = (at + 4, at + 4 + length);
            if end > self.filled {
                self.make_room(at, 4 + length);
                return Ok(true);
            }
            each(&self.input[begin..end])?;
            at = end;
        }
        self.make_room(at, FIRST_INPUT_BYTES);
        Ok(true)
    }

    /// Moves what begins at `from` to the front, where `need` bytes must fit.
    fn make_room(&mut self, from: usize, need: usize) {
        self.input.copy_within(from..self.filled, 0);
        self.filled -= from;
        if self.input.len() < need {
            self.input.resize(need, 0);
        }
    }
}

fn frame_length(input: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(prefix) = input.first_chunk::<4>() else {
        return Ok(None);
    };
    match usize::try_from(i32::from_be_bytes(*prefix)) {
        Ok(length) if length <= ANSWER_BYTES_MAX => Ok(Some(length)),
        _ => Err(Failure::told(
            "a frame has an impossible length; is this a Kafka broker?",
        )),
    }
}

/// One request at a time, waiting for its answer: for what is done before and after a run.
pub(crate) fn ask(address: SocketAddr, request: &Bytes) -> Result<Bytes, Failure> {
    let failed = || Failure::io(format!("no answer from {address}"));
    let mut stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(10)).map_err(failed())?;
    let timeout = Some(Duration::from_mins(1));
    stream.set_read_timeout(timeout).map_err(failed())?;
    stream.write_all(request).map_err(failed())?;
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).map_err(failed())?;
    let length = frame_length(&prefix)?.unwrap_or(0);
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).map_err(failed())?;
    Ok(Bytes::from(frame))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, connection)
    }

    /// Every frame until the other side closes.
    fn all_frames(connection: &mut Connection) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let open = connection.receive(|frame| {
                frames.push(frame.to_vec());
                Ok(())
            });
            if !open.unwrap() {
                return frames;
            }
        }
    }

    #[test]
    fn frames_are_found_however_the_bytes_arrive() {
        let (mut other, mut connection) = pair();
        let large = vec![7; 3 * FIRST_INPUT_BYTES];
        let writer = std::thread::spawn(move || {
            let mut bytes = vec![0, 0, 0, 1, 9, 0, 0, 0, 0];
            bytes.extend_from_slice(&(large.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&large);
            bytes.extend_from_slice(&[0, 0, 0, 2, 1, 2]);
            for piece in bytes.chunks(5000) {
                other.write_all(piece).unwrap();
            }
        });
        let frames = all_frames(&mut connection);
        writer.join().unwrap();
        let lengths: Vec<usize> = frames.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1, 0, 3 * FIRST_INPUT_BYTES, 2]);
        assert!(frames[2].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_full_socket_keeps_the_rest_for_later() {
        let (mut other, mut connection) = pair();
        let frame = Bytes::from((0..1 << 20).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        for _ in 0..16 {
            connection.push(frame.clone());
        }
        assert!(!connection.flush().unwrap());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).unwrap();
            all
        });
        while !connection.flush().unwrap() {
            std::thread::yield_now();
        }
        drop(connection);
        let all = reader.join().unwrap();
        assert_eq!(all.len(), 16 << 20);
        assert!(all.chunks(1 << 20).all(|chunk| chunk == frame));
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error() {
        assert!(frame_length(&[0x80, 0, 0, 0]).is_err());
        assert!(frame_length(b"HTTP/1.1").is_err());
        assert_eq!(frame_length(&[0, 0, 0]).unwrap(), None);
    }
}
