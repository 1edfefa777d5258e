//! Memory for write data, and R2Ts: data is requested when there is room for it.
//!
//! Unsolicited data cannot be refused, so it gets memory at once; the window and FirstBurstLength bound it.
//! Solicited data waits while `data_bytes_max` is reached, oldest command first. If no command holds memory
//! for solicited data, the first in the queue gets it however much is held: otherwise unsolicited parts alone
//! could keep all commands waiting forever.
//!
//! So the session holds at most `data_bytes_max` plus FirstBurstLength for each place in the window. Data
//! without such a place counts against `data_bytes_max`: unsolicited data of immediate commands, which are
//! rejected if it does not fit completely, and data of aborted commands that are still running (`orphan`), as
//! long as it fits. The first command in the queue waits for the latter only if both do not fit together. So
//! a disk that hangs under one unit stops writes to other units only if the data it holds leaves no room for
//! them.

use super::Session;
use super::task::TaskKey;
use super::transmit::Output;
use super::write_data::Place;
use base::Buf;

impl Session {
    /// Allocates memory for unsolicited data: for all of the command's data if that fits, so that nothing is
    /// copied later.
    #[inline]
    pub(super) fn make_room_for_unsolicited(&mut self, key: TaskKey) {
        let Some(write) = self.tasks.get(key).and_then(|task| task.write.as_ref()) else { return };
        let (expected, unsolicited) = (write.expected as usize, write.unsolicited_max as usize);
        if unsolicited == 0 {
            return;
        }
        let all_unsolicited = unsolicited == expected;
        let whole = all_unsolicited || self.has_room(expected);
        let Some(task) = self.tasks.get_mut(key) else { return };
        let Some(write) = task.write.as_mut() else { return };
        let len = if whole { expected } else { unsolicited };
        let buf = Buf::uncleared(len);
        write.place = if whole { Place::Whole(buf) } else { Place::Partial(buf) };
        task.charged = len;
        // An immediate command was checked for room before it became a task.
        task.granted = whole && (task.immediate || !all_unsolicited);
        self.write_bytes += len;
        self.write_grants += usize::from(task.granted);
    }

    /// Whether all data of a command fits now, and no command waits for room.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.starved.is_empty() && self.write_bytes + len <= self.config.data_bytes_max
    }

    /// Sends R2Ts, or first queues for memory.
    pub(super) fn solicit(&mut self, key: TaskKey) {
        let has_room = self
            .tasks
            .get(key)
            .and_then(|task| task.write.as_ref())
            .is_some_and(|write| matches!(write.place, Place::Whole(_)));
        if !has_room {
            self.starved.push_back(key);
            self.feed_starved();
        } else {
            self.send_r2ts(key);
        }
    }

    /// Gives memory to waiting commands while there is room.
    pub(super) fn feed_starved(&mut self) {
        while let Some(&key) = self.starved.front() {
            let Some(task) = self.tasks.get_mut(key) else {
                self.starved.pop_front();
                continue;
            };
            let max = self.config.data_bytes_max;
            let more = task.expected as usize - task.charged;
            let fits = self.write_bytes + more <= max;
            let fits_alone = self.orphan_bytes == 0 || self.orphan_bytes + task.expected as usize <= max;
            if !fits && (self.write_grants > 0 || !fits_alone) {
                return;
            }
            self.starved.pop_front();
            if let Some(write) = task.write.as_mut() {
                write.make_whole();
                task.charged += more;
                task.granted = true;
                self.write_bytes += more;
                self.write_grants += 1;
            }
            self.send_r2ts(key);
        }
    }

    fn send_r2ts(&mut self, key: TaskKey) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let id = task.connection;
        let Some(write) = task.write.as_mut() else { return };
        let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == id) else {
            return;
        };
        let (max_burst, outstanding_max) =
            (connection.negotiated.max_burst, connection.negotiated.max_outstanding_r2t);
        while let Some(number) = write.next_r2t(max_burst, outstanding_max) {
            connection.queue(Output::R2t(key, number));
        }
    }

    /// Releases the memory of a command that no longer needs its write data.
    #[inline]
    pub(super) fn release_memory(&mut self, key: TaskKey) {
        let Some(task) = self.tasks.get_mut(key).filter(|task| task.charged > 0) else { return };
        self.write_bytes -= std::mem::take(&mut task.charged);
        self.write_grants -= usize::from(std::mem::take(&mut task.granted));
        if !self.starved.is_empty() {
            self.feed_starved();
        }
    }
}
