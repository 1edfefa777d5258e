//! Both roles connected back to back: whatever is negotiated and however the bytes are cut, commands transfer
//! their data correctly.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{Buf, Chain, Instant, Rng, SendBatch};
use proptest::prelude::*;

use super::initiator::{
    self, Command, CommandResult, Connection, Identity, LoginOptions, TaskId, Transfer, Wish,
};
use super::target_role::{
    Authorization, ConnectionId, Event, Login, LoginEvent, Session, SessionConfig, TargetRecord,
};
use super::wire::{Residual, ServiceResponse};
use crate::scsi::{Cdb, Outcome, Status};

const CID: u16 = 5;
const CONNECTION: ConnectionId = ConnectionId { cid: CID, generation: 0 };
const SPACE: usize = 64 << 10;
const NOW: Instant = Instant(0);
/// More turns than any case needs.
const TURNS_MAX: usize = 200_000;

/// An initiator and a target session, a wire in each direction, and a unit in memory.
struct Pair {
    initiator: Connection,
    session: Session,
    to_target: VecDeque<u8>,
    to_initiator: VecDeque<u8>,
    memory: Vec<u8>,
    /// Responses that the unit has not returned yet.
    slow: Vec<(super::target_role::CommandId, Outcome)>,
    rng: Rng,
    done: BTreeMap<TaskId, CommandResult>,
    in_place: usize,
}

impl Pair {
    fn new(wish: Wish, commands_max: u32, seed: u64) -> Pair {
        let target = Some("iqn.2026-01.org.ursa:db".to_owned());
        let (outcome, accepted) = log_in(wish, target);
        let config = SessionConfig {
            tsih: 1,
            commands_max,
            data_bytes_max: 100_000,
            nop_interval: Duration::from_secs(10),
            drain_time: Duration::from_secs(10),
        };
        let mut session = Session::new(config, false);
        join(&mut session, accepted);
        Pair {
            initiator: Connection::new(&outcome, CID),
            session,
            to_target: VecDeque::new(),
            to_initiator: VecDeque::new(),
            memory: vec![0; SPACE],
            slow: Vec::new(),
            rng: Rng::new(seed),
            done: BTreeMap::new(),
            in_place: 0,
        }
    }

