#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::disk::OpenMode;
use crate::inbox::inbox;
use crate::mesh::mesh;
use crate::testing::TestDir;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

const LONG: Duration = Duration::from_secs(20);

fn turn() -> Turn {
    Turn::new(&TurnConfig {
        entries: 64,
        select_buffers: 4,
        ..TurnConfig::default()
    })
    .unwrap()
}

/// A connection: our socket, and the peer's end.
fn pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(LONG)).unwrap();
    (listener.accept().unwrap().0.try_into().unwrap(), peer)
}

/// The next completion that is no doorbell.
fn next(turn: &mut Turn) -> Completion {
    let deadline = Instant::now() + LONG;
    loop {
        match turn.next() {
            Some(Completion::Doorbell) => {}
            Some(completion) => return completion,
            None => turn.wait(Wait::Block(BLOCK_MAX), || true).unwrap(),
        }
        assert!(Instant::now() < deadline, "nothing completes");
    }
}

fn received(completion: Completion) -> (Key, io::Result<usize>, BytesMut) {
    match completion {
        Completion::Received {
            key,
            result,
            buffer,
            ..
        } => (key, result, buffer),
        other => panic!("expected a receive, got {other:?}"),
    }
}

fn code(result: io::Result<usize>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn an_idle_connection_holds_no_buffer_until_bytes_arrive() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    turn.receive_select(Key(7), &socket);
    turn.wait(Wait::Poll, || true).unwrap();
    assert!(turn.next().is_none());
    peer.write_all(b"hello").unwrap();
    let (key, result, buffer) = received(next(&mut turn));
    assert_eq!(
        (key, result.unwrap(), &buffer[..]),
        (Key(7), 5, &b"hello"[..])
    );
}

#[test]
fn a_receive_appends_to_its_buffer_and_respects_the_limit() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    peer.write_all(b"0123456789").unwrap();
    let mut buffer = turn.pool().take(100);
    buffer.extend_from_slice(b"old");
    turn.receive_into(Key(1), &socket, buffer, 4);
    let (_, result, buffer) = received(next(&mut turn));
    assert_eq!((result.unwrap(), &buffer[..]), (4, &b"old0123"[..]));
    turn.receive_into(Key(1), &socket, buffer, usize::MAX);
    let (_, result, buffer) = received(next(&mut turn));
    assert_eq!((result.unwrap(), &buffer[..]), (6, &b"old0123456789"[..]));
}

#[test]
fn the_end_of_the_stream_is_zero_bytes() {
    let mut turn = turn();
    let (socket, peer) = pair();
    drop(peer);
    turn.receive_select(Key(1), &socket);
    assert_eq!(received(next(&mut turn)).1.unwrap(), 0);
    let buffer = turn.pool().take(10);
    turn.receive_into(Key(2), &socket, buffer, 10);
    let (_, result, buffer) = received(next(&mut turn));
    assert_eq!((result.unwrap(), buffer.capacity() >= 10), (0, true));
}

