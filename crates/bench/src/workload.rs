//! What a run does: one pattern, in DISKSPD's terms.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Content;
use crate::quantity::short_size;

/// The most bytes of one request: the most that one command to common targets may transfer.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// The most threads: more than any machine has processors.
pub const THREADS_MAX: u32 = 1024;
/// The most outstanding requests of one thread.
pub const DEPTH_MAX: u32 = 4096;
/// The most intervals of a series, if their length is given: a day of seconds.
const INTERVALS_MAX: u32 = 86_400;

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Anywhere, at multiples of `align` bytes (`-r`).
    Random {
        /// Bytes.
        align: u64,
    },
    /// Each `stride` bytes behind the previous one (`-s`); at the end it starts again.
    Sequential {
        /// Bytes.
        stride: u64,
        /// All threads share one sequence (`-si`); otherwise each has its own.
        interlocked: bool,
    },
}

/// A part of the target that gets more or fewer random requests than its size (`-rdpct`).
///
/// The parts lie one behind the other; what is left of the requests goes to what is left of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The percentage of the requests.
    pub requests: u8,
    /// The percentage of the target.
    pub target: u8,
}

/// Text that is no [`Share`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a percentage of requests and one of the target, such as 80/20")]
pub struct InvalidShare(String);

impl FromStr for Share {
    type Err = InvalidShare;

    fn from_str(text: &str) -> Result<Share, InvalidShare> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
        let (requests, target) = numbers.ok_or_else(|| InvalidShare(text.to_owned()))?;
        Ok(Share { requests, target })
    }
}

// As in the option: `80/20`.
base::shows!(Display for Share, |it| "{}/{}", it.requests, it.target);

/// A pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Bytes of a request (`-b`).
    pub block: u32,
    /// Threads for each target (`-t`).
    pub threads: u32,
    /// Outstanding requests of each thread (`-o`).
    pub depth: u32,
    /// Percentage of writes (`-w`).
    pub write_percent: u8,
    /// Where requests go (`-r`, `-s`).
    pub access: Access,
    /// How random requests are distributed (`-rdpct`); evenly if there are no shares.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// Where the used part of the target begins (`-B`), in bytes.
    pub base: u64,
    /// The size of that part (`-f`); `None` means up to the end.
    pub span: Option<u64>,
    /// The distance between the starts of a target's threads (`-T`), in bytes.
    pub thread_stride: u64,
    /// Each write is on stable storage when it is answered (`-Sw`, `-Sh`).
    pub write_through: bool,
    /// The data of writes (`-Z`).
    pub content: Content,
    /// Every sector carries its address and the number of its write, and every read is checked.
    pub verify: bool,
    /// The same seed produces the same requests (`-z`).
    pub seed: u64,
    /// Requests per second of all threads together, each due at its own time, independent of the others.
    ///
    /// With `None`, each thread sends the next request when one is answered.
    pub rate: Option<f64>,
    /// Run time before the measurement (`-W`).
    #[serde(with = "crate::quantity::seconds")]
    pub warm_up: Duration,
    /// Run time of the measurement (`-d`).
    #[serde(with = "crate::quantity::seconds")]
    pub duration: Duration,
    /// The length of an interval of the series, in seconds; `None`: whatever a chart can resolve.
    #[serde(default)]
    pub interval: Option<f64>,
}

impl Default for Workload {
    /// DISKSPD's defaults, except for the page cache, which is always bypassed here.
    fn default() -> Workload {
        Workload {
            block: 64 << 10,
            threads: 1,
            depth: 2,
            write_percent: 0,
            access: Access::Sequential { stride: 64 << 10, interlocked: false },
            shares: Vec::new(),
            base: 0,
            span: None,
            thread_stride: 0,
            write_through: false,
            content: Content::Random,
            verify: false,
            seed: 0,
            rate: None,
            warm_up: Duration::from_secs(5),
            duration: Duration::from_secs(10),
            interval: None,
        }
    }
}

/// Why a pattern is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum WorkloadError {
    #[error("request size {0} bytes is out of range: -b takes 512 bytes to 16M, in multiples of 512 bytes")]
    Block(u32),
    #[error("{0} threads are out of range: -t takes 1 to {THREADS_MAX}")]
    Threads(u32),
    #[error("{0} outstanding requests are out of range: -o takes 1 to {DEPTH_MAX}")]
    Depth(u32),
    #[error("{0} percent writes is out of range: -w takes 0 to 100")]
    Writes(u8),
    #[error("invalid alignment or stride of {0} bytes: -r and -s take multiples of 512 bytes")]
    Step(u64),
    #[error("invalid offset of {0} bytes: -B and -T take multiples of 512 bytes")]
    Offset(u64),
    #[error("--rate must be greater than zero")]
    Rate,
    #[error("the run time must be greater than zero: -d")]
    Duration,
    #[error(
        "-rdpct takes percentages of requests and of the target, at most 100 of each in all, and some of the target for all requests that are left"
    )]
    Shares,
    #[error("-rdpct is for random access: omit -s")]
    SharesInOrder,
    #[error("--interval must be at least 0.1 seconds, and the run time at most {INTERVALS_MAX} intervals")]
    Interval,
    #[error("--verify requires aligned requests: -r, -s, -B and -T must be multiples of -b")]
    VerifyOverlap,
    #[error("--verify writes its own data; omit --data")]
    VerifyContent,
}

