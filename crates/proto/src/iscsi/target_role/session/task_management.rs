//! Task management (RFC 7143 4.2.3, 11.5, 11.6).

use super::task::{Task, TaskKey, TaskState};
use super::transmit::Output;
use super::window::{Arrival, Sequenced};
use super::{
    CloseReason, CommandId, ConnectionId, Event, IMMEDIATE_MAX, Session, TaskFunction, TaskResponse,
};
use crate::iscsi::wire::{InitiatorTag, TaskManagementFunction, TaskRequest};

/// RFC 7143 11.6.1: "task allegiance reassignment not supported". This function is never handed out.
const REASSIGNMENT_NOT_SUPPORTED: u8 = 4;

/// A request that the driver is working on.
#[derive(Debug)]
pub(super) struct Management {
    generation: u32,
    connection: ConnectionId,
    tag: InitiatorTag,
    function: TaskFunction,
    immediate: bool,
    /// The tasks that it has ended while their data was on its way; some may be gone.
    discarding: Vec<TaskKey>,
}

/// The tasks that a function on many tasks has ended.
#[derive(Debug, Default)]
struct Taken {
    /// Commands that the driver has.
    running: Vec<CommandId>,
    /// Tasks for whose data R2Ts were sent.
    discarding: Vec<TaskKey>,
}

impl Session {
    /// Whether another immediate function would exceed the limit: no window limits them.
    pub(super) fn is_management_full(&self) -> bool {
        self.management.len() + self.early_management.len() + self.immediate_tasks >= IMMEDIATE_MAX
    }

    /// Whether a function must wait for earlier requests.
    ///
    /// A function on many tasks affects all tasks numbered before it. With several connections some may still
    /// be on their way. The function waits for them, since they must not be executed after its response
    /// (4.2.3.3 b, 11.6).
    fn is_early(&self, request: &TaskRequest) -> bool {
        let is_about_many = matches!(
            request.function,
            TaskManagementFunction::AbortTaskSet
                | TaskManagementFunction::ClearTaskSet
                | TaskManagementFunction::LogicalUnitReset
                | TaskManagementFunction::TargetWarmReset
                | TaskManagementFunction::TargetColdReset
        );
        is_about_many && request.cmd_sn != self.window.expected() && self.window.contains(request.cmd_sn)
    }

    /// Executes functions whose earlier requests have arrived.
    pub(super) fn carry_out_early_management(&mut self) {
        while let Some(at) = self.early_management.iter().position(|(_, request)| !self.is_early(request)) {
            let (from, request) = self.early_management.remove(at);
            self.carry_out_task(from, request, true);
        }
    }

    pub(super) fn carry_out_task(&mut self, from: ConnectionId, request: TaskRequest, immediate: bool) {
        if immediate && self.is_early(&request) {
            return self.early_management.push((from, request));
        }
        let is_of_unit = |task: &Task| task.lun == request.lun;
        let (function, taken) = match request.function {
            TaskManagementFunction::AbortTask => match self.abort_task(from, &request) {
                Ok(running) if running.is_empty() => {
                    return self.answer_at_once(from, &request, immediate, TaskResponse::Complete as u8);
                }
                Ok(running) => (TaskFunction::AbortTask, Taken { running, ..Taken::default() }),
                Err(response) => return self.answer_at_once(from, &request, immediate, response as u8),
            },
            TaskManagementFunction::AbortTaskSet => {
                (TaskFunction::AbortTaskSet, self.take_tasks(&request, is_of_unit))
            }
            TaskManagementFunction::ClearTaskSet => {
                (TaskFunction::ClearTaskSet, self.take_tasks(&request, is_of_unit))
            }
            TaskManagementFunction::LogicalUnitReset => {
                (TaskFunction::LogicalUnitReset, self.take_tasks(&request, is_of_unit))
            }
            TaskManagementFunction::TargetWarmReset => {
                (TaskFunction::TargetWarmReset, self.take_tasks(&request, |_| true))
            }
            TaskManagementFunction::TargetColdReset => {
                (TaskFunction::TargetColdReset, self.take_tasks(&request, |_| true))
            }
            TaskManagementFunction::TaskReassign => {
                return self.answer_at_once(from, &request, immediate, REASSIGNMENT_NOT_SUPPORTED);
            }
            // No contingent allegiance (ACA) is ever established, so there is none to clear.
            TaskManagementFunction::ClearAca | TaskManagementFunction::Unknown(_) => {
                return self.answer_at_once(from, &request, immediate, TaskResponse::NotSupported as u8);
            }
        };
        if let Some(at) = self.open_connection(from) {
            self.connections[at].counters.aborts += taken.running.len() as u64;
        }
        let generation = self.tasks.next_generation();
        let management = Management {
            generation,
            connection: from,
            tag: request.initiator_tag,
            function,
            immediate,
            discarding: taken.discarding,
        };
        let slot = self.management.insert(management) as u32;
        let id = CommandId::from(TaskKey { slot, generation });
        self.events.push_back(Event::Task { id, function, lun: request.lun, abort: taken.running });
    }

