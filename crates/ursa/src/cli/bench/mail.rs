//! `ursa bench mail`.

use std::time::Duration;

use bench::record::{Analysis, Document};
use bench::{Content, Driver, MailProfile, Target};
use clap::Args;

use super::pattern::{Seed, seconds};
use super::progress::ProgressLine;
use super::results::{ResultArgs, command_line};
use super::setup::SetupArgs;
use crate::cli::exit::CliError;
use crate::cli::output::Output;
use crate::size::Size;

const EXAMPLES: &str = "\
Examples:
  ursa bench mail --users 2000 -d600 iscsi://10.0.0.7/iqn.2026-11.io.ursa:{db1,db2,log}/0
  ursa bench mail --users 5000 --tasks 94 --compress 20 -d120 --verify --precondition random --html mail.html /dev/sdb";

/// A mail server on one to three targets.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Mail {
    /// Two databases and a log, in this order. Of two targets the first is divided into the databases and the second is the log;
    /// one is divided into all three
    #[arg(required = true, num_args = 1..=3, value_name = "TARGET")]
    targets: Vec<Target>,
    /// Users
    #[arg(long, value_name = "N", default_value_t = 1000)]
    users: u32,
    /// Tasks of each user and day: 47 is called heavy, 94 double heavy; 131 are 80 mails received and read, 13 sent, 12 tasks with the
    /// calendar, 9 with contacts, 8 mails moved or deleted, 6 times folders browsed, 3 times logged on or off. Other numbers have
    /// the same shares
    #[arg(long, value_name = "N", default_value_t = 131)]
    tasks: u32,
    /// How long a day of work is, in hours
    #[arg(long, value_name = "HOURS", default_value = "8", value_parser = hours)]
    day: Duration,
    /// How many times faster than that a day passes: the rate is so many times as high
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    compress: f64,
    /// -d: seconds for which it is measured. The warm-up is part of it; how long it is, is found out
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    duration: Duration,
    /// -f: use so much of each target [default: all]
    #[arg(long, value_name = "SIZE")]
    span: Option<Size>,
    /// -z: the same seed makes the same tasks at the same times; -z alone takes another each time
    #[arg(long, value_name = "N", default_value = "0")]
    seed: Seed,
    /// What writes bring: random, zero, or compressible=PERCENT,dedup=PERCENT
    #[arg(long, value_name = "KIND", default_value = "random")]
    data: Content,
    /// Write pages that know their address and their write, and check every page that is read
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    results: ResultArgs,
}

fn hours(text: &str) -> Result<Duration, String> {
    let hours: f64 = text.parse().map_err(|_| format!("{text:?} is no number of hours"))?;
    Duration::try_from_secs_f64(hours * 3600.0).map_err(|_| format!("{text:?} is no time"))
}

impl Mail {
    /// Measures and reports.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, output: &Output) -> Result<(), CliError> {
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
        line.begin(format!("{:.1} tasks/s are due: ", profile.rate()));
        let (run, mail) = driver.run_mail(&profile, &mut |progress| line.show(progress))?;
        line.clear();
        let analysis = Analysis::Mail(Box::new(mail));
        let document = Document::new(command_line(), env!("CARGO_PKG_VERSION"), vec![run], Some(analysis));
        self.results.report(output, &document)
    }
}
