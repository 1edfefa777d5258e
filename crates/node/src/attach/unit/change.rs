//! Changes of what all cores agree on: mode pages, reservations, resets.
//!
//! The unit's home core decides them, one at a time, in this order: decide against the newest state; store
//! what must be durable; install the new state on every core and inform the initiators; abort the commands
//! that the change aborts, on every core, and wait until none of them can take effect any more; if the write
//! cache was turned off, wait until all that was written to it is there, and flush; respond. The new state
//! comes before the waiting: from then on no core admits a command under the old state, and commands that
//! were admitted before are waited for.
//!
//! For a replicated volume, all nodes that serve it decide together, and each executes the change in this way
//! on its own cores: [`Reconciler::agree_on`](crate::member::Reconciler::agree_on).
//!
//! A change that has begun runs to its end and holds its turn until then, whatever response its initiator
//! got: so the GOOD of a later change also vouches for it. An initiator that would have to wait too long
//! hears that an operation is in progress. If its own change has begun, it continues; if it waits for its
//! turn, it is dropped and changes nothing.

use std::pin::pin;
use std::time::Duration;

use proto::block::BlockDone;
use proto::scsi::{Abort, ChangeRequest, LuState, Notice, Outcome, Status};
use rt::CoreId;
use rt::sync::{Closed, oneshot};
use store::StoreError;

use super::{Unit, Waiting};
use crate::control::{Control, ControlError};
use crate::data::VolumeId;
use crate::iscsi::session::Caller;
use crate::shard::{Shard, on_all_cores};

/// The core that decides the changes of every unit.
pub const HOME: CoreId = CoreId(0);

/// How long an initiator waits before it hears that an operation is in progress. Less than the 30 s after
/// which Linux aborts a command, since the abort would have to wait for the same change.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);

impl Unit {
    /// Decides and executes `change`; returns the outcome for the command that requested it.
    ///
    /// The change runs to its end even if this future is dropped.
    pub async fn change(&self, change: ChangeRequest) -> Outcome {
        self.change_at_home(change, None).await
    }

    /// Like [`Unit::change`], for a command: it is answered in time, and ends when the change has ended.
    pub(super) async fn change_for(&self, caller: &Caller, change: ChangeRequest) -> Outcome {
        let mut work = pin!(self.change_at_home(change, Some(ANSWER_DEADLINE)));
        match rt::timeout(ANSWER_DEADLINE, work.as_mut()).await {
            Ok(outcome) => outcome,
            Err(rt::Elapsed) => {
                caller.answer(self.brain().borrow().in_progress());
                work.await
            }
        }
    }

    async fn change_at_home(&self, change: ChangeRequest, turn_deadline: Option<Duration>) -> Outcome {
        let id = self.id();
        let (reply, outcome) = oneshot();
        rt::send(HOME, move || {
            rt::spawn(async move { reply.send(decide(id, change, turn_deadline).await) }).detach();
        });
        match outcome.await {
            Ok(outcome) => outcome,
            // The node stops, and the home core has already ended; this core is next.
            Err(Closed) => std::future::pending().await,
        }
    }
}

/// Waits for a part of a change for as long as it takes, and logs what for if that is long.
async fn waiting_for<T>(id: VolumeId, what: &'static str, part: impl Future<Output = T>) -> T {
    let mut part = pin!(part);
    match rt::timeout(ANSWER_DEADLINE, part.as_mut()).await {
        Ok(done) => done,
        Err(rt::Elapsed) => {
            tracing::warn!(volume = %id, what, "a change of reservations or mode pages is waiting; its initiator is informed");
            part.await
        }
    }
}

async fn decide(id: VolumeId, change: ChangeRequest, turn_deadline: Option<Duration>) -> Outcome {
    let shard = Shard::current();
    // The volume may have been deleted while the message was on its way; the session will find out.
    let Some(unit) = shard.unit(id) else { return Outcome::status(Status::Busy) };
    let turn = waiting_for(id, "an earlier change", shard.changes(id));
    let _turn = match turn_deadline {
        None => turn.await,
        Some(deadline) => match rt::timeout(deadline, turn).await {
            Ok(turn) => turn,
            Err(rt::Elapsed) => return unit.brain().borrow().in_progress(),
        },
    };
    if unit.is_replicated()
        && let Ok(reconciler) = Control::current().reconciler()
    {
        // Every write is durable before it is answered, so there is nothing to flush.
        return waiting_for(id, "other nodes", reconciler.agree_on(&unit, &change)).await;
    }
    let change = change.renumbered(unit.up_to_date());
    let decision = unit.brain().borrow().decide(&change);
    let unsettled = Control::current().has_unsettled_state(id);
    let state = decision.state.clone().unwrap_or_else(|| unit.brain().borrow().state().clone());
    if (decision.durable || unsettled)
        && let Err(error) =
            waiting_for(id, "the pool", Control::current().store_lu_state(id, state.to_durable())).await
    {
        tracing::error!(volume = %id, error = &error as &dyn std::error::Error, "a change of reservations or mode pages could not be stored");
        return not_stored(&unit, &error);
    }
    install_on_all_cores(id, decision.state, decision.notices, decision.abort).await;
    if decision.flush {
        until_written(id).await;
        if !matches!(waiting_for(id, "a flush", unit.volume().flush()).await, Ok(BlockDone::Done)) {
            tracing::error!(volume = %id, "the volume could not be flushed to turn its write cache off");
            return unit.brain().borrow().failed();
        }
    }
    decision.outcome
}

/// Initiators repeat a command that was answered BUSY: only errors that may be gone by then are answered in
/// this way.
fn not_stored(unit: &Unit, error: &ControlError) -> Outcome {
    match error {
        // The volume is being closed, and perhaps reopened; the session will find out.
        ControlError::NotFound { .. }
        | ControlError::Store(StoreError::NoSuchVolume(_) | StoreError::Exported(_)) => {
            Outcome::status(Status::Busy)
        }
        _ => unit.brain().borrow().failed(),
    }
}

/// Waits until no command that has begun and may write is at the volume, on any core.
pub async fn until_written(id: VolumeId) {
    let drained = on_all_cores(move || async move {
        if let Some(unit) = Shard::current().unit(id) {
            unit.drained(Waiting::Writes).await;
        }
    });
    waiting_for(id, "commands that write", drained).await;
}

/// Waits until no write that lost its host can take effect any more, on any core.
pub async fn until_orphans_ended(id: VolumeId) {
    let ended = on_all_cores(move || async move {
        if let Some(unit) = Shard::current().unit(id) {
            unit.volume().orphans_ended().await;
        }
    });
    waiting_for(id, "writes of lost hosts", ended).await;
}

/// Installs a decided state on every core, informs initiators, and waits until no command that the change
/// aborts can take effect.
pub async fn install_on_all_cores(id: VolumeId, state: Option<LuState>, notices: Vec<Notice>, abort: Abort) {
    if state.is_some() || !notices.is_empty() {
        on_all_cores(move || async move {
            if let Some(unit) = Shard::current().unit(id) {
                unit.install(state, notices);
            }
        })
        .await;
    }
    if abort != Abort::NONE {
        let aborted = on_all_cores(move || async move {
            match abort {
                Abort::Of(victims) => Shard::current().abort_commands_of(id, &victims).await,
                Abort::All => Shard::current().abort_all(id).await,
            }
        });
        waiting_for(id, "commands to be aborted", aborted).await;
    }
}
