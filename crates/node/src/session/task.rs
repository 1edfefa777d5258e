//! Task management: what is aborted must take no effect after the answer.

use std::rc::Rc;
use std::time::Duration;

use proto::iscsi::target::{CommandId, TaskFunction, TaskResponse};
use proto::scsi::Reset;

use super::Session;
use crate::shard::{Shard, on_all_cores};
use crate::unit::Unit;

/// How long aborted commands get to come to their end. A disk that takes longer is sick, and the initiator, which is
/// told that the function was rejected, will escalate.
const ABORT_DEADLINE: Duration = Duration::from_secs(10);

impl Session {
    /// Carries out a task management function and answers it.
    pub(super) async fn manage_task(
        self: Rc<Session>,
        id: CommandId,
        function: TaskFunction,
        lun: [u8; 8],
        abort: Vec<CommandId>,
    ) {
        tracing::info!(tsih = self.birth.tsih, ?function, commands = abort.len(), "task management");
        let work = async {
            self.ended(&abort).await;
            match function {
                TaskFunction::AbortTask | TaskFunction::AbortTaskSet => TaskResponse::Complete,
                TaskFunction::ClearTaskSet => match self.view().unit(lun) {
                    Some(unit) => self.clear(unit).await,
                    None => TaskResponse::LunDoesNotExist,
                },
                TaskFunction::LogicalUnitReset => match self.view().unit(lun) {
                    Some(unit) => self.reset(unit, Reset::LogicalUnit).await,
                    None => TaskResponse::LunDoesNotExist,
                },
                TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                    for unit in self.view().luns().values() {
                        self.reset(unit, Reset::Target).await;
                    }
                    TaskResponse::Complete
                }
            }
        };
        let response = rt::timeout(ABORT_DEADLINE, work).await.unwrap_or_else(|_| {
            tracing::error!(
                tsih = self.birth.tsih,
                ?function,
                "aborted commands did not come to their end in time"
            );
            TaskResponse::Rejected
        });
        self.brain.borrow_mut().task_done(id, response);
        self.pump();
    }

    /// Waits until none of these commands runs any more.
    async fn ended(&self, commands: &[CommandId]) {
        while commands.iter().any(|id| self.running.borrow().contains_key(id)) {
            self.command_ended.notified().await;
        }
    }

    async fn clear(self: &Rc<Session>, unit: &Rc<Unit>) -> TaskResponse {
        let id = unit.id();
        on_all_cores(move || async move { Shard::current().abort_all(id).await }).await;
        TaskResponse::Complete
    }

    async fn reset(self: &Rc<Session>, unit: &Rc<Unit>, reset: Reset) -> TaskResponse {
        self.clear(unit).await;
        let change = unit.brain().borrow().reset(reset, self.name().clone());
        unit.change(change).await;
        TaskResponse::Complete
    }
}
