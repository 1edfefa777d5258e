//! What a session counts, for metrics.

use std::iter::Sum;

/// Totals since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// PDUs whose header was received.
    pub pdus_received: u64,
    /// PDUs sent.
    pub pdus_sent: u64,
    /// Bytes received, headers included.
    pub bytes_received: u64,
    /// Bytes sent, headers included.
    pub bytes_sent: u64,
    /// SCSI commands taken into the task set.
    pub commands: u64,
    /// R2Ts sent.
    pub r2ts: u64,
    /// Rejects sent.
    pub rejects: u64,
    /// Dropped requests whose CmdSN was a duplicate or outside the window, and dropped data of tasks that
    /// have ended.
    pub ignored: u64,
    /// Tasks aborted by the initiator, by another session or with their connection.
    pub aborts: u64,
}

impl Sum for Counters {
    fn sum<I: Iterator<Item = Counters>>(all: I) -> Counters {
        all.fold(Counters::default(), |a, b| Counters {
            pdus_received: a.pdus_received + b.pdus_received,
            pdus_sent: a.pdus_sent + b.pdus_sent,
            bytes_received: a.bytes_received + b.bytes_received,
            bytes_sent: a.bytes_sent + b.bytes_sent,
            commands: a.commands + b.commands,
            r2ts: a.r2ts + b.r2ts,
            rejects: a.rejects + b.rejects,
            ignored: a.ignored + b.ignored,
            aborts: a.aborts + b.aborts,
        })
    }
}

/// The number of commands in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCensus {
    /// Waits for write data, for memory for it, or for an earlier CmdSN.
    pub collecting: usize,
    /// Will be refused when the initiator has sent all data that it announced.
    pub refusing: usize,
    /// Handed out.
    pub running: usize,
    /// Answered, but the response is not sent completely.
    pub answering: usize,
}
