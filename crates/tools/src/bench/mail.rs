//! `ursa bench mail`.

use std::time::Duration;

use bench::record::Analysis;
use bench::{Content, Driver, MailProfile, Target};
use clap::Args;
use cli::Output;
use terms::size::Size;

use super::pattern::{Seed, seconds};
use super::progress::ProgressLine;
use super::results::ResultArgs;
use super::setup::SetupArgs;
use crate::error::ToolError;

const EXAMPLES: &str = "\
Examples:
  ursa bench mail --users 2000 -d600 iscsi://10.0.0.7/iqn.2026-11.io.ursa:{db1,db2,log}/0
  ursa bench mail --users 5000 --tasks 94 --compress 20 -d120 --verify --precondition random --html mail.html /dev/sdb";

/// A mail server on one to three targets.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Mail {
    /// Two databases and a log, in this order; of two targets, the first is split into the databases and the
    /// second is the log; one is split into all three
    #[arg(required = true, num_args = 1..=3, value_name = "TARGET")]
    targets: Vec<Target>,
    /// Number of users
    #[arg(long, value_name = "N", default_value_t = 1000)]
    users: u32,
    /// Tasks per user and day: 47 is called heavy, 94 double heavy; 131 are 80 mails received and read, 13
    /// sent, 12 calendar tasks, 9 contact tasks, 8 mails moved or deleted, 6 folder listings, 3 logons or
    /// logoffs; other numbers keep these shares
    #[arg(long, value_name = "N", default_value_t = 131)]
    tasks: u32,
    /// Length of a working day, in hours
    #[arg(long, value_name = "HOURS", default_value = "8", value_parser = hours)]
    day: Duration,
    /// Speed-up of the day: multiplies the task rate by FACTOR
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    compress: f64,
    /// -d: run time in seconds, including an auto-sized warm-up
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    duration: Duration,
    /// -f: size of the part of each target to use [default: all]
    #[arg(long, value_name = "SIZE")]
    span: Option<Size>,
    /// -z: seed; the same seed gives the same tasks at the same times; -z alone uses a random seed
    #[arg(long, value_name = "N", default_value = "0")]
    seed: Seed,
    /// Data to write: random, zero, or compressible=PERCENT,dedup=PERCENT
    #[arg(long, value_name = "KIND", default_value = "random")]
    data: Content,
    /// Write pages that carry their address and write number, and check every page read
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    results: ResultArgs,
}

fn hours(text: &str) -> Result<Duration, String> {
    let hours: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of hours"))?;
    Duration::try_from_secs_f64(hours * 3600.0).map_err(|_| format!("{text:?} is not a valid time"))
}

impl Mail {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let profile = MailProfile {
            users: self.users,
            tasks: self.tasks,
            day: self.day,
            compression: self.compress,
            duration: self.duration,
            span: self.span.map(|span| span.0),
            content: self.data,
            verify: self.verify,
            seed: self.seed.number(),
        };
        let setup = self.setup.setup(self.targets)?;
        self.results.check()?;
        let mut line = ProgressLine::start();
        let mut driver = Driver::prepare_mail(setup, &profile, &mut |progress| line.show(progress))?;
        line.begin(format!("{:.1} tasks/s due: ", profile.rate()));
        let (run, mail) = driver.run_mail(&profile, &mut |progress| line.show(progress))?;
        line.clear();
        self.results.record(output, vec![run], Some(Analysis::Mail(Box::new(mail))))
    }
}
