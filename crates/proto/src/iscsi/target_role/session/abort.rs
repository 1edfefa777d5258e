//! Commands that are not executed: their data was lost, or they were aborted. Data of theirs that is on its
//! way cannot be called back.

use super::Session;
use super::task::{Task, TaskKey, TaskState, Verdict};
use super::write_data::{Place, WriteData};
use crate::scsi::{Lun, Sense, SenseKey};

/// RFC 7143 11.4.7.2: protocol service CRC error.
const PROTOCOL_SERVICE_CRC_ERROR: u16 = 0x4705;

impl Session {
    /// Aborts a running command because of PREEMPT AND ABORT, or a reset by another session.
    pub(super) fn abort_from_above(&mut self, key: TaskKey, answer: bool) {
        let Some(task) = self.tasks.get(key) else { return };
        let (from, is_running) = (task.connection, matches!(task.state, TaskState::Running));
        if !is_running {
            return;
        }
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == from) {
            connection.counters.aborts += 1;
        }
        if !answer {
            self.remove_task(key);
        } else if let Some(task) = self.tasks.get_mut(key) {
            task.state = TaskState::Aborted;
        }
    }

    /// Does the same for commands that wait for data or memory. A command whose turn has not come is in no
    /// task set yet.
    pub(super) fn abort_waiting_from_above(&mut self, lun: Lun) {
        let is_affected = |task: &Task| {
            task.in_order
                && Lun::decode(task.lun) == Some(lun)
                && matches!(task.state, TaskState::Collecting | TaskState::Refusing(_))
        };
        let affected: Vec<TaskKey> =
            self.tasks.iter().filter(|(_, task)| is_affected(task)).map(|(key, _)| key).collect();
        // None of these commands may get the memory that another of them returns.
        self.starved.retain(|key| !affected.contains(key));
        for key in affected {
            let Some(cid) = self.tasks.get(key).map(|task| task.connection) else { continue };
            if let Some(at) = self.open_connection(cid) {
                self.connections[at].counters.aborts += 1;
            }
            self.refuse(key, Verdict::TaskAborted);
            self.proceed(key);
        }
        self.feed_starved();
    }

    /// Refuses a command whose data was lost (7.8, 7.9), once the rest has arrived, because data on its way
    /// cannot be called back. A command that is being refused already keeps its reason.
    pub(super) fn give_up_data(&mut self, key: TaskKey) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if matches!(task.state, TaskState::Collecting) {
            let sense = Sense::new(SenseKey::AbortedCommand, PROTOCOL_SERVICE_CRC_ERROR);
            self.refuse(key, Verdict::Check(sense));
        }
    }

    fn refuse(&mut self, key: TaskKey, verdict: Verdict) {
        self.throw_away(key, TaskState::Refusing(verdict));
    }

    /// Forgets an unwanted command once the data that R2Ts requested has arrived. Returns whether such data
    /// is outstanding.
    pub(super) fn discard(&mut self, key: TaskKey) -> bool {
        let write = self.tasks.get(key).and_then(|task| task.write.as_ref());
        let is_asked_for = write.is_some_and(WriteData::is_asked_for);
        if is_asked_for {
            self.throw_away(key, TaskState::Discarding);
        }
        is_asked_for
    }

    /// Drops an R2T whose turn to be sent has come, if its command is being discarded. Returns whether it
    /// was.
    pub(super) fn withdraw_r2t(&mut self, key: TaskKey) -> bool {
        let discarded = self.tasks.get_mut(key).filter(|task| matches!(task.state, TaskState::Discarding));
        let Some(write) = discarded.and_then(|task| task.write.as_mut()) else { return false };
        write.withdraw_r2t();
        self.proceed(key);
        true
    }

    /// Discards the data of a command: what has arrived, and what will arrive.
    fn throw_away(&mut self, key: TaskKey, state: TaskState) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        task.state = state;
        if let Some(write) = task.write.as_mut() {
            write.place = Place::None;
        }
        self.release_memory(key);
    }
}
