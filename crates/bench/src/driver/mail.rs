//! Runs of the simulated mail server.

use std::sync::Arc;
use std::time::Duration;

use super::cores::{Cores, run_on};
use super::recording::record;
use super::{Driver, Layout, Observer, Watch};
use crate::engine::{Gauge, conduct_mail};
use crate::mail::MailProfile;
use crate::record::{Direction, Mail, Run};
use crate::{Error, Setup};

impl Driver {
    /// Like [`Driver::prepare`], for [`Driver::run_mail`].
    pub fn prepare_mail(setup: Setup, profile: &MailProfile, watch: Watch<'_>) -> Result<Driver, Error> {
        profile.check()?;
        Driver::prepare(setup, &[profile.workload()], watch)
    }

    /// Runs a mail server on one to three targets: see [`Role`](crate::Role).
    ///
    /// The run's figures cover all its requests from the time at which the server became steady.
    ///
    /// # Errors
    /// As for [`Driver::run`].
    pub fn run_mail(&mut self, profile: &MailProfile, watch: Watch<'_>) -> Result<(Run, Mail), Error> {
        profile.check()?;
        let workload = profile.workload();
        let cores = Cores::new(1, self.setup.processors.as_deref());
        let plan = self.plan(&workload, Layout::new(self.places.len(), 1, 1));
        let (gauge, phases) = Gauge::new(1);
        let gauge = Arc::new(gauge);
        let mut observer = Observer::new(Arc::clone(&gauge), phases, &self.servers, &workload);
        let conducting = profile.clone();
        let conducted = run_on(cores, &mut observer, watch, move || conduct_mail(plan, conducting, gauge))?;
        let outcome = conducted.map_err(|error| Error::of_run(error, &self.setup.targets))?;
        let mut run = record(self, &workload, &outcome.outcome, observer);
        let (mail, [reads, writes]) = Mail::of(profile, &outcome, &run.subjects);
        (run.name, run.letters) = (profile.title(), profile.letters());
        run.seconds = mail.to - mail.from;
        let mut both = reads.clone();
        both.merge(&writes);
        let counted = Duration::from_secs_f64(run.seconds);
        [run.reads, run.writes, run.total] =
            [&reads, &writes, &both].map(|direction| Direction::new(direction, counted));
        self.written();
        Ok((run, mail))
    }
}