    /// 4.2.3.3 a: whether tasks that a function has ended still have R2Ts without their data.
    pub(super) fn is_data_due(&self, key: TaskKey) -> bool {
        let is_meant = |management: &&Management| management.generation == key.generation;
        let is_due = |task: &TaskKey| self.tasks.get(*task).is_some();
        let management = self.management.get(key.slot as usize).filter(is_meant);
        management.is_some_and(|management| management.discarding.iter().any(is_due))
    }

    /// Takes the driver's answer.
    pub(super) fn answer_management(&mut self, key: TaskKey, response: TaskResponse) {
        let slot = key.slot as usize;
        if self.management.get(slot).is_none_or(|management| management.generation != key.generation) {
            return;
        }
        let management = self.management.remove(slot);
        // The driver has waited long enough. After the response, the initiator may use the tags again.
        for task in &management.discarding {
            self.remove_task(*task);
        }
        if !management.immediate {
            self.window.release();
        }
        self.queue_task_response(management.connection, management.tag, response as u8);
        // 11.5.1: a target drops its connections after a cold reset.
        if management.function == TaskFunction::TargetColdReset && response == TaskResponse::Complete {
            self.over(CloseReason::Reset);
        }
    }

    fn answer_at_once(&mut self, to: ConnectionId, request: &TaskRequest, immediate: bool, response: u8) {
        if !immediate {
            self.window.release();
        }
        self.queue_task_response(to, request.initiator_tag, response);
    }

    fn queue_task_response(&mut self, to: ConnectionId, tag: InitiatorTag, response: u8) {
        if let Some(at) = self.open_connection(to) {
            self.connections[at].queue(Output::Task { tag, response });
        }
    }

    /// ABORT TASK (11.6.1 with its cases a, b and c). Returns the task if the driver has it.
    fn abort_task(
        &mut self,
        from: ConnectionId,
        request: &TaskRequest,
    ) -> Result<Vec<CommandId>, TaskResponse> {
        let named = self.tasks.by_tag(request.referenced_tag);
        if let Some(key) = named
            && let Some(task) = self.tasks.get(key)
            && task.lun == request.lun
            && !matches!(task.state, TaskState::Answering(_) | TaskState::Discarding)
        {
            return Ok(if self.remove_task(key) { vec![CommandId::from(key)] } else { Vec::new() });
        }
        let referenced = request.referenced_cmd_sn;
        if named.is_some() || !referenced.is_before(request.cmd_sn) {
            return Err(TaskResponse::TaskDoesNotExist);
        }
        // The task has not arrived yet: count it as received, so that it is a duplicate when it arrives.
        match self.window.arrival(referenced) {
            Arrival::Ignored => Err(TaskResponse::TaskDoesNotExist),
            Arrival::Early => {
                // A void request holds no data, so there is room.
                let _ = self.window.hold(referenced, from, Sequenced::Void);
                Ok(Vec::new())
            }
            Arrival::Due => {
                self.window.advance();
                self.window.release();
                self.carry_out_early();
                Ok(Vec::new())
            }
        }
    }

    /// Ends the tasks that a request affects: those before it in CmdSN order.
    ///
    /// An immediate request has the number of the next command, and so do immediate commands before it. The
    /// tasks are forgotten at once, except those for whose data R2Ts were sent: that data is discarded as it
    /// arrives, and their tags are in use until then.
    fn take_tasks(&mut self, request: &TaskRequest, is_affected: impl Fn(&Task) -> bool) -> Taken {
        let is_before = |task: &Task| {
            task.cmd_sn.is_before(request.cmd_sn) || task.immediate && task.cmd_sn == request.cmd_sn
        };
        let gone: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, task)| is_affected(task) && is_before(task))
            .filter(|(_, task)| !matches!(task.state, TaskState::Answering(_)))
            .map(|(key, _)| key)
            .collect();
        // None of these tasks may get the memory that another of them returns.
        self.starved.retain(|key| !gone.contains(key));
        let mut taken = Taken::default();
        for key in gone {
            if self.discard(key) {
                taken.discarding.push(key);
            } else if self.remove_task(key) {
                taken.running.push(CommandId::from(key));
            }
        }
        self.feed_starved();
        taken
    }
}
