//! Streams that are cut anywhere, and streams that are damaged.

use base::Rng;

use super::*;
use crate::iscsi::wire::{NopOut, TaskManagementFunction, TaskRequest, TextRequest};

/// The result of running a session: everything that it handed out and sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Trace {
    events: Vec<String>,
    output: Vec<u8>,
}

/// Feeds `stream` in the pieces that `cut` chooses, and answers the events. Occasionally data is received in
/// place.
fn run(peer: &mut Peer, stream: &[u8], mut cut: impl FnMut(usize) -> usize) -> Trace {
    let mut trace = Trace::default();
    let mut rest = stream;
    while !rest.is_empty() {
        if let Some(mut place) = peer.session.take_in_place(LEADING) {
            let missing = place.buf.len() - place.filled;
            if missing > rest.len() {
                break;
            }
            place.buf[place.filled..].copy_from_slice(&rest[..missing]);
            rest = &rest[missing..];
            peer.session.handle_in_place(LEADING, place.buf, Instant(0));
        } else {
            let (piece, after) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
            peer.session.handle_bytes(LEADING, piece, Instant(0));
            rest = after;
        }
        for event in peer.events() {
            match event {
                Event::Command(command) => {
                    let data = command.data_out.to_vec();
                    trace.events.push(format!("{:?} {:?} {data:?}", command.cdb, command.lun));
                    let outcome = match command.cdb.0[0] {
                        0x28 => Outcome::data(Chain::copy_of(&pattern(5000))),
                        0x2a => Outcome::good_out(data.len() as u64),
                        _ => Outcome::check(Sense::invalid_opcode()),
                    };
                    peer.session.complete(command.id, outcome);
                }
                Event::Task { id, function, abort, .. } => {
                    trace.events.push(format!("{function:?} {}", abort.len()));
                    peer.session.task_done(id, TaskResponse::Complete);
                }
                Event::SendTargets { id, target } => {
                    trace.events.push(format!("{target:?}"));
                    peer.session.send_targets(id, &[]);
                }
                other => trace.events.push(format!("{other:?}")),
            }
        }
        trace.output.extend(peer.output_bytes(0, usize::MAX));
    }
    trace
}

/// A long conversation. If the driver's answers are `foreseen`, the stream answers R2Ts before they are sent
/// (a session's slots and tags are predictable), and resets find nothing to abort.
fn conversation(peer: &Peer, rng: &mut Rng, foreseen: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    for i in 0..40 {
        let cmd_sn = FIRST + i;
        let mut push = |header: &[u8; HEADER_LEN], data: &[u8]| stream.extend(peer.bytes(header, data));
        match rng.below(6) {
            0 => {
                let mut pdu = read(i, cmd_sn, 4096 + rng.below(2000) as u32);
                pdu.cdb[0] = 0x28;
                push(&pdu.encode(0), &[]);
            }
            1 => {
                let length = 1 + rng.below(16384) as usize;
                let mut pdu = write(i, cmd_sn, length as u32);
                pdu.cdb[0] = 0x2a;
                push(&pdu.encode(length as u32), &pattern(length));
            }
            2 | 3 if foreseen => {
                // Immediate, unsolicited, then one R2T for the rest.
                let length = 20_000 + rng.below(50_000) as usize;
                let immediate = rng.below(8000) as usize;
                let data = pattern(length);
                let mut pdu = write(i, cmd_sn, length as u32);
                (pdu.cdb[0], pdu.is_final) = (0x2a, false);
                push(&pdu.encode(immediate as u32), &data[..immediate]);
                let unsolicited = data_out(i, TargetTag::RESERVED, 0, immediate as u32, true);
                push(&unsolicited.encode(16384 - immediate as u32), &data[immediate..16384]);
                // The first slot is free each time, and this is R2T 0 of the command in it.
                let solicited = data_out(i, TargetTag(0), 0, 16384, true);
                push(&solicited.encode(length as u32 - 16384), &data[16384..]);
            }
            4 => {
                let nop = NopOut {
                    immediate: false,
                    lun: [0; 8],
                    initiator_tag: InitiatorTag(i),
                    target_tag: TargetTag::RESERVED,
                    cmd_sn: Serial(cmd_sn),
                    exp_stat_sn: Serial(0),
                };
                let length = rng.below(3000) as usize;
                push(&nop.encode(length as u32), &pattern(length));
            }
            _ => {
                let text = TextRequest {
                    immediate: false,
                    is_final: true,
                    more: false,
                    lun: [0; 8],
                    initiator_tag: InitiatorTag(i),
                    target_tag: TargetTag::RESERVED,
                    cmd_sn: Serial(cmd_sn),
                    exp_stat_sn: Serial(0),
                };
                push(&text.encode(13), b"SendTargets=\0");
            }
        }
        if foreseen && rng.one_in(5) {
            let request = TaskRequest {
                immediate: true,
                function: TaskManagementFunction::LogicalUnitReset,
                lun: [0; 8],
                initiator_tag: InitiatorTag(1000 + i),
                referenced_tag: InitiatorTag::RESERVED,
                cmd_sn: Serial(cmd_sn + 1),
                exp_stat_sn: Serial(0),
                referenced_cmd_sn: Serial(0),
                exp_data_sn: 0,
            };
            push(&request.encode(), &[]);
        }
    }
    stream
}