    /// Runs until all commands are answered.
    fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            self.turn();
            if self.initiator.outstanding() == 0 {
                return;
            }
        }
        panic!("{} commands are not answered", self.initiator.outstanding());
    }

    fn turn(&mut self) {
        let mut batch = SendBatch::new();
        self.initiator.poll_transmit(&mut batch);
        self.to_target.extend(batch.to_vec());
        if let Some(mut in_place) = self.session.take_in_place(CONNECTION) {
            // The driver waits until all of the data has arrived.
            let missing = in_place.buf.len() - in_place.filled;
            assert!(self.to_target.len() >= missing, "data that was announced does not come");
            for byte in &mut in_place.buf[in_place.filled..] {
                *byte = self.to_target.pop_front().unwrap();
            }
            self.in_place += 1;
            self.session.handle_in_place(CONNECTION, in_place.buf, NOW);
        } else {
            let bytes = cut(&mut self.to_target, &mut self.rng);
            self.session.handle_bytes(CONNECTION, &bytes, NOW);
        }
        self.serve();
        let mut batch = SendBatch::new();
        let some = 1 + self.rng.below(20_000) as usize;
        self.session.poll_transmit(CONNECTION, &mut batch, some);
        self.to_initiator.extend(batch.to_vec());
        let bytes = cut(&mut self.to_initiator, &mut self.rng);
        self.initiator.handle_bytes(&bytes);
        while let Some(event) = self.initiator.poll_event() {
            match event {
                initiator::Event::Done(task, result) => drop(self.done.insert(task, result)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The unit. In a CDB, byte 0 is the operation, bytes 2 to 5 are the offset, 6 to 9 the length. It
    /// answers at once or later.
    fn serve(&mut self) {
        while let Some(event) = self.session.poll_event() {
            let Event::Command(command) = event else { panic!("{event:?}") };
            let word = |at| u32::from_be_bytes(*command.cdb.0[at..].first_chunk().unwrap()) as usize;
            let range = word(2)..word(2) + word(6);
            let outcome = match command.cdb.0[0] {
                0x88 => Outcome {
                    data_in: Chain::copy_of(&self.memory[range]),
                    transfer: word(6) as u64,
                    ..Outcome::good()
                },
                0x8a => {
                    command.data_out.copy_to(&mut self.memory[range]);
                    Outcome::good_out(word(6) as u64)
                }
                _ => Outcome::status(Status::Busy),
            };
            self.slow.push((command.id, outcome));
        }
        while !self.slow.is_empty() && !self.rng.one_in(3) {
            let at = self.rng.below(self.slow.len() as u64) as usize;
            let (id, outcome) = self.slow.swap_remove(at);
            self.session.complete(id, outcome);
        }
    }

    fn command(&mut self, operation: u8, at: usize, len: usize, transfer: Transfer) -> TaskId {
        let mut cdb = [0; 16];
        cdb[0] = operation;
        cdb[2..6].copy_from_slice(&(at as u32).to_be_bytes());
        cdb[6..10].copy_from_slice(&(len as u32).to_be_bytes());
        self.initiator.submit(Command { lun: [0; 8], cdb: Cdb(cdb), transfer })
    }
}

fn join(session: &mut Session, login: super::target_role::LoginOutcome) {
    assert_eq!(session.expect_connection(CID), Ok(CONNECTION));
    assert!(session.add_connection(CONNECTION, login.negotiated, login.stat_sn, login.exp_cmd_sn, NOW));
}

/// Takes the next bytes off a wire: a few or many.
fn cut(wire: &mut VecDeque<u8>, rng: &mut Rng) -> Vec<u8> {
    let most = if rng.one_in(4) { 60 } else { 40_000 };
    let len = (rng.below(most) as usize + 1).min(wire.len());
    wire.drain(..len).collect()
}

fn log_in(wish: Wish, target: Option<String>) -> (initiator::LoginOutcome, super::target_role::LoginOutcome) {
    let identity = Identity {
        initiator: "iqn.2026-01.org.ursa:client".into(),
        target,
        isid: [0x80, 0, 0, 0, 0, 1],
        cid: CID,
    };
    let mut ours = initiator::Login::new(LoginOptions { identity, proof: None, wish });
    let mut theirs = Login::new(NOW);
    let mut batch = SendBatch::new();
    ours.poll_transmit(&mut batch);
    theirs.handle_bytes(&batch.to_vec());
    assert!(matches!(theirs.poll_event(), Some(LoginEvent::Authorize(_))));
    theirs.authorize(Authorization::Allow { chap: None, portal_group: 1, alias: None });
    assert!(matches!(theirs.poll_event(), Some(LoginEvent::Finish)));
    let accepted = theirs.accept(1);
    batch.clear();
    theirs.poll_transmit(&mut batch);
    ours.handle_bytes(&batch.to_vec());
    (ours.result().unwrap().unwrap(), accepted)
}

fn wishes() -> impl Strategy<Value = Wish> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (flags, 512u32..20_000, 512u32..40_000, 512u32..40_000, 1u16..6).prop_map(
        |(
            (header_digest, data_digest, initial_r2t, immediate_data),
            max_receive,
            max_burst,
            first_burst,
            r2ts,
        )| Wish {
            header_digest,
            data_digest,
            max_receive,
            initial_r2t,
            immediate_data,
            max_burst,
            first_burst,
            max_outstanding_r2t: r2ts,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn data_arrives_intact(
        wish in wishes(),
        commands_max in 1u32..20,
        seed: u64,
        mut ends in proptest::collection::vec(0usize..=SPACE, 0..24),
        reads in proptest::collection::vec((0usize..SPACE, 0usize..SPACE), 1..16),
    ) {
        let mut pair = Pair::new(wish, commands_max, seed);
        let mut model = vec![0; SPACE];
        Rng::new(seed).fill(&mut model);
        // Write the whole space, in pieces that do not overlap.
        ends.push(SPACE);
        ends.sort_unstable();
        let mut at = 0;
        let mut writes = Vec::new();
        for end in ends {
            let data = Chain::from(Buf::copy_of(&model[at..end]));
            writes.push(pair.command(0x8a, at, end - at, Transfer::Out(data)));
            at = end;
        }
        pair.run();
        prop_assert!(pair.memory == model);
        for task in writes {
            let result = pair.done.remove(&task).unwrap();
            prop_assert_eq!(result.response, ServiceResponse::Completed { status: 0 });
            prop_assert_eq!(result.residual, Residual::None);
        }
        // Read; some reads request more than the unit has.
        let mut expected = Vec::new();
        for (at, len) in reads {
            let len = len.min(SPACE - at);
            let more = len % 3;
            let task = pair.command(0x88, at, len, Transfer::In((len + more) as u32));
            expected.push((task, at, len, more));
        }
        pair.run();
        for (task, at, len, more) in expected {
            let result = pair.done.remove(&task).unwrap();
            prop_assert_eq!(result.response, ServiceResponse::Completed { status: 0 });
            prop_assert!(*result.data.unwrap() == model[at..at + len]);
            let residual = if more > 0 { Residual::Underflow(more as u32) } else { Residual::None };
            prop_assert_eq!(result.residual, residual);
        }
    }
}

#[test]
fn every_combination_of_the_switches() {
    for bits in 0..16u32 {
        let bit = |n: u32| bits >> n & 1 == 1;
        let wish = Wish {
            header_digest: bit(0),
            data_digest: bit(1),
            initial_r2t: bit(2),
            immediate_data: bit(3),
            max_burst: 8192,
            first_burst: 2048,
            ..Wish::default()
        };
        let mut pair = Pair::new(wish, 4, u64::from(bits));
        let data: Vec<u8> = (0..SPACE).map(|i| (i / 7) as u8).collect();
        pair.command(0x8a, 0, SPACE, Transfer::Out(Chain::copy_of(&data)));
        pair.run();
        let read = pair.command(0x88, 0, SPACE, Transfer::In(SPACE as u32));
        let busy = pair.command(0x00, 0, 0, Transfer::None);
        pair.run();
        assert_eq!(*pair.done.remove(&read).unwrap().data.unwrap(), data[..]);
        assert_eq!(pair.done.remove(&busy).unwrap().response, ServiceResponse::Completed { status: 0x08 });
    }
}

#[test]
fn large_data_is_received_in_place() {
    let mut pair = Pair::new(Wish::default(), 4, 1);
    let data: Vec<u8> = (0..SPACE).map(|i| (i / 7) as u8).collect();
    for _ in 0..4 {
        pair.command(0x8a, 0, SPACE, Transfer::Out(Chain::copy_of(&data)));
    }
    pair.run();
    assert!(pair.in_place > 0 && pair.memory == data);
}

#[test]
fn discovery() {
    let (outcome, accepted) = log_in(Wish::default(), None);
    let config = SessionConfig {
        tsih: 1,
        commands_max: 4,
        data_bytes_max: 0,
        nop_interval: Duration::from_secs(10),
        drain_time: Duration::from_secs(10),
    };
    let mut session = Session::new(config, true);
    join(&mut session, accepted);
    let mut initiator = Connection::new(&outcome, CID);
    let targets: Vec<_> = (0..1000)
        .map(|i| TargetRecord {
            name: format!("iqn.2026-01.org.ursa:volume-{i}"),
            addresses: vec![format!("10.0.0.1:3260,{i}"), "[fe80::1]:3260,1".into()],
        })
        .collect();
    let asked = initiator.send_targets();
    let mut found = None;
    for _ in 0..1000 {
        let mut batch = SendBatch::new();
        initiator.poll_transmit(&mut batch);
        session.handle_bytes(CONNECTION, &batch.to_vec(), NOW);
        while let Some(event) = session.poll_event() {
            let Event::SendTargets { id, target: None } = event else { panic!("{event:?}") };
            session.send_targets(id, &targets);
        }
        let mut batch = SendBatch::new();
        session.poll_transmit(CONNECTION, &mut batch, 1 << 20);
        initiator.handle_bytes(&batch.to_vec());
        if let Some(event) = initiator.poll_event() {
            found = Some(event);
            break;
        }
    }
    let Some(initiator::Event::Targets(task, found)) = found else { panic!("{found:?}") };
    assert_eq!((task, found), (asked, targets));
}
