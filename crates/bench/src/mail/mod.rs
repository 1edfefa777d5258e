//! The profile of a mail server: users whose tasks read pages of databases, and write a log before they are
//! done.
//!
//! Tasks begin at random times (Poisson), independent of earlier ones, so latency counts from when a task was
//! due. [`task`] defines the I/O of each task; `docs/use/bench.md` says where its numbers come from.

mod parts;
mod steady;
pub(crate) mod task;

use std::time::Duration;

use crate::quantity::short_size;
use crate::{Access, Content, Workload, grouped};
pub use parts::Role;
pub(crate) use parts::{Part, parts};
pub(crate) use steady::steady_from;
pub(crate) use task::{KINDS, SEND};

/// Bytes of a page: as in the Extensible Storage Engine since Exchange 2010.
pub(crate) const PAGE_BYTES: u32 = 32 << 10;
/// Concurrent tasks; further tasks that are due wait. As many as a mail store has threads.
pub(crate) const WORKERS: u32 = 256;
/// The windows of a run, in which steady state is detected.
pub(crate) const WINDOWS: usize = 20;
/// A task that takes longer is late: to users, the mail server hangs.
pub const LATE: Duration = Duration::from_millis(1000);

/// The users of a mail server and what they do.
#[derive(Clone, Debug, PartialEq)]
pub struct MailProfile {
    /// Number of users.
    pub users: u32,
    /// Tasks per user and day.
    pub tasks: u32,
    /// The length of a working day.
    pub day: Duration,
    /// How many times faster than that a day passes.
    pub compression: f64,
    /// Run time, including the warm-up.
    pub duration: Duration,
    /// How much of each target is used; `None` means all of it.
    pub span: Option<u64>,
    /// The data of writes.
    pub content: Content,
    /// Pages carry their address and the number of their write, and every page that is read is checked.
    pub verify: bool,
    /// The same seed produces the same tasks at the same times.
    pub seed: u64,
}

/// Why a profile is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum MailProfileError {
    #[error("--users and --tasks must be at least 1")]
    Nobody,
    #[error("--day must be greater than zero")]
    Day,
    #[error("--compress must be greater than zero")]
    Compression,
    #[error("-d must be at least 2 seconds, so that steady state can be detected")]
    Duration,
}

impl MailProfile {
    /// Checks whether the profile is valid.
    pub fn check(&self) -> Result<(), MailProfileError> {
        match self {
            _ if self.users == 0 || self.tasks == 0 => Err(MailProfileError::Nobody),
            _ if self.day.is_zero() => Err(MailProfileError::Day),
            _ if !self.compression.is_finite() || self.compression <= 0.0 => {
                Err(MailProfileError::Compression)
            }
            _ if self.duration < Duration::from_secs(2) => Err(MailProfileError::Duration),
            _ => Ok(()),
        }
    }

    /// Tasks per second that are due, of all users.
    pub fn rate(&self) -> f64 {
        f64::from(self.users) * f64::from(self.tasks) / self.day.as_secs_f64() * self.compression
    }

    /// The profile's title.
    pub fn title(&self) -> String {
        let users = grouped(self.users.into());
        format!("Mail: {users} users, {} tasks per user and day", self.tasks)
    }

    /// The whole profile, as options in one line.
    pub fn letters(&self) -> String {
        let day = self.day.as_secs_f64() / 3600.0;
        let mut letters = format!(
            "--users {} --tasks {} --day {day} --compress {} -z{} -d{}",
            self.users,
            self.tasks,
            self.compression,
            self.seed,
            self.duration.as_secs_f64()
        );
        if let Some(span) = self.span {
            letters.push_str(&format!(" -f{}", short_size(span)));
        }
        if self.verify {
            letters.push_str(" --verify");
        } else if self.content != Content::Random {
            letters.push_str(&format!(" --data {}", self.content));
        }
        letters
    }

    /// The load on its databases, as a pattern: random pages.
    pub(crate) fn workload(&self) -> Workload {
        Workload {
            block: PAGE_BYTES,
            threads: 1,
            depth: WORKERS,
            write_percent: task::write_percent(),
            access: Access::Random { align: PAGE_BYTES.into() },
            span: self.span,
            content: self.content,
            verify: self.verify,
            seed: self.seed,
            rate: Some(self.rate()),
            warm_up: Duration::ZERO,
            duration: self.duration,
            ..Workload::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn profile() -> MailProfile {
        MailProfile {
            users: 2000,
            tasks: 131,
            day: Duration::from_secs(8 * 3600),
            compression: 1.0,
            duration: Duration::from_secs(60),
            span: None,
            content: Content::Random,
            verify: false,
            seed: 0,
        }
    }

    /// A published test of this profile describes itself as "2,000 users at 9 transactions a second".
    #[test]
    fn the_published_users_make_the_published_load() {
        assert!((profile().rate() - 9.1).abs() < 0.01);
        let fast = MailProfile { compression: 100.0, ..profile() };
        assert!((fast.rate() - 910.0).abs() < 1.0);
        assert_eq!(profile().title(), "Mail: 2,000 users, 131 tasks per user and day");
        assert_eq!(fast.letters(), "--users 2000 --tasks 131 --day 8 --compress 100 -z0 -d60");
        assert_eq!(profile().workload().check(), Ok(()));
    }

    #[test]
    fn nonsense_is_refused() {
        for (profile, error) in [
            (MailProfile { users: 0, ..profile() }, MailProfileError::Nobody),
            (MailProfile { tasks: 0, ..profile() }, MailProfileError::Nobody),
            (MailProfile { day: Duration::ZERO, ..profile() }, MailProfileError::Day),
            (MailProfile { compression: f64::NAN, ..profile() }, MailProfileError::Compression),
            (MailProfile { duration: Duration::from_secs(1), ..profile() }, MailProfileError::Duration),
        ] {
            assert_eq!(profile.check(), Err(error));
        }
    }
}
