//! Task management.

use super::*;
use crate::iscsi::wire::{RejectReason, TaskManagementFunction, TaskRequest};
use crate::scsi::Lun;

fn task(function: TaskManagementFunction, tag: u32, cmd_sn: u32) -> TaskRequest {
    TaskRequest {
        immediate: true,
        function,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        referenced_tag: InitiatorTag::RESERVED,
        cmd_sn: Serial(cmd_sn),
        exp_stat_sn: Serial(1000),
        referenced_cmd_sn: Serial(0),
        exp_data_sn: 0,
    }
}

fn abort_task(tag: u32, referenced_tag: u32, referenced_cmd_sn: u32, cmd_sn: u32) -> TaskRequest {
    TaskRequest {
        referenced_tag: InitiatorTag(referenced_tag),
        referenced_cmd_sn: Serial(referenced_cmd_sn),
        ..task(TaskManagementFunction::AbortTask, tag, cmd_sn)
    }
}

impl Peer {
    fn task_response(&mut self) -> (u32, u8) {
        match self.answer() {
            (ResponsePdu::Task(pdu), _) => (pdu.initiator_tag.0, pdu.response),
            other => panic!("{other:?}"),
        }
    }

    fn task_event(&mut self) -> (CommandId, TaskFunction, Vec<CommandId>) {
        match self.events().as_mut_slice() {
            [Event::Task { id, function, abort, .. }] => (*id, *function, std::mem::take(abort)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn abort_task_of_a_running_command() {
    let mut peer = Peer::new();
    peer.send(command(1, FIRST).encode(0), &[]);
    let command = peer.command().id;
    peer.send(abort_task(2, 1, FIRST, FIRST + 1).encode(), &[]);
    let (id, function, abort) = peer.task_event();
    assert_eq!((function, abort), (TaskFunction::AbortTask, vec![command]));
    peer.session.complete(command, Outcome::good());
    assert!(peer.output().is_empty(), "neither answered: the command never, the request not yet");
    peer.session.task_done(id, TaskResponse::Complete);
    assert_eq!(peer.task_response(), (2, 0));
    peer.session.task_done(id, TaskResponse::Complete);
    assert!(peer.output().is_empty());
}

/// The driver has the data of a running command, aborted or not: its memory is free only when the command has
/// ended.
#[test]
fn the_memory_of_an_aborted_write_is_free_when_the_driver_has_ended_it() {
    let config = SessionConfig { data_bytes_max: 8192, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    peer.send(data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[0; 8192]);
    let running = peer.command();
    peer.send(abort_task(2, 1, FIRST, FIRST + 1).encode(), &[]);
    let (id, _, abort) = peer.task_event();
    assert_eq!(abort, vec![running.id]);
    assert_eq!(peer.session.write_bytes(), 8192);
    peer.send(write(3, FIRST + 1, 8192).encode(0), &[]);
    assert!(peer.output().is_empty(), "there is no room");
    peer.session.complete(running.id, Outcome::good());
    assert_eq!(peer.r2t().initiator_tag, InitiatorTag(3));
    assert_eq!(peer.session.write_bytes(), 8192);
    peer.session.complete(running.id, Outcome::good());
    assert_eq!(peer.session.write_bytes(), 8192, "once");
    peer.session.task_done(id, TaskResponse::Complete);
    assert_eq!(peer.task_response(), (2, 0));
}

/// Aborting frees places in the window, but not without limit.
#[test]
fn aborted_commands_that_still_run_are_bounded() {
    let mut peer = Peer::new();
    let (mut number, mut running) = (FIRST, Vec::new());
    // The driver ends none of them.
    for round in 0..2000 {
        peer.send(command(round * 2 + 1, number).encode(0), &[]);
        let Some(Event::Command(command)) = peer.events().pop() else { break };
        running.push(command.id);
        peer.session.abort(command.id, false);
        number += 1;
    }
    assert!(running.len() > 100, "a disk that is slow for one unit leaves the others their window");
    assert!(running.len() <= 1024 + 8, "{}", running.len());
    let last = running.pop().unwrap();
    peer.session.complete(last, Outcome::good());
    peer.send(command(5001, number).encode(0), &[]);
    peer.command();
}

/// An initiator keeps aborting and writing while a disk hangs: commands that bring more data than
/// `data_bytes_max` keep their places in the window.
#[test]
fn the_data_of_what_was_aborted_and_runs_on_is_bounded() {
    const LENGTH: usize = 16384; // FirstBurstLength
    let config = SessionConfig { data_bytes_max: 8 * LENGTH, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let (mut number, mut running) = (FIRST, Vec::new());
    // The driver ends none of them.
    for round in 0..200 {
        peer.send(write(2 * round + 1, number, LENGTH as u32).encode(LENGTH as u32), &[7; LENGTH]);
        let Some(Event::Command(command)) = peer.events().pop() else { break };
        running.push(command.id);
        number += 1;
        peer.send(task(TaskManagementFunction::AbortTaskSet, 2 * round + 2, number).encode(), &[]);
        let (id, _, abort) = peer.task_event();
        assert_eq!(abort, [command.id]);
        peer.session.task_done(id, TaskResponse::Complete);
        peer.output();
    }
    assert_eq!(running.len(), 8 + 8, "as many as there is room for, and as the window has places");
    assert_eq!(peer.session.write_bytes(), 16 * LENGTH);
    // The last commands have kept their places.
    peer.session.complete(running[0], Outcome::good());
    peer.send(command(1001, number).encode(0), &[]);
    assert!(peer.events().is_empty());
    peer.session.complete(running[15], Outcome::good());
    peer.send(command(1001, number).encode(0), &[]);
    peer.command();
    for id in &running[1..15] {
        peer.session.complete(*id, Outcome::good());
    }
    assert_eq!(peer.session.write_bytes(), 0);
}

/// No window bounds the data of immediate commands.
#[test]
fn immediate_writes_without_room_for_their_data_are_rejected() {
    const LENGTH: usize = 16384;
    let config = SessionConfig { data_bytes_max: 2 * LENGTH, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let immediate = |tag| ScsiCommand { immediate: true, ..write(tag, FIRST, LENGTH as u32) };
    let mut running = Vec::new();
    for tag in [1, 2] {
        peer.send(immediate(tag).encode(LENGTH as u32), &[7; LENGTH]);
        running.push(peer.command().id);
    }
    for (tag, is_final, brought) in [(3, true, LENGTH), (4, false, 0)] {
        let header = ScsiCommand { is_final, ..immediate(tag) }.encode(brought as u32);
        peer.send(header, &[7; LENGTH][..brought]);
        let (ResponsePdu::Reject(reject), _) = peer.answer() else { panic!("{tag} is taken") };
        assert_eq!(reject.reason, RejectReason::TooManyImmediateCommands);
    }
    assert!(peer.events().is_empty());
    assert_eq!(peer.session.write_bytes(), 2 * LENGTH);
    // A command that brings no data waits, and gets memory when another command has ended.
    peer.send(immediate(5).encode(0), &[]);
    assert!(peer.output().is_empty());
    peer.session.complete(running[0], Outcome::good_out(LENGTH as u64));
    let output = peer.output();
    let [(ResponsePdu::ScsiResponse(_), _), (ResponsePdu::R2t(r2t), _)] = &output[..] else {
        panic!("{output:?}")
    };
    assert_eq!(r2t.initiator_tag, InitiatorTag(5));
    // A command that can never fit is refused.
    let large = ScsiCommand { expected_length: 3 * LENGTH as u32, ..immediate(6) };
    peer.send(large.encode(LENGTH as u32), &[7; LENGTH]);
    assert_eq!(sense_of(&peer.answer().1), (5, 0x2400));
}

/// Unsolicited data does not make other commands wait forever. But they wait for aborted commands that are
/// still running, if both do not fit together.
#[test]
fn the_first_in_the_row_waits_for_what_was_aborted_and_runs_on() {
    const LENGTH: usize = 16384;
    let config = SessionConfig { data_bytes_max: 3 * LENGTH, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let mut running = Vec::new();
    for i in 0..3 {
        peer.send(write(i, FIRST + i, LENGTH as u32).encode(LENGTH as u32), &[7; LENGTH]);
        running.push(peer.command().id);
    }
    peer.session.abort(running[0], false);
    peer.send(write(8, FIRST + 3, 3 * LENGTH as u32).encode(0), &[]);
    assert!(peer.output().is_empty(), "both together are more than there may be");
    peer.session.complete(running[0], Outcome::good());
    assert_eq!(peer.r2t().initiator_tag, InitiatorTag(8));
    assert_eq!(peer.session.write_bytes(), 5 * LENGTH);
}

/// An aborted write that hangs at one unit's disk holds its data, and no more: other commands have the rest,
/// one at a time if unsolicited data fills it.
#[test]
fn an_aborted_command_that_still_runs_blocks_no_other_that_has_room() {
    const LENGTH: usize = 16384;
    let config = SessionConfig { data_bytes_max: 4 * LENGTH, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let other_lun = [0, 1, 0, 0, 0, 0, 0, 0];
    peer.send(ScsiCommand { lun: other_lun, ..write(0, FIRST, LENGTH as u32) }.encode(0), &[]);
    let r2t = peer.r2t();
    peer.send(data_out(0, r2t.target_tag, 0, 0, true).encode(LENGTH as u32), &[7; LENGTH]);
    let hanging = peer.command().id;
    let mut running = Vec::new();
    for i in 1..4 {
        peer.send(write(i, FIRST + i, LENGTH as u32).encode(LENGTH as u32), &[7; LENGTH]);
        running.push(peer.command().id);
    }
    for i in 4..6 {
        peer.send(write(i, FIRST + i, 2 * LENGTH as u32).encode(0), &[]);
    }
    assert!(peer.output().is_empty(), "all room is taken, and somebody gives some back");
    peer.session.abort(hanging, false);
    let first = peer.r2t();
    assert_eq!(first.initiator_tag, InitiatorTag(4), "one of them");
    assert_eq!(peer.session.write_bytes(), (1 + 3 + 2) * LENGTH);
    peer.send(data_out(4, first.target_tag, 0, 0, true).encode(2 * LENGTH as u32), &[7; 2 * LENGTH]);
    let written = peer.command().id;
    assert!(peer.output().is_empty());
    peer.session.complete(written, Outcome::good_out(2 * LENGTH as u64));
    let output = peer.output();
    let [(ResponsePdu::ScsiResponse(_), _), (ResponsePdu::R2t(second), _)] = &output[..] else {
        panic!("{output:?}")
    };
    assert_eq!(second.initiator_tag, InitiatorTag(5));
    // It is aborted, too, and is still running.
    peer.send(data_out(5, second.target_tag, 0, 0, true).encode(2 * LENGTH as u32), &[7; 2 * LENGTH]);
    let also_hanging = peer.command().id;
    peer.session.abort(also_hanging, false);
    peer.send(write(6, FIRST + 6, 2 * LENGTH as u32).encode(0), &[]);
    assert!(peer.output().is_empty(), "beside both there is no room for it");
    for id in running.into_iter().chain([also_hanging]) {
        peer.session.complete(id, Outcome::good());
    }
    assert!(peer.output().iter().any(|(pdu, _)| matches!(pdu, ResponsePdu::R2t(_))));
    peer.session.complete(hanging, Outcome::good());
    assert_eq!(peer.session.write_bytes(), 2 * LENGTH);
}

#[test]
fn abort_task_of_a_command_that_waits_for_data() {
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    peer.send(abort_task(2, 1, FIRST, FIRST + 1).encode(), &[]);
    assert!(peer.events().is_empty());
    assert_eq!(peer.task_response(), (2, 0));
    assert_eq!(peer.session.write_bytes(), 0);
    // Data that was on its way is discarded.
    peer.send(data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[0; 8192]);
    assert!(peer.events().is_empty() && peer.output().is_empty());
}

/// 11.6.1: the command has not arrived, but it may: it counts as received.
#[test]
fn abort_task_of_a_command_that_has_not_arrived() {
    let mut peer = Peer::new();
    peer.send(abort_task(2, 1, FIRST, FIRST + 1).encode(), &[]);
    assert_eq!(peer.task_response(), (2, 0));
    peer.send(command(1, FIRST).encode(0), &[]);
    assert!(peer.events().is_empty());
    peer.send(command(3, FIRST + 1).encode(0), &[]);
    peer.command();
    // A command that ended long ago.
    peer.send(abort_task(4, 1, FIRST, FIRST + 2).encode(), &[]);
    assert_eq!(peer.task_response(), (4, 1));
    // A CmdSN after the request itself, and one far outside the window.
    peer.send(abort_task(5, 9, FIRST + 5, FIRST + 2).encode(), &[]);
    assert_eq!(peer.task_response(), (5, 1));
    peer.send(abort_task(6, 9, FIRST + 500, FIRST + 600).encode(), &[]);
    assert_eq!(peer.task_response(), (6, 1));
}

#[test]
fn sets_and_resets_take_what_they_are_about() {
    let other_lun = [0, 1, 0, 0, 0, 0, 0, 0];
    for (function, handed_out, affected) in [
        (TaskManagementFunction::AbortTaskSet, TaskFunction::AbortTaskSet, 2),
        (TaskManagementFunction::ClearTaskSet, TaskFunction::ClearTaskSet, 2),
        (TaskManagementFunction::LogicalUnitReset, TaskFunction::LogicalUnitReset, 2),
        (TaskManagementFunction::TargetWarmReset, TaskFunction::TargetWarmReset, 3),
    ] {
        let mut peer = Peer::new();
        peer.send(command(1, FIRST).encode(0), &[]);
        peer.send(command(2, FIRST + 1).encode(0), &[]);
        peer.send(ScsiCommand { lun: other_lun, ..command(3, FIRST + 2) }.encode(0), &[]);
        peer.send(write(4, FIRST + 3, 4096).encode(0), &[]); // waits for its data
        assert_eq!(peer.events().len(), 3);
        peer.r2t();
        let request = TaskRequest { immediate: false, ..task(function, 5, FIRST + 4) };
        peer.send(request.encode(), &[]);
        let (id, function, abort) = peer.task_event();
        assert_eq!((function, abort.len()), (handed_out, affected));
        assert_eq!(peer.session.census().collecting, 0);
        peer.session.task_done(id, TaskResponse::Complete);
        let (ResponsePdu::Task(response), _) = peer.answer() else { unreachable!() };
        let still_open = 3 - affected as u32;
        assert_eq!(response.numbers.max_cmd_sn, Serial(FIRST + 5 + 7 - still_open));
    }
}

/// RFC 7143 4.2.3.3 a. Until the data has arrived, the task's tag is in use on every connection.
#[test]
fn functions_on_many_tasks_wait_for_requested_data() {
    for function in [
        TaskManagementFunction::AbortTaskSet,
        TaskManagementFunction::ClearTaskSet,
        TaskManagementFunction::LogicalUnitReset,
        TaskManagementFunction::TargetWarmReset,
        TaskManagementFunction::TargetColdReset,
    ] {
        let mut peer = Peer::new();
        peer.send(write(1, FIRST, 8192).encode(0), &[]);
        let r2t = peer.r2t();
        // The unsolicited data of this command is still due; no R2T has requested it.
        peer.send(ScsiCommand { is_final: false, ..write(2, FIRST + 1, 8192) }.encode(0), &[]);
        peer.send(task(function, 3, FIRST + 2).encode(), &[]);
        let (id, _, abort) = peer.task_event();
        assert!(abort.is_empty() && peer.session.awaits_data(id));
        assert_eq!(peer.session.write_bytes(), 0, "it needs no room");
        assert_eq!(peer.session.census(), TaskCensus { refusing: 1, ..TaskCensus::default() });
        // Aborting the task on the node's initiative, or by its tag, has no effect: it has ended.
        peer.session.abort_waiting(Lun::new(0).unwrap());
        peer.send(abort_task(4, 1, FIRST, FIRST + 2).encode(), &[]);
        assert_eq!(peer.task_response(), (4, 1));
        peer.send(data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[7; 8192]);
        assert!(!peer.session.awaits_data(id));
        assert!(peer.events().is_empty() && peer.output().is_empty(), "it is not answered");
        assert_eq!(peer.session.census(), TaskCensus::default());
        peer.session.task_done(id, TaskResponse::Complete);
        assert_eq!(peer.task_response(), (3, 0));
    }
}

/// An initiator drops the connection if it gets an R2T for a task that it no longer has.
#[test]
fn r2ts_that_were_not_sent_yet_are_not_sent_for_what_is_aborted() {
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    peer.send(task(TaskManagementFunction::LogicalUnitReset, 2, FIRST + 1).encode(), &[]);
    let (id, ..) = peer.task_event();
    assert!(peer.output().is_empty(), "the R2T had not left");
    assert!(!peer.session.awaits_data(id), "and so no data is waited for");
    assert_eq!(peer.session.census(), TaskCensus::default());
    peer.session.task_done(id, TaskResponse::Complete);
    assert_eq!(peer.task_response(), (2, 0));
}

/// open-iscsi answers no R2T after a reset (FastAbort): the driver waits only for a limited time.
#[test]
fn missing_data_is_written_off_with_the_response() {
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    peer.send(task(TaskManagementFunction::LogicalUnitReset, 2, FIRST + 1).encode(), &[]);
    let (id, ..) = peer.task_event();
    peer.session.task_done(id, TaskResponse::Complete);
    let (ResponsePdu::Task(response), _) = peer.answer() else { unreachable!() };
    assert_eq!(response.numbers.max_cmd_sn, Serial(FIRST + 8), "its place in the window is free");
    assert!(!peer.session.awaits_data(id));
    assert_eq!(peer.session.census(), TaskCensus::default());
    // The data arrives after all, and is discarded.
    peer.send(data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[0; 8192]);
    assert!(peer.events().is_empty() && peer.output().is_empty());
    peer.send(command(1, FIRST + 1).encode(0), &[]);
    peer.command();
}

#[test]
fn waiting_commands_get_no_space_of_those_aborted_with_them() {
    let config = SessionConfig { data_bytes_max: 8192, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    let other_lun = [0, 1, 0, 0, 0, 0, 0, 0];
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    peer.r2t();
    peer.send(write(2, FIRST + 1, 8192).encode(0), &[]);
    peer.send(ScsiCommand { lun: other_lun, ..write(3, FIRST + 2, 8192) }.encode(0), &[]);
    assert!(peer.output().is_empty(), "there is no room");
    peer.send(task(TaskManagementFunction::AbortTaskSet, 4, FIRST + 3).encode(), &[]);
    assert_eq!(peer.r2t().initiator_tag, InitiatorTag(3));
    assert_eq!(peer.session.census(), TaskCensus { collecting: 1, refusing: 1, ..TaskCensus::default() });
}

#[test]
fn a_cold_reset_ends_the_session() {
    let mut peer = Peer::new();
    peer.send(task(TaskManagementFunction::TargetColdReset, 5, FIRST).encode(), &[]);
    let (id, ..) = peer.task_event();
    peer.session.task_done(id, TaskResponse::Complete);
    assert_eq!(peer.task_response(), (5, 0));
    peer.is_over(CloseReason::Reset);
}

/// CLEAR TASK SET, a reset or PREEMPT AND ABORT by another session: commands that wait for their data belong
/// to the task set.
#[test]
fn commands_that_wait_for_data_are_aborted_by_the_caller() {
    const TASK_ABORTED: u8 = 0x40;
    let unit = Lun::new(0).unwrap();
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    let other_lun = [0, 1, 0, 0, 0, 0, 0, 0];
    peer.send(ScsiCommand { lun: other_lun, ..write(2, FIRST + 1, 4096) }.encode(0), &[]);
    let other = peer.r2t();
    peer.send(command(3, FIRST + 2).encode(0), &[]);
    let running = peer.command().id;
    // Its turn has not come: it is not in the task set yet.
    peer.send(command(4, FIRST + 4).encode(0), &[]);
    peer.session.abort_waiting(unit);
    assert!(peer.events().is_empty() && peer.output().is_empty(), "data is on its way");
    assert_eq!(peer.session.write_bytes(), 4096, "and needs no room");
    peer.send(data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[7; 8192]);
    let answer = peer.answer();
    assert_eq!(status_of(&answer), TASK_ABORTED);
    assert!(peer.events().is_empty());
    // The other commands continue.
    peer.send(data_out(2, other.target_tag, 0, 0, true).encode(4096), &[7; 4096]);
    let other = peer.command();
    assert_eq!((other.lun, other.data_out.len()), (other_lun, 4096));
    for id in [running, other.id] {
        peer.session.complete(id, Outcome::good());
        assert_eq!(status_of(&peer.answer()), 0);
    }
    peer.send(command(5, FIRST + 3).encode(0), &[]);
    assert_eq!(peer.events().len(), 2);
}

#[test]
fn commands_that_wait_for_memory_are_aborted_at_once() {
    let config = SessionConfig { data_bytes_max: 8192, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    peer.send(write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    peer.send(write(2, FIRST + 1, 8192).encode(0), &[]);
    assert!(peer.output().is_empty(), "there is no room");
    peer.session.abort_waiting(Lun::new(0).unwrap());
    let (ResponsePdu::ScsiResponse(response), _) = peer.answer() else { panic!() };
    assert_eq!(response.initiator_tag, InitiatorTag(2));
    peer.send(data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[0; 8192]);
    let (ResponsePdu::ScsiResponse(response), _) = peer.answer() else { panic!() };
    assert_eq!(response.initiator_tag, InitiatorTag(1));
    assert_eq!(peer.session.write_bytes(), 0);
    // There is memory for other commands.
    peer.send(write(3, FIRST + 2, 8192).encode(0), &[]);
    peer.r2t();
}

/// Data that is being received in place arrives completely first.
#[test]
fn commands_received_in_place_are_aborted_when_complete() {
    const LENGTH: usize = 64 << 10;
    let mut peer = Peer::new();
    peer.send(write(1, FIRST, LENGTH as u32).encode(0), &[]);
    let r2t = peer.r2t();
    let header = data_out(1, r2t.target_tag, 0, 0, true).encode(LENGTH as u32);
    peer.session.handle_bytes(LEADING, &header, peer.now);
    let place = peer.session.take_in_place(LEADING).unwrap();
    peer.session.abort_waiting(Lun::new(0).unwrap());
    assert!(peer.output().is_empty());
    peer.session.handle_in_place(LEADING, place.buf, peer.now);
    assert_eq!(status_of(&peer.answer()), 0x40);
    assert_eq!(peer.session.write_bytes(), 0);
    assert!(peer.events().is_empty());
}

#[test]
fn unsupported_functions_are_reported() {
    let mut peer = Peer::new();
    peer.send(task(TaskManagementFunction::TaskReassign, 5, FIRST).encode(), &[]);
    assert_eq!(peer.task_response(), (5, 4));
    peer.send(task(TaskManagementFunction::ClearAca, 6, FIRST).encode(), &[]);
    assert_eq!(peer.task_response(), (6, 5));
    peer.send(task(TaskManagementFunction::Unknown(99), 7, FIRST).encode(), &[]);
    assert_eq!(peer.task_response(), (7, 5));
    peer.send(task(TaskManagementFunction::LogicalUnitReset, 8, FIRST).encode(), &[]);
    let (id, ..) = peer.task_event();
    peer.session.task_done(id, TaskResponse::LunDoesNotExist);
    assert_eq!(peer.task_response(), (8, 2));
}