#[test]
fn more_ready_connections_than_selectable_buffers_are_all_served() {
    let mut turn = turn();
    let mut pairs: Vec<_> = (0..20).map(|_| pair()).collect();
    for (number, (_, peer)) in pairs.iter_mut().enumerate() {
        peer.write_all(&[number as u8; 100]).unwrap();
    }
    for (number, (socket, _)) in pairs.iter().enumerate() {
        turn.receive_select(Key(number as u64), socket);
    }
    let mut seen: Vec<_> = (0..20)
        .map(|_| {
            let (key, result, buffer) = received(next(&mut turn));
            assert_eq!(result.unwrap(), 100);
            assert_eq!(&buffer[..], [key.0 as u8; 100]);
            key.0
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_send_of_megabytes_to_a_slow_reader_arrives_whole_and_in_order() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    socket.set_send_buffer(128 << 10).unwrap();
    let chunks: Vec<Bytes> = (0..3000u32)
        .map(|i| vec![i as u8; 1 + (i as usize * 7) % 4000].into())
        .collect();
    let expected = chunks.concat();
    let length = expected.len();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; length];
        peer.read_exact(&mut all).unwrap();
        all
    });
    turn.send(Key(3), &socket, chunks);
    match next(&mut turn) {
        Completion::Sent {
            key,
            result,
            chunks,
            ..
        } => {
            assert_eq!((key, result.unwrap()), (Key(3), length));
            assert!(
                chunks.is_empty() && chunks.capacity() >= 3000,
                "the vector comes back for reuse"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(reader.join().unwrap() == expected);
}

#[test]
fn a_send_of_nothing_completes() {
    let mut turn = turn();
    let (socket, _peer) = pair();
    turn.send(Key(1), &socket, vec![Bytes::new()]);
    assert!(matches!(
        next(&mut turn),
        Completion::Sent { result: Ok(0), .. }
    ));
    assert_eq!(turn.in_flight(), 1, "only the doorbell's own operation");
}

#[test]
fn a_cancelled_receive_gives_its_buffer_back() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    let buffer = turn.pool().take(100);
    let op = turn.receive_into(Key(1), &socket, buffer, 100);
    turn.wait(Wait::Poll, || true).unwrap();
    turn.cancel(op);
    let (_, result, buffer) = received(next(&mut turn));
    assert!(is_cancelled(&result.unwrap_err()) && buffer.capacity() >= 100);
    // The operation is over: cancelling it again does nothing to the next one in its slot.
    turn.receive_into(Key(2), &socket, buffer, 100);
    turn.cancel(op);
    peer.write_all(b"x").unwrap();
    assert_eq!(received(next(&mut turn)).1.unwrap(), 1);
}

#[test]
fn a_receive_that_got_bytes_before_its_cancel_returns_them() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    peer.write_all(b"early").unwrap();
    let op = turn.receive_select(Key(1), &socket);
    turn.wait(Wait::Poll, || true).unwrap();
    turn.cancel(op);
    let (_, result, buffer) = received(next(&mut turn));
    assert_eq!((result.unwrap(), &buffer[..]), (5, &b"early"[..]));
}

