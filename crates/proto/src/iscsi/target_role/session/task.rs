//! SCSI commands from their arrival to the last byte of their response.

use base::Chain;
use slab::Slab;

use super::tag_index::TagIndex;
use super::write_data::WriteData;
use super::{CommandId, ConnectionId, TaskCensus};
use crate::iscsi::wire::{InitiatorTag, Residual, Serial, TargetTag};
use crate::scsi::{Cdb, Outcome, Sense, Status};

/// A slot, and the generation of the task in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl From<CommandId> for TaskKey {
    fn from(id: CommandId) -> TaskKey {
        TaskKey { slot: id.0 as u32, generation: (id.0 >> 32) as u32 }
    }
}

impl From<TaskKey> for CommandId {
    fn from(key: TaskKey) -> CommandId {
        CommandId(u64::from(key.generation) << 32 | u64::from(key.slot))
    }
}

impl TaskKey {
    /// The target transfer tag of an R2T. Only the reserved value has a meaning in the RFC; the top bit is
    /// cleared to avoid it.
    pub(super) fn target_tag(self, r2t: u32) -> TargetTag {
        TargetTag((self.slot << 12 | r2t & 0xfff) & 0x7fff_ffff)
    }
}

/// The states of a command. Only `request` (creation, `proceed`, `answer`, removal) and `abort` change them.
#[derive(Debug)]
pub(super) enum TaskState {
    /// Waits for its turn, for memory, or for data.
    Collecting,
    /// Will be answered with the verdict when the data on its way has arrived: announced unsolicited data,
    /// and data that R2Ts requested.
    Refusing(Verdict),
    /// Ended by a task management function of its own session: the session forgets it without a response when
    /// the data that R2Ts requested has arrived.
    Discarding,
    /// Handed out to the driver.
    Running,
    /// Handed out to the driver, and aborted on the node's initiative: it is answered TASK ABORTED when the
    /// driver has ended it.
    Aborted,
    /// Answered: the response waits in the transmit queue, or has been sent in part.
    Answering(Answer),
}

impl TaskState {
    /// Whether the driver has the command.
    pub(super) fn is_handed_out(&self) -> bool {
        matches!(self, TaskState::Running | TaskState::Aborted)
    }
}

/// Why a command is not executed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Check(Sense),
    /// Aborted on the node's initiative.
    TaskAborted,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Outcome {
        match verdict {
            Verdict::Check(sense) => Outcome::check(sense),
            Verdict::TaskAborted => Outcome::status(Status::TaskAborted),
        }
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) sense: Option<Sense>,
    pub(super) residual: Residual,
    /// At most as long as the initiator expects.
    pub(super) data: Chain,
    /// Bytes of `data` that have been sent.
    pub(super) sent: u32,
    /// Data-In PDUs that have been sent.
    pub(super) data_sn: u32,
}

#[derive(Debug)]
pub(super) struct Task {
    /// Set by [`TaskTable::insert`].
    pub(super) generation: u32,
    /// The connection that the command arrived on, and on which it is answered.
    pub(super) connection: ConnectionId,
    pub(super) tag: InitiatorTag,
    pub(super) lun: [u8; 8],
    pub(super) cdb: Cdb,
    pub(super) cmd_sn: Serial,
    pub(super) immediate: bool,
    /// Whether its CmdSN has had its turn.
    pub(super) in_order: bool,
    /// The R bit.
    pub(super) read: bool,
    /// Expected Data Transfer Length.
    pub(super) expected: u32,
    /// `Some` if the command has the W bit and a length, or brings data.
    pub(super) write: Option<WriteData>,
    /// Bytes counted in the session's `write_bytes`.
    pub(super) charged: usize,
    /// It got memory for solicited data, or is immediate: no place in the window bounds `charged`.
    pub(super) granted: bool,
    pub(super) state: TaskState,
}

pub(super) struct TaskTable {
    slots: Slab<Task>,
    tags: TagIndex,
    /// The generation of the latest task or task management request.
    generation: u32,
}

impl TaskTable {
    pub(super) fn new() -> TaskTable {
        TaskTable { slots: Slab::new(), tags: TagIndex::new(), generation: 0 }
    }

    pub(super) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Adds a task. Its tag must be unused.
    #[inline]
    pub(super) fn insert(&mut self, task: Task) -> TaskKey {
        let (generation, tag) = (self.next_generation(), task.tag);
        let slot = self.slots.insert(Task { generation, ..task }) as u32;
        self.tags.insert(tag, slot);
        TaskKey { slot, generation }
    }

    #[inline]
    pub(super) fn get(&self, key: TaskKey) -> Option<&Task> {
        self.slots.get(key.slot as usize).filter(|task| task.generation == key.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: TaskKey) -> Option<&mut Task> {
        self.slots.get_mut(key.slot as usize).filter(|task| task.generation == key.generation)
    }

    #[inline]
    pub(super) fn by_tag(&self, tag: InitiatorTag) -> Option<TaskKey> {
        let slot = self.tags.get(tag)?;
        self.slots.get(slot as usize).map(|task| TaskKey { slot, generation: task.generation })
    }

    #[inline]
    pub(super) fn remove(&mut self, key: TaskKey) -> Option<Task> {
        self.get(key)?;
        let task = self.slots.remove(key.slot as usize);
        self.tags.remove(task.tag);
        Some(task)
    }

    /// All tasks, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskKey, &Task)> {
        self.slots
            .iter()
            .map(|(slot, task)| (TaskKey { slot: slot as u32, generation: task.generation }, task))
    }

    pub(super) fn census(&self) -> TaskCensus {
        let mut census = TaskCensus::default();
        for (_, task) in self.slots.iter() {
            match task.state {
                TaskState::Collecting => census.collecting += 1,
                TaskState::Refusing(_) | TaskState::Discarding => census.refusing += 1,
                TaskState::Running | TaskState::Aborted => census.running += 1,
                TaskState::Answering(_) => census.answering += 1,
            }
        }
        census
    }
}