fn peer_of(seed: u64) -> Peer {
    let negotiated = Negotiated {
        header_digest: seed & 1 != 0,
        data_digest: seed & 2 != 0,
        max_receive: 262_144,
        ..negotiated()
    };
    // All commands of a conversation fit into the window if none is answered in between.
    let commands_max = if seed & 4 != 0 { 8 } else { 64 };
    Peer::with(negotiated, SessionConfig { commands_max, ..config() })
}

/// The offset of each PDU in a stream.
fn starts(framing: Framing, stream: &[u8]) -> Vec<usize> {
    let (mut at, mut starts) = (0, Vec::new());
    while let Ok(Some((_, used))) = framing.split(&stream[at..]) {
        starts.push(at);
        at += used;
    }
    starts
}

#[test]
fn where_a_stream_is_cut_makes_no_difference() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let stream = conversation(&peer_of(seed), &mut rng, true);
        let starts = starts(peer_of(seed).framing(), &stream);
        // The conversation assumes that PDUs arrive one by one, so no piece extends beyond the end of a PDU.
        let pdu_rest = |left: usize| {
            let at = stream.len() - left;
            starts.iter().find(|start| **start > at).map_or(left, |next| next - at)
        };
        let plain = run(&mut peer_of(seed), &stream, pdu_rest);
        assert!(!plain.events.iter().any(|event| event.contains("Close")), "seed {seed}");
        assert!(plain.events.len() > 20);
        let bytewise = run(&mut peer_of(seed), &stream, |_| 1);
        assert!(plain == bytewise, "seed {seed}");
        let mut peer = peer_of(seed);
        let mut cuts = rng.fork();
        let random = run(&mut peer, &stream, |left| pdu_rest(left).min(cuts.below(6000) as usize));
        assert!(plain == random, "seed {seed}");
        assert_eq!(peer.session.write_bytes(), 0);
        assert_eq!(peer.session.census(), Default::default());
    }
}

/// Pieces that contain many PDUs: in this case the commands that are handed out do not depend on responses.
#[test]
fn many_pdus_in_one_piece_make_no_difference() {
    for seed in (0..24).filter(|seed| seed & 4 == 0) {
        let mut rng = Rng::new(seed);
        let stream = conversation(&peer_of(seed), &mut rng, false);
        let mut cuts = rng.fork();
        let plain = run(&mut peer_of(seed), &stream, |_| 1 + cuts.below(100) as usize);
        let large = run(&mut peer_of(seed), &stream, |_| 1 + cuts.below(100_000) as usize);
        assert!(plain.events == large.events, "seed {seed}");
        let whole = run(&mut peer_of(seed), &stream, |left| left);
        assert!(plain.events == whole.events, "seed {seed}");
    }
}

#[test]
fn damaged_streams_end_or_are_answered_and_memory_stays_bounded() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        // Mostly without digests; otherwise every run would end at the first damage.
        let kind = if rng.one_in(8) { 7 } else { 4 };
        let mut peer = peer_of(kind);
        let mut stream = conversation(&peer, &mut rng, true);
        let headers = starts(peer.framing(), &stream);
        for _ in 0..=rng.below(4) {
            // Only damage in headers matters.
            let header = headers[rng.below(headers.len() as u64) as usize];
            let at = header + rng.below(48) as usize;
            stream[at] = match rng.below(4) {
                0 => 0xff,
                1 => 0,
                2 => stream[at] ^ (1 << rng.below(8)),
                _ => rng.next() as u8,
            };
        }
        let mut cuts = rng.fork();
        run(&mut peer, &stream, |_| cuts.below(30_000) as usize);
        let bound = config().data_bytes_max + 8 * 16384;
        assert!(peer.session.write_bytes() <= bound, "seed {seed}");
        let held = &peer.session.connections[0];
        assert!(held.partial.len() < 1200 && held.queued_bytes == 0, "seed {seed}");
        let census = peer.session.census();
        let all = census.collecting + census.refusing + census.running + census.answering;
        assert!(all <= 8 + super::super::IMMEDIATE_MAX, "seed {seed}");
        peer.session.handle_closed(LEADING, CloseReason::PeerClosed);
        peer.events();
        assert_eq!(
            (peer.session.write_bytes(), peer.session.census()),
            (0, Default::default()),
            "seed {seed}"
        );
    }
}
