//! Task management: an aborted command must have no effect after the response.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use proto::iscsi::target_role::{CloseReason, CommandId, TaskFunction, TaskResponse};
use proto::scsi::Reset;

use super::Session;
use crate::attach::unit::Unit;
use crate::shard::{Shard, on_all_cores};

/// How long aborted commands may take to end before the session is ended. A disk that takes longer is faulty.
///
/// Most initiators escalate earlier (open-iscsi waits 15 s for an abort and 30 s for a reset); others are cut
/// off after this time. Any response before the end would be wrong: "complete" lets the initiator overwrite
/// what a late write then destroys, "rejected" makes it wait for commands that are gone.
const ABORT_DEADLINE: Duration = Duration::from_secs(60);

/// How long to wait for data that R2Ts have requested, after a function has ended its commands.
///
/// RFC 7143 4.2.3.3 requires the wait; but open-iscsi with its default FastAbort = Yes sends no data once it
/// has asked for a reset. An initiator that does send it has it on its way already. This is far less than the
/// 30 s after which open-iscsi gives up a reset.
const DATA_DEADLINE: Duration = Duration::from_secs(2);

impl Session {
    /// Executes a task management function, and responds when nothing that it ends can take effect any more.
    ///
    /// If that takes too long, the session is ended instead; its successor begins when the function is
    /// complete (see `portal`). The function always runs to its end, since others depend on it: a reset that
    /// has begun must be completed.
    pub(super) async fn manage_task(
        self: Rc<Session>,
        id: CommandId,
        function: TaskFunction,
        lun: [u8; 8],
        abort: Vec<CommandId>,
    ) {
        tracing::info!(tsih = self.parameters.tsih, ?function, commands = abort.len(), "task management");
        self.stop_these(&abort);
        let mut work = pin!(async {
            self.ended(&abort).await;
            match function {
                TaskFunction::AbortTask => TaskResponse::Complete,
                // A unit that will be back soon has no tasks, but it still exists.
                TaskFunction::AbortTaskSet => match self.view() {
                    view if view.unit(lun).is_some() || view.is_away(lun) => TaskResponse::Complete,
                    _ => TaskResponse::LunDoesNotExist,
                },
                TaskFunction::ClearTaskSet => match self.unit(lun) {
                    Some(unit) => self.clear(&unit).await,
                    None => TaskResponse::LunDoesNotExist,
                },
                TaskFunction::LogicalUnitReset => match self.unit(lun) {
                    Some(unit) => self.reset(&unit, Reset::LogicalUnit).await,
                    None => TaskResponse::LunDoesNotExist,
                },
                TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                    let units = self.view().units();
                    for unit in units {
                        self.reset(&unit, Reset::Target).await;
                    }
                    TaskResponse::Complete
                }
            }
        });
        let response = match rt::timeout(ABORT_DEADLINE, work.as_mut()).await {
            Ok(response) => response,
            Err(rt::Elapsed) => {
                tracing::error!(
                    tsih = self.parameters.tsih,
                    ?function,
                    "timed out aborting commands: they do not return from their disk, or from another node; the session is ended"
                );
                self.end(CloseReason::AbortTimeout);
                work.await
            }
        };
        let has_come = || !self.brain.borrow().awaits_data(id);
        if rt::timeout(DATA_DEADLINE, self.arrived.until(has_come)).await.is_err() {
            tracing::debug!(
                tsih = self.parameters.tsih,
                ?function,
                "data of the aborted commands did not arrive in time"
            );
        }
        let answered = rt::now();
        // A session that ended meanwhile has reset nothing, and needs no response.
        let is_asked = !self.ended.get();
        self.brain.borrow_mut().task_done(id, response);
        self.pump();
        if is_asked && function == TaskFunction::TargetColdReset {
            self.end_all_of_target(answered).await;
        }
    }

    /// Drops all connections of all initiators to this session's target, on this node, as a target cold reset
    /// requires (RFC 7143 11.5.1). Sessions that began after the response stay.
    async fn end_all_of_target(&self, answered: Instant) {
        let Some(target) = self.target().map(str::to_owned) else { return };
        on_all_cores(move || async move {
            let is_dropped = |it: &Rc<Session>| it.target() == Some(target.as_str()) && it.began <= answered;
            for session in Shard::current().sessions().into_iter().filter(is_dropped) {
                session.end(CloseReason::Reset);
            }
        })
        .await;
    }

    fn unit(&self, lun: [u8; 8]) -> Option<Rc<Unit>> {
        self.view().unit(lun).cloned()
    }

    fn stop_these(&self, commands: &[CommandId]) {
        let mut running = self.running.borrow_mut();
        for id in commands {
            if let Some(running) = running.get_mut(id) {
                running.aborted = true;
            }
        }
        self.aborted.notify();
    }

    /// Waits until none of these commands is running.
    pub async fn ended(&self, commands: &[CommandId]) {
        let runs = |id| self.running.borrow().contains_key(id);
        self.command_ended.until(|| !commands.iter().any(runs)).await;
    }

    async fn clear(self: &Rc<Session>, unit: &Rc<Unit>) -> TaskResponse {
        let id = unit.id();
        on_all_cores(move || async move { Shard::current().abort_all(id).await }).await;
        TaskResponse::Complete
    }

    async fn reset(self: &Rc<Session>, unit: &Rc<Unit>, reset: Reset) -> TaskResponse {
        self.clear(unit).await;
        let change = unit.brain().borrow().reset(reset, self.name());
        unit.change(change).await;
        TaskResponse::Complete
    }
}