#[test]
fn a_cancelled_send_ends_although_nobody_reads() {
    let mut turn = turn();
    let (socket, _peer) = pair();
    let op = turn.send(Key(1), &socket, vec![vec![1; 64 << 20].into()]);
    for _ in 0..3 {
        turn.wait(Wait::Poll, || true).unwrap();
    }
    assert!(turn.next().is_none());
    turn.cancel(op);
    match next(&mut turn) {
        Completion::Sent { result, chunks, .. } => {
            assert!(is_cancelled(&result.unwrap_err()) && chunks.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reset_is_an_error_of_receive_and_send() {
    let mut turn = turn();
    let (socket, peer) = pair();
    socket2::SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(peer);
    turn.receive_select(Key(1), &socket);
    assert_eq!(code(received(next(&mut turn)).1), Some(libc::ECONNRESET));
    turn.send(Key(2), &socket, vec![Bytes::from_static(b"x")]);
    match next(&mut turn) {
        Completion::Sent { result, .. } => assert_eq!(code(result), Some(libc::EPIPE)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_closed_by_its_owner_lives_until_its_receive_is_over() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    turn.receive_select(Key(1), &socket);
    drop(socket);
    peer.write_all(b"late").unwrap();
    assert_eq!(received(next(&mut turn)).1.unwrap(), 4);
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn a_shutdown_ends_what_is_in_flight() {
    let mut turn = turn();
    let (socket, _peer) = pair();
    turn.receive_select(Key(1), &socket);
    turn.wait(Wait::Poll, || true).unwrap();
    socket.shutdown(Shutdown::Both).unwrap();
    assert_eq!(received(next(&mut turn)).1.unwrap(), 0);
}

#[test]
fn a_socket_connects_and_a_refusal_is_an_error() {
    let mut turn = turn();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = Socket::unconnected(address).unwrap();
    turn.connect(Key(1), &socket, address);
    assert!(matches!(
        next(&mut turn),
        Completion::Connected {
            key: Key(1),
            result: Ok(()),
            ..
        }
    ));
    turn.send(Key(2), &socket, vec![Bytes::from_static(b"hi")]);
    assert!(matches!(
        next(&mut turn),
        Completion::Sent { result: Ok(2), .. }
    ));
    let mut got = [0; 2];
    listener.accept().unwrap().0.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hi");
    drop(listener);
    let socket = Socket::unconnected(address).unwrap();
    turn.connect(Key(3), &socket, address);
    match next(&mut turn) {
        Completion::Connected { result, .. } => {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_are_written_synced_and_read() {
    let mut turn = turn();
    let dir = TestDir::new();
    let file = File::open(dir.path().join("log"), OpenMode::CreateNew).unwrap();
    turn.allocate(Key(0), &file, 0, 1 << 20);
    assert!(matches!(
        next(&mut turn),
        Completion::FileDone {
            what: FileOp::Allocate,
            result: Ok(()),
            ..
        }
    ));
    assert_eq!(file.len().unwrap(), 0);
    let chunks: Vec<Bytes> = (0..2500u32).map(|i| vec![i as u8; 100].into()).collect();
    let expected = chunks.concat();
    turn.write(Key(1), &file, 10, chunks);
    match next(&mut turn) {
        Completion::Written {
            key,
            result,
            chunks,
            ..
        } => {
            assert_eq!((key, result.unwrap(), chunks.len()), (Key(1), 250_000, 0));
        }
        other => panic!("{other:?}"),
    }
    turn.sync(Key(2), &file, SyncKind::Data);
    assert!(matches!(
        next(&mut turn),
        Completion::FileDone {
            key: Key(2),
            what: FileOp::Sync,
            result: Ok(()),
            ..
        }
    ));
    turn.sync_range(Key(3), &file, 0, 4096, RangeSync::Start);
    turn.sync_range(Key(3), &file, 0, 4096, RangeSync::Finish);
    turn.advise(Key(4), &file, 0, 4096, Advice::DontNeed);
    for _ in 0..3 {
        assert!(matches!(
            next(&mut turn),
            Completion::FileDone { result: Ok(()), .. }
        ));
    }
    let buffer = turn.pool().take(300_000);
    turn.read(Key(5), &file, 10, 300_000, buffer);
    match next(&mut turn) {
        Completion::Read {
            key,
            result,
            buffer,
            ..
        } => {
            assert_eq!(
                (key, result.unwrap()),
                (Key(5), 250_000),
                "less only at the end of the file"
            );
            assert!(buffer[..] == expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_to_a_file_that_is_not_writable_is_an_error_and_gives_the_vector_back() {
    let mut turn = turn();
    let dir = TestDir::new();
    let path = dir.path().join("log");
    std::fs::write(&path, b"abc").unwrap();
    let file = File::open(&path, OpenMode::Read).unwrap();
    turn.write(Key(1), &file, 0, vec![Bytes::from_static(b"x")]);
    match next(&mut turn) {
        Completion::Written { result, chunks, .. } => {
            assert_eq!((code(result), chunks.capacity()), (Some(libc::EBADF), 1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn more_operations_than_the_queue_has_entries_all_complete() {
    let mut turn = turn();
    let dir = TestDir::new();
    let file = File::open(dir.path().join("log"), OpenMode::CreateNew).unwrap();
    for number in 0..1000 {
        turn.write(
            Key(number),
            &file,
            number * 8,
            vec![number.to_be_bytes().to_vec().into()],
        );
    }
    let mut done: Vec<_> = (0..1000)
        .map(|_| match next(&mut turn) {
            Completion::Written { key, result, .. } => (key.0, result.unwrap()),
            other => panic!("{other:?}"),
        })
        .collect();
    done.sort_unstable();
    assert_eq!(
        done,
        (0..1000).map(|number| (number, 8)).collect::<Vec<_>>()
    );
    assert!(turn.counters().submission_full.get() > 0);
}

#[test]
fn completions_beyond_the_completion_queue_are_not_lost() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    // 2000 messages to a completion queue of 256 entries, while nobody takes events.
    for _ in 0..2000 {
        turn.send(Key(1), &socket, vec![Bytes::from_static(b"x")]);
    }
    for _ in 0..2000 {
        assert!(matches!(
            next(&mut turn),
            Completion::Sent { result: Ok(1), .. }
        ));
    }
    peer.read_exact(&mut [0; 2000]).unwrap();
}

#[test]
fn a_thread_wakes_a_sleeping_core_by_its_inbox() {
    let mut turn = turn();
    let (sender, mut inbox) = inbox(10);
    inbox.attach(turn.doorbell());
    let thread = std::thread::spawn(move || {
        for message in 0..100u32 {
            while sender.push(message).is_err() {
                std::thread::yield_now();
            }
        }
    });
    let mut got = Vec::new();
    let deadline = Instant::now() + LONG;
    while got.len() < 100 && Instant::now() < deadline {
        turn.wait(Wait::Block(BLOCK_MAX), || inbox.is_empty())
            .unwrap();
        while turn.next().is_some() {}
        inbox.drain(|message| got.push(message));
    }
    thread.join().unwrap();
    assert_eq!(got, (0..100).collect::<Vec<_>>());
}

#[test]
fn two_cores_play_ping_pong_and_sleep_in_between() {
    const ROUNDS: u32 = 2000;
    let (mut ports, stats) = mesh::<u32>(2, 4);
    let mut second = ports.pop().unwrap();
    let mut first = ports.pop().unwrap();
    let play = |port: &mut crate::mesh::MeshPort<u32>, serve: bool| {
        let mut turn = turn();
        port.attach(turn.doorbell());
        let peer = 1 - port.own();
        if serve {
            port.push(peer, 0).unwrap();
        }
        let deadline = Instant::now() + LONG;
        let mut last = 0;
        while last < ROUNDS && Instant::now() < deadline {
            port.flush(&mut turn);
            turn.wait(Wait::Block(BLOCK_MAX), || port.is_empty())
                .unwrap();
            while turn.next().is_some() {}
            let mut answer = None;
            port.drain(|_, ball| answer = Some(ball));
            if let Some(ball) = answer {
                last = ball + 1;
                port.push(peer, last).unwrap();
            }
        }
        port.flush(&mut turn);
        turn.wait(Wait::Poll, || true).unwrap();
        (last, turn.counters().blocks.get())
    };
    let started = Instant::now();
    let other = std::thread::spawn(move || play(&mut second, false));
    let (last, _) = play(&mut first, true);
    let (other_last, _) = other.join().unwrap();
    assert!(
        last >= ROUNDS && other_last >= ROUNDS - 1,
        "{last} {other_last}"
    );
    // A lost wake-up costs 50 ms: with even one in forty lost this takes longer.
    assert!(
        started.elapsed() < Duration::from_millis(u64::from(ROUNDS)),
        "{:?}",
        started.elapsed()
    );
    assert!(stats.ring(0, 1).unwrap().sent() >= 1000);
}

#[test]
fn a_doorbell_of_a_core_that_is_gone_does_no_harm() {
    let doorbell = std::thread::spawn(|| turn().doorbell()).join().unwrap();
    doorbell.ring_always();
    assert!(doorbell.parked().park_unless(|| false));
    let mut turn = turn();
    turn.ring(&doorbell);
    for _ in 0..3 {
        turn.wait(Wait::Poll, || true).unwrap();
        while turn.next().is_some() {}
    }
}

#[test]
fn a_turn_dropped_with_operations_in_flight_waits_for_them() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    turn.receive_select(Key(1), &socket);
    let buffer = turn.pool().take(100);
    turn.receive_into(Key(2), &socket, buffer, 100);
    turn.wait(Wait::Poll, || true).unwrap();
    drop(turn);
    drop(socket);
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert!(
        rest.is_empty(),
        "the descriptor is closed, so nothing holds it"
    );
}

#[test]
fn steady_traffic_allocates_no_buffers() {
    let mut turn = turn();
    let (socket, mut peer) = pair();
    let mut vector = Vec::new();
    let mut after_warm_up = 0;
    for round in 0..200 {
        peer.write_all(&[1; 1000]).unwrap();
        turn.receive_select(Key(1), &socket);
        let (_, result, mut buffer) = received(next(&mut turn));
        let length = result.unwrap();
        vector.push(buffer.split_to(length).freeze());
        turn.pool().give(buffer);
        turn.send(Key(2), &socket, vector);
        vector = match next(&mut turn) {
            Completion::Sent { chunks, .. } => chunks,
            other => panic!("{other:?}"),
        };
        peer.read_exact(&mut vec![0; length]).unwrap();
        if round == 10 {
            after_warm_up = turn.pool().allocations();
        }
    }
    assert_eq!(turn.pool().allocations(), after_warm_up);
}
