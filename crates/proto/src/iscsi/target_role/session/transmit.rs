//! From responses to PDUs. StatSN and the window are read at the last moment, so that a PDU always carries
//! current values.

use base::SendBatch;
use smallvec::SmallVec;

use super::connection::Connection;
use super::task::{Answer, Task, TaskKey, TaskState};
use super::window::Window;
use super::{ConnectionId, Session};
use crate::iscsi::wire::{
    AsyncEvent, AsyncMessage, DataIn, DataInStatus, HEADER_LEN, InitiatorTag, LogoutResponse, LogoutResult,
    NopIn, R2t, Reject, RejectReason, Residual, ScsiResponse, Serial, SerialNumbers, ServiceResponse,
    TargetTag, TaskResponsePdu, TextResponse,
};
use crate::scsi::Status;

/// The target transfer tag of our pings. All pings share it: any answer is a sign of life.
const PING_TAG: TargetTag = TargetTag(0x8000_0001);

/// An item in a connection's transmit queue.
#[derive(Debug)]
pub(super) enum Output {
    /// The response of a task, unless the task is gone.
    Answer(TaskKey),
    /// An R2T of a task, unless the task is gone.
    R2t(TaskKey, u32),
    Ping,
    Pong {
        tag: InitiatorTag,
        lun: [u8; 8],
        data: Vec<u8>,
    },
    Task {
        tag: InitiatorTag,
        response: u8,
    },
    Text {
        tag: InitiatorTag,
        target_tag: TargetTag,
        is_final: bool,
        more: bool,
        data: Vec<u8>,
    },
    Logout {
        tag: InitiatorTag,
        result: LogoutResult,
    },
    Async(AsyncEvent),
    Reject(RejectReason, Box<[u8; HEADER_LEN]>),
}

impl Output {
    /// Its size in the transmit queue. The size of a response is added where its data is known.
    pub(super) fn queued_bytes(&self) -> usize {
        match self {
            Output::Answer(_) => 0,
            Output::Pong { data, .. } | Output::Text { data, .. } => HEADER_LEN + data.len(),
            Output::Reject(..) => 2 * HEADER_LEN,
            _ => HEADER_LEN,
        }
    }
}

impl Session {
    pub(super) fn transmit(&mut self, id: ConnectionId, batch: &mut SendBatch, bytes_max: usize) {
        let Some(at) = self.connection(id) else { return };
        let before = batch.len();
        let end = before.saturating_add(bytes_max);
        while batch.len() < end {
            let connection = &mut self.connections[at];
            let Some(output) = connection.queue.pop_front() else { break };
            connection.queued_bytes -= output.queued_bytes();
            if let Output::R2t(key, _) = output
                && self.withdraw_r2t(key)
            {
                continue;
            }
            let Output::Answer(key) = output else {
                self.send(at, output, batch);
                continue;
            };
            if !self.send_answer(at, key, batch, end) {
                self.connections[at].queue.push_front(output);
            }
        }
        let connection = &mut self.connections[at];
        connection.has_moved |= batch.len() > before;
        connection.counters.bytes_sent += (batch.len() - before) as u64;
    }

    /// Sends a task's response, or a part of it until `end` is reached. Returns whether it has been sent
    /// completely.
    #[inline]
    fn send_answer(&mut self, at: usize, key: TaskKey, batch: &mut SendBatch, end: usize) -> bool {
        let connection = &mut self.connections[at];
        let Some(task) = self.tasks.get_mut(key) else { return true };
        let TaskState::Answering(answer) = &mut task.state else { return true };
        let total = answer.data.len();
        while (answer.sent as usize) < total {
            if batch.len() >= end {
                return false;
            }
            let last = send_data_in(connection, &self.window, task.tag, task.immediate, answer, batch);
            if last {
                self.remove_task(key);
                return true;
            }
        }
        send_response(connection, &self.window, task, batch);
        self.remove_task(key);
        true
    }