impl Workload {
    /// Checks whether the pattern is valid, independent of the target.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let sectors = |bytes: u64| bytes.is_multiple_of(512);
        let (Access::Random { align: step } | Access::Sequential { stride: step, .. }) = self.access;
        if !(512..=BLOCK_BYTES_MAX).contains(&self.block) || !sectors(self.block.into()) {
            return Err(WorkloadError::Block(self.block));
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(WorkloadError::Threads(self.threads));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return Err(WorkloadError::Depth(self.depth));
        }
        if self.write_percent > 100 {
            return Err(WorkloadError::Writes(self.write_percent));
        }
        if step == 0 || !sectors(step) {
            return Err(WorkloadError::Step(step));
        }
        if let Some(offset) = [self.base, self.thread_stride].into_iter().find(|offset| !sectors(*offset)) {
            return Err(WorkloadError::Offset(offset));
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(WorkloadError::Rate);
        }
        if self.duration.is_zero() {
            return Err(WorkloadError::Duration);
        }
        self.check_shares()?;
        let whole = (self.warm_up + self.duration).as_secs_f64();
        let fits = |interval: f64| interval >= 0.1 && whole / interval <= f64::from(INTERVALS_MAX);
        if self.interval.is_some_and(|interval| !fits(interval)) {
            return Err(WorkloadError::Interval);
        }
        self.check_verify(step)
    }

    fn check_shares(&self) -> Result<(), WorkloadError> {
        let sum = |of: fn(&Share) -> u8| self.shares.iter().map(|share| u32::from(of(share))).sum::<u32>();
        let (requests, target) = (sum(|share| share.requests), sum(|share| share.target));
        let rest_has_room = requests == 100 || target < 100;
        if self.shares.is_empty() {
            return Ok(());
        }
        if !matches!(self.access, Access::Random { .. }) {
            return Err(WorkloadError::SharesInOrder);
        }
        let nowhere = self.shares.iter().any(|share| share.target == 0);
        let sound = requests <= 100 && target <= 100 && rest_has_room && !nowhere;
        if sound { Ok(()) } else { Err(WorkloadError::Shares) }
    }

    fn check_verify(&self, step: u64) -> Result<(), WorkloadError> {
        let whole = |bytes: u64| bytes.is_multiple_of(self.block.into());
        match self.verify {
            false => Ok(()),
            true if self.content != Content::Random => Err(WorkloadError::VerifyContent),
            true if whole(step) && whole(self.base) && whole(self.thread_stride) => Ok(()),
            true => Err(WorkloadError::VerifyOverlap),
        }
    }

    /// Whether it destroys the data on the target.
    pub fn writes(&self) -> bool {
        self.write_percent > 0
    }

    /// Whether it reads.
    pub fn reads(&self) -> bool {
        self.write_percent < 100
    }

    /// The length of an interval of the series, if it is given.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Outstanding requests of all threads of a target together.
    pub fn outstanding(&self) -> u64 {
        u64::from(self.threads) * u64::from(self.depth)
    }

    /// The pattern without threads and depth, in the usual notation: `4K random 70/30`.
    pub fn title(&self) -> String {
        let access = match self.access {
            Access::Random { .. } if !self.shares.is_empty() => "skewed",
            Access::Random { .. } => "random",
            Access::Sequential { .. } => "sequential",
        };
        let mix = match self.write_percent {
            0 => "read".to_owned(),
            100 => "write".to_owned(),
            writes => format!("{}/{writes}", 100 - writes),
        };
        format!("{} {access} {mix}", short_size(self.block.into()))
    }

    /// The pattern as DISKSPD's letters; as long options where DISKSPD has none.
    pub fn letters(&self) -> String {
        let block = u64::from(self.block);
        let mut letters = format!("-b{} -t{} -o{}", short_size(block), self.threads, self.depth);
        let mut add = |option: String| {
            letters.push(' ');
            letters.push_str(&option);
        };
        add(format!("-w{}", self.write_percent));
        match self.access {
            Access::Random { align } if align == block => add("-r".into()),
            Access::Random { align } => add(format!("-r{}", short_size(align))),
            Access::Sequential { stride, interlocked } => {
                let interlocked = if interlocked { "i" } else { "" };
                let stride = if stride == block { String::new() } else { short_size(stride) };
                add(format!("-s{interlocked}{stride}"));
            }
        }
        if !self.shares.is_empty() {
            let shares: Vec<String> = self.shares.iter().map(Share::to_string).collect();
            add(format!("-rdpct{}", shares.join(":")));
        }
        add(if self.write_through { "-Sh" } else { "-Su" }.into());
        for (letter, bytes) in [("-B", self.base), ("-T", self.thread_stride)] {
            if bytes > 0 {
                add(format!("{letter}{}", short_size(bytes)));
            }
        }
        if let Some(span) = self.span {
            add(format!("-f{}", short_size(span)));
        }
        add(format!("-z{} -W{} -d{}", self.seed, self.warm_up.as_secs_f64(), self.duration.as_secs_f64()));
        if let Some(rate) = self.rate {
            add(format!("--rate {rate}"));
        }
        if let Some(interval) = self.interval {
            add(format!("--interval {interval}"));
        }
        if self.verify {
            add("--verify".into());
        } else if self.content != Content::Random {
            add(format!("--data {}", self.content));
        }
        letters
    }
}

