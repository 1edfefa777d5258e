//! Concurrent clients on few blocks: for each block, what they saw must be possible in some order.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockCount, BlockSize, Chain, Lba, Rng};
use initiator::command::CompareAndWrite;
use initiator::{Lun, Session};
use rt::sim::linear::{self, Kind, Op};

use crate::content::{Stamp, single_stamp, stamped};
use crate::rig::{Rig, Shape, log_in};
use crate::seeds::each_seed;
use crate::workload::volume_number;

const SECTORS_PER_BLOCK: u64 = 8;

/// Blocks that all clients use: two of one stripe unit, and one of the next, which is on another core.
const HOT: [u64; 3] = [0, 1, 256];

/// What all clients saw, with the order of calls and replies.
#[derive(Default)]
struct History {
    time: Cell<u64>,
    values: Cell<u64>,
    blocks: RefCell<BTreeMap<u64, Vec<Op>>>,
    /// By block: the old value of every COMPARE AND WRITE that succeeded.
    replaced: RefCell<BTreeMap<u64, Vec<u64>>>,
}

impl History {
    fn now(&self) -> u64 {
        self.time.set(self.time.get() + 1);
        self.time.get()
    }

    fn new_value(&self) -> u64 {
        self.values.set(self.values.get() + 1);
        self.values.get()
    }

    fn add(&self, block: u64, op: Op) {
        self.blocks.borrow_mut().entry(block).or_default().push(op);
    }
}

fn content(shape: Shape, block: u64, value: u64) -> Chain {
    if value == 0 {
        return Chain::copy_of(&[0; 4096]);
    }
    let stamp = Stamp { client: 0, sequence: value };
    stamped(volume_number(shape.lun), block * SECTORS_PER_BLOCK, SECTORS_PER_BLOCK as usize, stamp)
}

fn value(shape: Shape, block: u64, data: &[u8]) -> u64 {
    let stamp = single_stamp(volume_number(shape.lun), block * SECTORS_PER_BLOCK, data);
    stamp.map_or(0, |stamp| stamp.sequence)
}

async fn read(session: &Session, shape: Shape, block: u64, history: &History) -> u64 {
    let call = history.now();
    let data = session.read(Lun(shape.lun), Lba(block), BlockCount(1), BlockSize::B4096).await.unwrap();
    let value = value(shape, block, &data);
    history.add(block, Op { kind: Kind::Read, value, call, reply: history.now() });
    value
}

async fn write(session: &Session, shape: Shape, block: u64, history: &History) {
    let (value, call) = (history.new_value(), history.now());
    let data = content(shape, block, value);
    session.write(Lun(shape.lun), Lba(block), data, BlockSize::B4096).await.unwrap();
    history.add(block, Op { kind: Kind::Write, value, call, reply: history.now() });
}

/// Reads a block, and replaces the value by COMPARE AND WRITE.
async fn replace(session: &Session, shape: Shape, block: u64, history: &History) {
    let old = read(session, shape, block, history).await;
    let (new, call) = (history.new_value(), history.now());
    let command = CompareAndWrite {
        lba: Lba(block),
        compare: content(shape, block, old),
        write: content(shape, block, new),
        size: BlockSize::B4096,
    };
    match session.compare_and_write(Lun(shape.lun), command).await {
        Ok(()) => {
            let reply = history.now();
            history.add(block, Op { kind: Kind::Read, value: old, call, reply });
            history.add(block, Op { kind: Kind::Write, value: new, call, reply });
            history.replaced.borrow_mut().entry(block).or_default().push(old);
        }
        Err(error) => assert!(error.is_miscompare(), "{error}"),
    }
}

/// Checks that no value was replaced twice.
fn check_replaced(replaced: &[u64]) -> Result<(), u64> {
    let mut sorted = replaced.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map_or(Ok(()), |pair| Err(pair[0]))
}

/// Clients on both cores read, write, and compare and write.
///
/// `plain_writes`: some of them also write without comparing.
pub(crate) fn clients_on_hot_blocks(seed: u64, shape: Shape, plain_writes: bool) -> u64 {
    let rig = Rig::new(seed, 2);
    rig.add(shape);
    let history = Rc::new(History::default());
    let mut rng = Rng::new(seed);
    let mut clients = Vec::new();
    for number in 0..4 {
        let (name, history, mut rng) = (format!("client-{number}"), Rc::clone(&history), rng.fork());
        clients.push(rig.client(&name).spawn(move |portal| async move {
            let session = log_in(portal, &name, shape.lun).await;
            let workers = (0..3).map(|_| {
                let (session, history, mut rng) = (Rc::clone(&session), Rc::clone(&history), rng.fork());
                async move {
                    for _ in 0..30 {
                        let block = HOT[rng.below(HOT.len() as u64) as usize];
                        match rng.below(4) {
                            0 if plain_writes => write(&session, shape, block, &history).await,
                            1 => drop(read(&session, shape, block, &history).await),
                            _ => replace(&session, shape, block, &history).await,
                        }
                    }
                }
            });
            rt::join_all(workers).await;
        }));
    }
    clients.into_iter().for_each(|client| rig.world.wait_for(client).unwrap());
    for (block, ops) in history.blocks.borrow().iter() {
        linear::check(0, ops).unwrap_or_else(|violation| panic!("block {block}: {violation:?}"));
    }
    for (block, replaced) in history.replaced.borrow().iter() {
        assert!(replaced.len() > 5, "block {block}: clients got in each other's way all the time");
        check_replaced(replaced).unwrap_or_else(|value| panic!("block {block}: {value} was replaced twice"));
    }
    rig.world.log_hash()
}

#[test]
fn reads_and_writes_of_concurrent_clients_are_linearizable() {
    each_seed(3, |seed| {
        clients_on_hot_blocks(seed, Shape::thick(), true);
        clients_on_hot_blocks(seed, Shape::ram(), true);
    });
}

#[test]
fn one_of_two_compare_and_writes_wins() {
    each_seed(3, |seed| {
        clients_on_hot_blocks(seed, Shape::thick(), false);
        clients_on_hot_blocks(seed, Shape::ram(), false);
    });
}

#[test]
fn a_value_that_was_replaced_twice_is_noticed() {
    assert_eq!(check_replaced(&[4, 0, 7]), Ok(()));
    assert_eq!(check_replaced(&[4, 0, 7, 0]), Err(0));
}
