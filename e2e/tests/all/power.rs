//! A server that is killed: all that it acknowledged is there afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use e2e::pattern::{self, SECTOR};
use e2e::raw::Raw;
use e2e::{Export, Kind, Server, VolumeSpec};

const WRITERS: u32 = 4;
/// Number of blocks, of eight sectors each, that each writer has for itself and writes over and over.
const BLOCKS: u64 = 256;
const BLOCK: usize = 8 * SECTOR;
const ROUNDS: u64 = 5;

/// What a writer knows of each of its blocks.
#[derive(Clone)]
struct Promises {
    /// The latest write that was acknowledged as durable: no older content may appear.
    durable: Vec<u64>,
    /// The latest write that was sent: no newer content may appear.
    sent: Vec<u64>,
    /// The number of the last write.
    last: u64,
}

#[test]
fn kill_9_under_load_loses_no_durable_write() {
    kill_9_under_load(VolumeSpec::new("durable", 64 << 20));
}

#[test]
fn kill_9_under_load_loses_no_durable_write_of_a_log() {
    kill_9_under_load(VolumeSpec::new("durable-log", 64 << 20).kind(Kind::Log));
}

fn kill_9_under_load(spec: VolumeSpec) {
    let mut server = Server::start();
    let export = server.create(&spec);
    let none = Promises { durable: vec![0; BLOCKS as usize], sent: vec![0; BLOCKS as usize], last: 0 };
    let mut promises = vec![none; WRITERS as usize];
    for round in 0..ROUNDS {
        let stop = Arc::new(AtomicBool::new(false));
        let before: u64 = promises.iter().map(|promises| promises.last).sum();
        let writers: Vec<JoinHandle<Promises>> = (0..WRITERS)
            .map(|writer| {
                let (export, stop, mine) = (export.clone(), stop.clone(), promises[writer as usize].clone());
                thread::spawn(move || write_until_cut(&export, writer, mine, &stop))
            })
            .collect();
        thread::sleep(Duration::from_millis(500 + round * 130));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        promises = writers.into_iter().map(|writer| writer.join().expect("it does not panic")).collect();
        let written: u64 = promises.iter().map(|promises| promises.last).sum::<u64>() - before;
        assert!(written > 50, "only {written} writes in round {round}: nothing is proven");
        server.restart();
        for writer in 0..WRITERS {
            check(&export, writer, &promises[writer as usize]);
        }
        println!("round {round}: {written} writes, nothing lost");
    }
}

/// Writes with FUA, or without FUA and sometimes with a flush, until the connection breaks.
fn write_until_cut(export: &Export, writer: u32, mut promises: Promises, stop: &AtomicBool) -> Promises {
    let mut random = u64::from(writer) * 7919 + promises.last + 1;
    let mut unflushed = Vec::new();
    let Ok(mut raw) = Raw::login(export, writer as usize % 2, 0x3000 + writer) else { return promises };
    if raw.wait_until_ready().is_err() {
        return promises;
    }
    while !stop.load(Ordering::Relaxed) {
        let block = pattern::next(&mut random) % BLOCKS;
        let fua = pattern::next(&mut random).is_multiple_of(3);
        promises.last += 1;
        let number = promises.last;
        promises.sent[block as usize] = number;
        let sector = first_sector(writer, block);
        let data = pattern::stamped(writer, number, sector, BLOCK);
        if raw.write(sector, 8, &data, fua).is_err() {
            return promises;
        }
        match fua {
            true => promises.durable[block as usize] = number,
            false => unflushed.push((block, number)),
        }
        if unflushed.len() >= 16 {
            if raw.flush().is_err() {
                return promises;
            }
            for (block, number) in unflushed.drain(..) {
                let durable = &mut promises.durable[block as usize];
                *durable = number.max(*durable);
            }
        }
    }
    promises
}

fn check(export: &Export, writer: u32, promises: &Promises) {
    let mut raw = Raw::login(export, 0, 0x3000 + writer).expect("it may log in after the restart");
    raw.wait_until_ready().expect("the unit gets ready");
    for block in 0..BLOCKS {
        let first = first_sector(writer, block);
        let data = raw.read(first, 8, BLOCK).expect("a read");
        let (durable, sent) = (promises.durable[block as usize], promises.sent[block as usize]);
        for (index, sector) in data.chunks(SECTOR).enumerate() {
            let found = pattern::stamp(sector, writer, first + index as u64).unwrap_or(0);
            assert!(
                (durable..=sent).contains(&found),
                "writer {writer}, block {block}, sector {index}: write {found} is there, {durable} was promised, \
                 {sent} was the last"
            );
        }
    }
}

fn first_sector(writer: u32, block: u64) -> u64 {
    (u64::from(writer) * BLOCKS + block) * (BLOCK / SECTOR) as u64
}