impl fmt::Display for Workload {
    /// Like [`Workload::title`], with threads and depth: `4K random read, 4 x 32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} x {}", self.title(), self.threads, self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(text: &str) -> Vec<Share> {
        text.split(':').map(|share| share.parse().unwrap()).collect()
    }

    fn random_4k() -> Workload {
        Workload { block: 4096, access: Access::Random { align: 4096 }, ..Workload::default() }
    }

    #[test]
    fn patterns_have_the_names_that_people_use() {
        let mix = Workload { write_percent: 30, threads: 4, depth: 32, ..random_4k() };
        assert_eq!(mix.to_string(), "4K random 70/30, 4 x 32");
        assert_eq!(Workload::default().to_string(), "64K sequential read, 1 x 2");
        assert_eq!(mix.letters(), "-b4K -t4 -o32 -w30 -r -Su -z0 -W5 -d10");
        let odd = Workload {
            access: Access::Sequential { stride: 8192, interlocked: true },
            span: Some(1 << 30),
            write_through: true,
            rate: Some(500.0),
            ..mix
        };
        assert_eq!(odd.letters(), "-b4K -t4 -o32 -w30 -si8K -Sh -f1G -z0 -W5 -d10 --rate 500");
        let soak = Workload { shares: shares("80/20:10/30"), interval: Some(1.0), ..random_4k() };
        assert_eq!(soak.title(), "4K skewed read");
        assert_eq!(soak.letters(), "-b4K -t1 -o2 -w0 -r -rdpct80/20:10/30 -Su -z0 -W5 -d10 --interval 1");
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Workload::default().check(), Ok(()));
        assert_eq!(Workload { shares: shares("80/20"), ..random_4k() }.check(), Ok(()));
        assert_eq!(Workload { shares: shares("60/20:40/80"), ..random_4k() }.check(), Ok(()));
        assert!("80".parse::<Share>().is_err() && "80/300".parse::<Share>().is_err());
        for (workload, error) in [
            (Workload { block: 1000, ..random_4k() }, WorkloadError::Block(1000)),
            (Workload { threads: 0, ..random_4k() }, WorkloadError::Threads(0)),
            (Workload { depth: 5000, ..random_4k() }, WorkloadError::Depth(5000)),
            (Workload { write_percent: 101, ..random_4k() }, WorkloadError::Writes(101)),
            (Workload { access: Access::Random { align: 0 }, ..random_4k() }, WorkloadError::Step(0)),
            (Workload { base: 100, ..random_4k() }, WorkloadError::Offset(100)),
            (Workload { rate: Some(0.0), ..random_4k() }, WorkloadError::Rate),
            (Workload { duration: Duration::ZERO, ..random_4k() }, WorkloadError::Duration),
            (Workload { interval: Some(0.05), ..random_4k() }, WorkloadError::Interval),
            (Workload { interval: Some(f64::NAN), ..random_4k() }, WorkloadError::Interval),
            (Workload { shares: shares("80/0"), ..random_4k() }, WorkloadError::Shares),
            (Workload { shares: shares("80/20:30/20"), ..random_4k() }, WorkloadError::Shares),
            (Workload { shares: shares("80/60:10/40"), ..random_4k() }, WorkloadError::Shares),
            (Workload { shares: shares("80/20"), ..Workload::default() }, WorkloadError::SharesInOrder),
            (Workload { verify: true, content: Content::Zero, ..random_4k() }, WorkloadError::VerifyContent),
            (
                Workload { verify: true, access: Access::Random { align: 512 }, ..random_4k() },
                WorkloadError::VerifyOverlap,
            ),
        ] {
            assert_eq!(workload.check(), Err(error));
        }
    }
}
