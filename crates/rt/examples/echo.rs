//! The cost of the runtime: a server that only moves bytes, in the shape of 4 KiB reads and writes.
//!
//! `cargo run --release -p rt --example echo [SECONDS]` runs one core against blocking clients and prints the
//! CPU time of the server's thread per request, and how many requests shared a turn.

#![allow(clippy::unwrap_used, reason = "a measurement ends at the first error")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use base::{Buf, SendBatch, SharedBuf};
use rt::uring::{Config, Running};
use rt::{Listener, Stream};

const HEADER: usize = 48;
const DATA: usize = 4096;

#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    /// Bytes of a request and of its answer.
    request: usize,
    answer: usize,
    connections: usize,
    depth: usize,
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(2);
    for (connections, depth) in [(4, 32), (4, 1), (1, 1)] {
        for (name, request, answer) in [("read", HEADER, HEADER + DATA), ("write", HEADER + DATA, HEADER)] {
            measure(Shape { name, request, answer, connections, depth }, Duration::from_secs(seconds));
        }
    }
}

fn measure(shape: Shape, time: Duration) {
    let (address, addresses) = mpsc::channel();
    let config = Config { processors: vec![0], pin: false, poll: Duration::from_micros(20) };
    let running = Running::start(config, move |_| {
        let address = address.clone();
        async move {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            address.send(listener.local_address()).unwrap();
            for _ in 0..shape.connections {
                let stream = listener.accept().await.unwrap().0.attach();
                rt::spawn(serve(stream, shape)).detach();
            }
            // The last connection signals the end.
            listener.accept().await.unwrap();
        }
    })
    .unwrap();
    let address = addresses.recv().unwrap();
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..shape.connections)
        .map(|_| {
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || ask(address, shape, &stop, &done))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let (start, before, count) = (Instant::now(), running.stats()[0], done.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let (after, count) = (running.stats()[0], done.load(Ordering::Relaxed) - count);
    let elapsed = start.elapsed();
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    TcpStream::connect(address).unwrap();
    running.join();
    let each = |total: f64| total / count as f64;
    println!(
        "{:5} {} x {:2}: {:5.2} us CPU a request, of it {:4.2} polling; {:7.0} requests/s; enters {:.3}, completions {:.3} a request",
        shape.name,
        shape.connections,
        shape.depth,
        each((after.cpu - before.cpu).as_secs_f64() * 1e6),
        each((after.polling - before.polling).as_secs_f64() * 1e6),
        count as f64 / elapsed.as_secs_f64(),
        each((after.enters - before.enters) as f64),
        each((after.completions - before.completions) as f64),
    );
}

/// Answers every request; requests that arrived together are answered together.
async fn serve(stream: Stream, shape: Shape) {
    let data: SharedBuf = Buf::zeroed(DATA).share();
    let mut batch = SendBatch::new();
    let mut partial = 0;
    let mut target = Buf::zeroed(DATA);
    loop {
        let Ok(received) = stream.receive().await else { return };
        if received.is_empty() {
            return;
        }
        if shape.request > HEADER {
            // One copy of the data, as a session makes it.
            received.chunks(DATA).for_each(|chunk| target[..chunk.len()].copy_from_slice(chunk));
        }
        let requests = (partial + received.len()) / shape.request;
        partial = (partial + received.len()) % shape.request;
        drop(received);
        for _ in 0..requests {
            batch.push(&[0; HEADER]);
            if shape.answer > HEADER {
                batch.push_shared(data.clone());
            }
        }
        match stream.send(batch).await {
            Ok(empty) => batch = empty,
            Err(_) => return,
        }
    }
}

/// Keeps `depth` requests in flight.
fn ask(address: SocketAddr, shape: Shape, stop: &AtomicBool, done: &AtomicU64) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let requests = vec![0; shape.request * shape.depth];
    let mut answers = vec![0; shape.answer * shape.depth];
    let mut partial = 0;
    socket.write_all(&requests).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let count = socket.read(&mut answers).unwrap();
        let finished = (partial + count) / shape.answer;
        partial = (partial + count) % shape.answer;
        done.fetch_add(finished as u64, Ordering::Relaxed);
        socket.write_all(&requests[..finished * shape.request]).unwrap();
    }
}
