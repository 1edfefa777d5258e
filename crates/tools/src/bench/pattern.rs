//! Arguments that describe a pattern.

use std::str::FromStr;
use std::time::Duration;

use bench::{Access, Content, Share, Workload};
use clap::Args;
use terms::size::Size;

/// A pattern. The letters are those of DISKSPD.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pattern (DISKSPD letters)")]
pub struct PatternArgs {
    /// -b: request size
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    block: Size,
    /// -w: write percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    write: u8,
    /// -r: random access, aligned to SIZE [default: the request size]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, overrides_with = "random")]
    random: Option<Option<Size>>,
    /// -rdpct80/20: random access, with 80 % of the requests in the first 20 % of the target; more pairs
    /// follow after colons, and the remaining requests go to the remaining part
    #[arg(long, value_name = "LIST", value_delimiter = ':')]
    distribution: Vec<Share>,
    /// -s: sequential access with this stride [default: the request size]; this is the default access
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true)]
    sequential: Option<Option<Size>>,
    /// -si: all threads share one sequence, instead of one per thread
    #[arg(long)]
    interlocked: bool,
    /// -Sh, -Sw: write through: each write is on stable storage when acknowledged; caches of this machine are
    /// always bypassed (-Su)
    #[arg(long)]
    write_through: bool,
    /// -f: size of the part of the target to use [default: all]
    #[arg(long, value_name = "SIZE")]
    span: Option<Size>,
    /// -B: offset of the part to use
    #[arg(long, value_name = "SIZE", default_value = "0")]
    base: Size,
    /// -T: distance between the start offsets of threads
    #[arg(long, value_name = "SIZE", default_value = "0")]
    thread_stride: Size,
    /// -z: seed; the same seed gives the same requests; -z alone uses a random seed
    #[arg(long, value_name = "N", default_value = "0")]
    seed: Seed,
    /// Data to write: random, zero, or compressible=PERCENT,dedup=PERCENT; -Z alone means zero
    #[arg(long, value_name = "KIND", default_value = "random", overrides_with = "data")]
    data: Content,
    /// -W: warm-up time in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    warm_up: Duration,
    /// -d: measured time in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Length of an interval of the results over time, in seconds [default: a 120th of the run, rounded up]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Fixed total rate in requests per second; latency counts from the time a request is due, not from the
    /// time it is sent
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Write data that carries its address and write number, and check every read
    #[arg(long)]
    verify: bool,
}

/// A seed, or a different one for each run.
#[derive(Clone, Copy, Debug)]
pub enum Seed {
    /// This seed.
    Number(u64),
    /// A different seed for each run.
    Random,
}

impl FromStr for Seed {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Seed, Self::Err> {
        if text == "random" { Ok(Seed::Random) } else { text.parse().map(Seed::Number) }
    }
}

impl Seed {
    pub fn number(self) -> u64 {
        match self {
            Seed::Number(number) => number,
            Seed::Random => std::process::id().into(),
        }
    }
}

/// A time in seconds: `10`, `0.5`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is not a valid time"))
}

impl PatternArgs {
    /// The pattern, with default threads and depth.
    pub fn workload(&self) -> Workload {
        let block = u32::try_from(self.block.0).unwrap_or(u32::MAX);
        let step = |size: Option<Size>| size.map_or(u64::from(block), |size| size.0);
        // As with DISKSPD, -r overrides -s.
        let access = match (self.random, self.sequential) {
            (Some(align), _) => Access::Random { align: step(align) },
            (None, None) if !self.distribution.is_empty() => Access::Random { align: step(None) },
            (None, stride) => {
                Access::Sequential { stride: step(stride.flatten()), interlocked: self.interlocked }
            }
        };
        Workload {
            block,
            write_percent: self.write,
            access,
            shares: self.distribution.clone(),
            base: self.base.0,
            span: self.span.map(|span| span.0),
            thread_stride: self.thread_stride.0,
            write_through: self.write_through,
            content: self.data,
            verify: self.verify,
            seed: self.seed.number(),
            rate: self.rate,
            warm_up: self.warm_up,
            duration: self.duration,
            interval: self.interval.map(|interval| interval.as_secs_f64()),
            ..Workload::default()
        }
    }
}
