//! Changes of what all cores agree on: mode pages, reservations, resets.
//!
//! They are decided on the unit's home core, one at a time, in this order: decide against the newest state; store what
//! must be durable; install the new state and tell the initiators, on every core; abort the commands that the change
//! aborts, everywhere, and wait until none of them can take effect any more; flush if the write cache was turned off, when
//! all that was written to it is there; answer. The new state comes before the waiting: from then on no core admits a
//! command under the old one, and what was admitted before is waited for.

use proto::scsi::{BlockDone, ChangeRequest, Outcome, Status};
use rt::CoreId;

use super::{Unit, Waiting};
use crate::control::Control;
use crate::shard::{Shard, on_all_cores};
use crate::volume::VolumeId;

/// Where changes of every unit are decided.
pub const HOME: CoreId = CoreId(0);

impl Unit {
    /// Has `change` decided and carried out; gives the answer for the command that asked for it.
    pub async fn change(&self, change: ChangeRequest) -> Outcome {
        let id = self.id();
        rt::call(HOME, move || change_at_home(id, change)).await
    }
}

async fn change_at_home(id: VolumeId, change: ChangeRequest) -> Outcome {
    let shard = Shard::current();
    // The volume may have been deleted while the message was on its way: the session will find out.
    let Some(unit) = shard.unit(id) else { return Outcome::status(Status::Busy) };
    let _turn = shard.changes(id).await;
    let decision = unit.brain().borrow().decide(&change);

    if let Some(state) = decision.state.as_ref().filter(|_| decision.durable)
        && let Err(error) = Control::current().store_lu_state(id, state.to_durable()).await
    {
        tracing::error!(volume = %id, error = &error as &dyn std::error::Error, "a change of reservations or mode pages could not be stored");
        return Outcome::status(Status::Busy);
    }
    if decision.state.is_some() || !decision.notices.is_empty() {
        let (state, notices) = (decision.state, decision.notices);
        on_all_cores(move || {
            let (state, notices) = (state.clone(), notices.clone());
            async move {
                if let Some(unit) = Shard::current().unit(id) {
                    unit.brain().borrow_mut().install(state, &notices);
                }
            }
        })
        .await;
    }
    if !decision.abort.is_empty() {
        let victims = decision.abort.clone();
        on_all_cores(move || {
            let victims = victims.clone();
            async move { Shard::current().abort_commands_of(id, &victims).await }
        })
        .await;
    }
    if decision.flush {
        on_all_cores(move || async move {
            if let Some(unit) = Shard::current().unit(id) {
                unit.drained(Waiting::Writes).await;
            }
        })
        .await;
        if !matches!(unit.volume().flush().await, Ok(BlockDone::Done)) {
            tracing::error!(volume = %id, "the volume could not be flushed to turn its write cache off");
            return Outcome::status(Status::Busy);
        }
    }
    decision.outcome
}