    fn send(&mut self, at: usize, output: Output, batch: &mut SendBatch) {
        let connection = &mut self.connections[at];
        let window = &self.window;
        connection.counters.pdus_sent += 1;
        let framing = connection.framing;
        match output {
            // Handled by the caller.
            Output::Answer(_) => {}
            Output::R2t(key, number) => {
                let max_burst = connection.negotiated.max_burst;
                let Some(task) = self.tasks.get(key) else { return };
                let Some(burst) = task.write.as_ref().and_then(|write| write.burst(number, max_burst)) else {
                    return;
                };
                connection.counters.r2ts += 1;
                let r2t = R2t {
                    lun: task.lun,
                    initiator_tag: task.tag,
                    target_tag: key.target_tag(number),
                    numbers: numbers(connection.stat_sn, window),
                    r2t_sn: number,
                    buffer_offset: burst.start,
                    desired_length: burst.length,
                };
                framing.push(batch, &r2t.encode(), &[]);
            }
            Output::Ping => {
                let nop = NopIn {
                    lun: [0; 8],
                    initiator_tag: InitiatorTag::RESERVED,
                    target_tag: PING_TAG,
                    numbers: numbers(connection.stat_sn, window),
                };
                framing.push(batch, &nop.encode(0), &[]);
            }
            Output::Pong { tag, lun, data } => {
                let numbers = numbers(connection.take_stat_sn(), window);
                let nop = NopIn { lun, initiator_tag: tag, target_tag: TargetTag::RESERVED, numbers };
                framing.push(batch, &nop.encode(data.len() as u32), &data);
            }
            Output::Task { tag, response } => {
                let numbers = numbers(connection.take_stat_sn(), window);
                framing.push(batch, &TaskResponsePdu { response, initiator_tag: tag, numbers }.encode(), &[]);
            }
            Output::Text { tag, target_tag, is_final, more, data } => {
                let numbers = numbers(connection.take_stat_sn(), window);
                let text =
                    TextResponse { is_final, more, lun: [0; 8], initiator_tag: tag, target_tag, numbers };
                framing.push(batch, &text.encode(data.len() as u32), &data);
            }
            Output::Logout { tag, result } => {
                let logout = LogoutResponse {
                    result,
                    initiator_tag: tag,
                    numbers: numbers(connection.take_stat_sn(), window),
                    time2wait: connection.negotiated.time2wait,
                    time2retain: connection.negotiated.time2retain,
                };
                framing.push(batch, &logout.encode(), &[]);
            }
            Output::Async(event) => {
                let numbers = numbers(connection.take_stat_sn(), window);
                framing.push(batch, &AsyncMessage { event, lun: [0; 8], numbers }.encode(0), &[]);
            }
            Output::Reject(reason, header) => {
                let numbers = numbers(connection.take_stat_sn(), window);
                let reject = Reject { reason, numbers, data_sn: 0 };
                framing.push(batch, &reject.encode(HEADER_LEN as u32), &*header);
            }
        }
    }
}

#[inline]
fn numbers(stat_sn: Serial, window: &Window) -> SerialNumbers {
    SerialNumbers { stat_sn, exp_cmd_sn: window.expected(), max_cmd_sn: window.max() }
}

/// The sequence numbers of a response that ends a task: they already release the task's place in the window.
#[inline]
fn final_numbers(stat_sn: Serial, window: &Window, immediate: bool) -> SerialNumbers {
    let numbers = numbers(stat_sn, window);
    SerialNumbers {
        max_cmd_sn: if immediate { numbers.max_cmd_sn } else { numbers.max_cmd_sn.next() },
        ..numbers
    }
}

/// Sends the next Data-In PDU. Returns whether it carried the status, which ends the task.
#[inline]
fn send_data_in(
    connection: &mut Connection,
    window: &Window,
    tag: InitiatorTag,
    immediate: bool,
    answer: &mut Answer,
    batch: &mut SendBatch,
) -> bool {
    let total = answer.data.len();
    let sent = answer.sent as usize;
    let max_burst = connection.negotiated.max_burst.max(1) as usize;
    let burst_rest = max_burst - sent % max_burst;
    let length = (total - sent).min(burst_rest).min(connection.negotiated.max_transmit.max(1) as usize);
    let is_last = sent + length == total;
    // 11.7.3: the last data may carry the status if there is no sense data.
    let status = (is_last && answer.sense.is_none() && answer.status == Status::Good)
        .then_some(DataInStatus { status: answer.status as u8, residual: answer.residual });
    let pdu = DataIn {
        is_final: is_last || length == burst_rest,
        acknowledge: false,
        status,
        lun: [0; 8],
        initiator_tag: tag,
        target_tag: TargetTag::RESERVED,
        numbers: match status {
            Some(_) => final_numbers(connection.take_stat_sn(), window, immediate),
            None => numbers(Serial(0), window),
        },
        data_sn: answer.data_sn,
        buffer_offset: answer.sent,
    };
    let header = pdu.encode(length as u32);
    if length == total {
        connection.framing.push_chain(batch, &header, &answer.data);
    } else {
        connection.framing.push_chain(batch, &header, &answer.data.slice(sent..sent + length));
    }
    answer.sent += length as u32;
    answer.data_sn += 1;
    connection.queued_bytes -= length;
    connection.counters.pdus_sent += 1;
    status.is_some()
}

#[inline]
fn send_response(connection: &mut Connection, window: &Window, task: &Task, batch: &mut SendBatch) {
    let TaskState::Answering(answer) = &task.state else { return };
    let response = ScsiResponse {
        response: ServiceResponse::Completed { status: answer.status as u8 },
        residual: answer.residual,
        read_residual: Residual::None,
        initiator_tag: task.tag,
        snack_tag: 0,
        numbers: final_numbers(connection.take_stat_sn(), window, task.immediate),
        exp_data_sn: answer.data_sn,
    };
    match &answer.sense {
        None => connection.framing.push(batch, &response.encode(0), &[]),
        Some(sense) => {
            // 11.4.7: SenseLength, then the sense data.
            let sense = sense.encode();
            let mut segment = SmallVec::<[u8; 64]>::from_slice(&(sense.len() as u16).to_be_bytes());
            segment.extend_from_slice(&sense);
            connection.framing.push(batch, &response.encode(segment.len() as u32), &segment);
        }
    }
    connection.counters.pdus_sent += 1;
}
