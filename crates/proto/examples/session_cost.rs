//! Measures the cost of 4 KiB reads and writes in the session alone: no socket, no unit, no disk.
//!
//! `cargo run --release -p proto --example session_cost [part of a name]`
//!
//! Batches of 32 commands, as they arrive in one receive at depth 32: bytes in, commands out, responses in,
//! bytes out. The cost includes copying write data to its buffer (about 100 ns for 4 KiB) and referring to
//! read data.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use base::{Buf, Chain, Instant, SendBatch};
use proto::iscsi::target_role::{Event, Negotiated, Session, SessionConfig};
use proto::iscsi::wire::{Framing, InitiatorTag, ScsiCommand, Serial, TaskAttribute};
use proto::scsi::Outcome;

const BATCH: u32 = 32;
const ROUNDS: u32 = 20_000;
const BLOCK: usize = 4096;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    for (name, write, digests) in [
        ("read", false, false),
        ("write, immediate data", true, false),
        ("read with digests", false, true),
        ("write with digests", true, true),
    ] {
        if !name.contains(&filter) {
            continue;
        }
        let best = (0..5).map(|_| cost(write, digests)).min().unwrap_or_default();
        println!("{name}: {} ns a command", best.as_nanos() / u128::from(BATCH * ROUNDS));
    }
}

/// The time of all rounds, without the time to create their bytes.
fn cost(write: bool, digests: bool) -> Duration {
    let negotiated = Negotiated {
        header_digest: digests,
        data_digest: digests,
        max_receive: 262_144,
        ..Negotiated::default()
    };
    let framing = Framing { header_digest: digests, data_digest: digests, data_max: 262_144 };
    let config = SessionConfig {
        tsih: 1,
        commands_max: 128,
        data_bytes_max: 16 << 20,
        nop_interval: Duration::from_secs(5),
        drain_time: Duration::from_secs(10),
    };
    let mut session = Session::new(config, false);
    let connection = session.expect_connection(0).expect("it is the first");
    session.add_connection(connection, negotiated, 1, 1, Instant(0));
    let block = Buf::zeroed(BLOCK).share();
    let payload = vec![7; BLOCK];
    let (mut cmd_sn, mut spent) = (Serial(1), Duration::ZERO);
    let (mut input, mut output, mut bytes) = (SendBatch::new(), SendBatch::new(), Vec::new());
    let mut commands = Vec::with_capacity(BATCH as usize);
    for round in 0..ROUNDS {
        input.clear();
        for tag in 0..BATCH {
            let data: &[u8] = if write { &payload } else { &[] };
            let header = ScsiCommand {
                immediate: false,
                is_final: true,
                read: !write,
                write,
                attribute: TaskAttribute::Simple,
                lun: [0; 8],
                initiator_tag: InitiatorTag(round << 8 | tag),
                expected_length: BLOCK as u32,
                cmd_sn,
                exp_stat_sn: Serial(1),
                cdb: [0; 16],
            };
            framing.push(&mut input, &header.encode(data.len() as u32), data);
            cmd_sn = cmd_sn.next();
        }
        bytes.clear();
        input.iter().for_each(|piece| bytes.extend_from_slice(piece));

        let start = Clock::now();
        session.handle_bytes(connection, &bytes, Instant(u64::from(round)));
        while let Some(event) = session.poll_event() {
            if let Event::Command(command) = event {
                commands.push(command);
            }
        }
        for command in commands.drain(..) {
            let outcome = match write {
                true => Outcome::good_out(command.data_out.len() as u64),
                false => Outcome::data(Chain::from(block.clone())),
            };
            session.complete(command.id, outcome);
        }
        session.poll_transmit(connection, &mut output, usize::MAX);
        assert!(output.len() >= 48 * BATCH as usize);
        black_box(&output);
        output.clear();
        spent += start.elapsed();
    }
    spent
}
