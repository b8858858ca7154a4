//! An echo server on one core and its clients on another, to see what a turn costs.
//!
//! `cargo run --release -p corelog-io --example echo -- [connections] [bytes] [seconds]`

#![allow(clippy::unwrap_used, reason = "an example stops at the first surprise")]
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use bytes::{Bytes, BytesMut};
use corelog_io::cpu::thread_cpu_time;
use corelog_io::executor::{CoreHandle, spawn_core};
use corelog_io::inbox::{Inbox, inbox};
use corelog_io::net::{ConnectionLimit, Socket, listener};
use corelog_io::turn::{BLOCK_MAX, Completion, Key, Turn, TurnConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Peer {
    socket: Socket,
    /// Sent vectors come back for reuse.
    chunks: Vec<Bytes>,
    received: usize,
}

fn receive(turn: &mut Turn, number: usize, peer: &Peer, buffer: Option<BytesMut>) {
    let buffer = match buffer {
        Some(buffer) if buffer.capacity() > buffer.len() => buffer,
        Some(used_up) => {
            turn.pool().give(used_up);
            turn.pool().take(16 << 10)
        }
        None => turn.pool().take(16 << 10),
    };
    turn.receive_into(Key(number as u64), &peer.socket, buffer, usize::MAX);
}

fn send(turn: &mut Turn, number: usize, peer: &mut Peer, bytes: Bytes) {
    let mut chunks = std::mem::take(&mut peer.chunks);
    chunks.push(bytes);
    turn.send(Key(number as u64), &peer.socket, chunks);
}

async fn serve(
    core: CoreHandle,
    mut accepted: Inbox<Socket>,
    served: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) {
    let mut turn = Turn::new(&TurnConfig::default()).unwrap();
    core.attach(&turn);
    accepted.attach(turn.doorbell());
    let mut peers: Vec<Peer> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        core.rest(&mut turn, BLOCK_MAX, || accepted.is_empty())
            .await
            .unwrap();
        while let Some(completion) = turn.next() {
            match completion {
                Completion::Received {
                    key,
                    result,
                    mut buffer,
                    ..
                } => {
                    let (number, length) = (key.0 as usize, result.unwrap());
                    if length > 0 {
                        served.fetch_add(1, Ordering::Relaxed);
                        send(
                            &mut turn,
                            number,
                            &mut peers[number],
                            buffer.split_to(length).freeze(),
                        );
                        receive(&mut turn, number, &peers[number], Some(buffer));
                    }
                }
                Completion::Sent { key, chunks, .. } => peers[key.0 as usize].chunks = chunks,
                _ => {}
            }
        }
        accepted.drain(|socket| {
            peers.push(Peer {
                socket,
                chunks: Vec::new(),
                received: 0,
            });
            receive(&mut turn, peers.len() - 1, &peers[peers.len() - 1], None);
        });
    }
    let counters = turn.counters();
    println!(
        "turn: {:.2} us each; {:?} of CPU, {} requests, {} enters, {} allocated buffers",
        thread_cpu_time().as_secs_f64() * 1e6 / served.load(Ordering::Relaxed) as f64,
        thread_cpu_time(),
        served.load(Ordering::Relaxed),
        counters.enters.get(),
        turn.pool().allocations(),
    );
}

async fn ask(core: CoreHandle, sockets: Vec<Socket>, bytes: usize, stop: Arc<AtomicBool>) {
    let mut turn = Turn::new(&TurnConfig::default()).unwrap();
    core.attach(&turn);
    let request = Bytes::from(vec![7; bytes]);
    let mut peers: Vec<_> = sockets
        .into_iter()
        .map(|socket| Peer {
            socket,
            chunks: Vec::new(),
            received: 0,
        })
        .collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        send(&mut turn, number, peer, request.clone());
        receive(&mut turn, number, peer, None);
    }
    while !stop.load(Ordering::Relaxed) {
        core.rest(&mut turn, BLOCK_MAX, || true).await.unwrap();
        while let Some(completion) = turn.next() {
            match completion {
                Completion::Received {
                    key,
                    result,
                    mut buffer,
                    ..
                } => {
                    let number = key.0 as usize;
                    let peer = &mut peers[number];
                    peer.received += result.unwrap();
                    buffer.clear();
                    if peer.received == bytes {
                        peer.received = 0;
                        send(&mut turn, number, peer, request.clone());
                    }
                    receive(&mut turn, number, peer, Some(buffer));
                }
                Completion::Sent { key, chunks, .. } => peers[key.0 as usize].chunks = chunks,
                _ => {}
            }
        }
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<usize>().unwrap());
    let connections = arguments.next().unwrap_or(50);
    let bytes = arguments.next().unwrap_or(1024);
    let seconds = arguments.next().unwrap_or(5);
    let (served, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );

    let (sender, accepted) = inbox(connections);
    let (count, over) = (served.clone(), stop.clone());
    let server = spawn_core("server".into(), Some(0), move |core| {
        serve(core, accepted, count, over)
    })
    .unwrap();
    let config = listener::ListenerConfig {
        backlog: 1024,
        send_buffer: None,
        receive_buffer: None,
        limit: ConnectionLimit::new(connections),
    };
    let bound = listener::Listener::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = bound.local_addr().unwrap();
    let accepting = bound
        .start("listener", move |socket, _| {
            assert!(sender.push(socket).is_ok());
        })
        .unwrap();

    let sockets: Vec<Socket> = (0..connections)
        .map(|_| {
            let stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.try_into().unwrap()
        })
        .collect();
    let over = stop.clone();
    let client = spawn_core("client".into(), Some(1), move |core| {
        ask(core, sockets, bytes, over)
    })
    .unwrap();
    let started = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds as u64));
    stop.store(true, Ordering::Relaxed);
    let rate = served.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    println!("{connections} connections, {bytes} bytes: {rate:.0} requests/s");
    server.join();
    client.join();
    drop(accepting);
}
