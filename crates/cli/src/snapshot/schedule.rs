//! `ursa snapshot schedule`.

use std::time::Duration;

use api::{Client, SnapshotSchedule, SnapshotScheduleChange, SnapshotScheduleCreate};
use clap::{Args, Subcommand};
use terms::clock::{unix_now, utc};

use super::super::confirm::Confirm;
use super::super::error::CliError;
use super::super::output::Output;
use super::super::table::{Table, age, fields, list};
use crate::duration::parse_duration;

/// What to do with schedules.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a schedule: take snapshots of one or several log volumes at an interval
    ///
    /// Each snapshot has all of the volumes, at one point in time, and is called NAME-TIME. A snapshot is
    /// kept if one of --keep, --daily, --weekly and --monthly keeps it; others that the schedule has taken
    /// are deleted, except those on hold. Days and weeks are those of UTC.
    Create {
        /// Name of the schedule
        schedule: String,
        /// Volumes, separated by commas
        #[arg(long, required = true, value_name = "VOLUME", value_delimiter = ',')]
        volumes: Vec<String>,
        /// Interval, in whole minutes: 15m, 1h, 1d
        #[arg(long, value_parser = parse_duration, value_name = "TIME")]
        every: Duration,
        #[command(flatten)]
        kept: Kept,
    },
    /// List schedules
    List,
    /// Show a schedule: what it keeps, its last snapshot, and why it could not take one
    Show {
        /// Schedule name
        schedule: String,
    },
    /// Change the volumes of a schedule, its interval, or what it keeps
    ///
    /// What it does not keep any more is deleted after its next snapshot.
    Change {
        /// Schedule name
        schedule: String,
        /// All of its volumes, separated by commas
        #[arg(long, value_name = "VOLUME", value_delimiter = ',')]
        volumes: Vec<String>,
        /// Interval, in whole minutes: 15m, 1h, 1d
        #[arg(long, value_parser = parse_duration, value_name = "TIME")]
        every: Option<Duration>,
        #[command(flatten)]
        kept: Kept,
    },
    /// Pause a schedule: it takes and deletes no snapshots until it is resumed
    Pause {
        /// Schedule name
        schedule: String,
    },
    /// Resume a schedule that is paused
    Resume {
        /// Schedule name
        schedule: String,
    },
    /// Delete a schedule; its snapshots stay
    Delete {
        /// Schedule name
        schedule: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// Which snapshots are kept.
#[derive(Args, Debug)]
pub struct Kept {
    /// Keep this number of the latest snapshots
    #[arg(long, value_name = "NUMBER")]
    keep: Option<u32>,
    /// Keep the last snapshot of each day, for this number of days
    #[arg(long, value_name = "NUMBER")]
    daily: Option<u32>,
    /// Keep the last snapshot of each week, for this number of weeks
    #[arg(long, value_name = "NUMBER")]
    weekly: Option<u32>,
    /// Keep the last snapshot of each month, for this number of months
    #[arg(long, value_name = "NUMBER")]
    monthly: Option<u32>,
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { schedule, volumes, every, kept } => {
                let Kept { keep, daily, weekly, monthly } = kept;
                let counts = [keep, daily, weekly, monthly];
                let [keep, daily, weekly, monthly] = counts.map(Option::unwrap_or_default);
                let (name, every) = (schedule, every.as_secs());
                let create = SnapshotScheduleCreate { name, volumes, every, keep, daily, weekly, monthly };
                output.show(&client.create_snapshot_schedule(&create)?, |created| {
                    format!("Schedule {} created. {}", created.name, will_take(created))
                })
            }
            Command::List => output.show(&client.snapshot_schedules()?, |all| table(all)),
            Command::Show { schedule } => output.show(&client.snapshot_schedule(&schedule)?, shown),
            Command::Change { schedule, volumes, every, kept } => {
                let Kept { keep, daily, weekly, monthly } = kept;
                let change = SnapshotScheduleChange {
                    volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
                    every: every.map(|every| every.as_secs()),
                    keep,
                    daily,
                    weekly,
                    monthly,
                    paused: None,
                };
                output.show(&client.change_snapshot_schedule(&schedule, &change)?, |changed| {
                    format!("Schedule {} changed. {}", changed.name, will_take(changed))
                })
            }
            Command::Pause { schedule } => set_paused(client, output, &schedule, true),
            Command::Resume { schedule } => set_paused(client, output, &schedule, false),
            Command::Delete { schedule, confirm } => {
                let what = format!("Delete schedule {schedule}");
                let done = format!("Schedule {schedule} deleted. Its snapshots stay.");
                confirm
                    .done(client, output, &what, &done, |client| client.delete_snapshot_schedule(&schedule))
            }
        }
    }
}

fn set_paused(client: &Client, output: &Output, schedule: &str, paused: bool) -> Result<(), CliError> {
    let change = SnapshotScheduleChange { paused: Some(paused), ..SnapshotScheduleChange::default() };
    let changed = client.change_snapshot_schedule(schedule, &change)?;
    output.show(&changed, |changed| match changed.paused {
        true => format!("Schedule {} is paused: it takes and deletes no snapshots.\n", changed.name),
        false => format!("Schedule {} is active. {}", changed.name, will_take(changed)),
    })
}

fn will_take(schedule: &SnapshotSchedule) -> String {
    match schedule.next {
        Some(next) => format!("Next snapshot of {}: {}.\n", list(&schedule.volumes, "-"), utc(next)),
        None => "It is paused.\n".into(),
    }
}

fn table(schedules: &[SnapshotSchedule]) -> String {
    let mut table =
        Table::new(&["NAME", "VOLUMES", "EVERY", "KEEPS", "SNAPSHOTS", "LAST SUCCESS", "NEXT", "STATE"]);
    for schedule in schedules {
        table.row([
            schedule.name.clone(),
            list(&schedule.volumes, "-"),
            interval(schedule.every),
            keeps(schedule),
            schedule.snapshots.to_string(),
            schedule.last_success.map_or("-".into(), utc),
            schedule.next.map_or("-".into(), utc),
            state(schedule).into(),
        ]);
    }
    table.text("No schedules. Create one with `ursa snapshot schedule create`.")
}

fn shown(schedule: &SnapshotSchedule) -> String {
    let next = match schedule.next {
        None => "none, the schedule is paused".into(),
        Some(next) if next <= unix_now() => format!("due since {}", utc(next)),
        Some(next) => utc(next),
    };
    let last = match (&schedule.last_snapshot, schedule.last_success) {
        (Some(name), Some(at)) => format!("{name}, {}", utc(at)),
        _ => "-".into(),
    };
    fields([
        ("Name", schedule.name.clone()),
        ("State", state(schedule).into()),
        ("Volumes", list(&schedule.volumes, "-")),
        ("Every", interval(schedule.every)),
        ("Keeps", keeps(schedule)),
        ("Snapshots", schedule.snapshots.to_string()),
        ("Created", utc(schedule.created)),
        ("Last snapshot", last),
        ("Next snapshot", next),
        ("Missed", schedule.missed_since.map_or("-".into(), |since| format!("since {}", utc(since)))),
        ("Problem", schedule.problem.clone().unwrap_or_else(|| "-".into())),
    ])
}

fn state(schedule: &SnapshotSchedule) -> &'static str {
    match (schedule.paused, schedule.missed_since, &schedule.problem) {
        (true, _, _) => "paused",
        (false, Some(_), _) => "MISSED",
        (false, None, Some(_)) => "retrying",
        (false, None, None) => "active",
    }
}

/// An interval as it is written: `15m`, `1h`, `7d`.
fn interval(seconds: u64) -> String {
    match seconds {
        0 => age(0),
        _ if seconds.is_multiple_of(86_400) => format!("{}d", seconds / 86_400),
        _ if seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => age(seconds),
    }
}

fn keeps(schedule: &SnapshotSchedule) -> String {
    let SnapshotSchedule { keep, daily, weekly, monthly, .. } = schedule;
    let rules = [(keep, "latest"), (daily, "daily"), (weekly, "weekly"), (monthly, "monthly")];
    list(rules.iter().filter(|(count, _)| **count > 0).map(|(count, rule)| format!("{count} {rule}")), "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hourly() -> SnapshotSchedule {
        SnapshotSchedule {
            name: "hourly".into(),
            volumes: vec!["db".into(), "logs".into()],
            every: 3_600,
            keep: 24,
            daily: 7,
            weekly: 0,
            monthly: 12,
            paused: false,
            created: 1_795_348_984,
            next: Some(1_795_352_400),
            snapshots: 31,
            last_snapshot: Some("hourly-2026-11-22T12.00.01Z".into()),
            last_success: Some(1_795_348_801),
            missed_since: None,
            problem: None,
        }
    }

    #[test]
    fn a_list_says_what_each_schedule_keeps_and_when_it_has_succeeded() {
        let text = table(&[hourly()]);
        let row = text.lines().nth(1).unwrap();
        let cells = ["hourly", "db, logs", "1h", "24 latest, 7 daily, 12 monthly", "31"];
        for cell in cells.into_iter().chain(["2026-11-22 12:00:01Z", "2026-11-22 13:00:00Z", "active"]) {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        assert!(table(&[]).contains("ursa snapshot schedule create"));
    }

    #[test]
    fn a_schedule_says_why_it_could_not_take_a_snapshot() {
        let problem = Some("node 2 does not respond".into());
        let retrying = SnapshotSchedule { problem, ..hourly() };
        assert_eq!(state(&retrying), "retrying");
        let missed = SnapshotSchedule { missed_since: Some(1_795_348_800), ..retrying };
        let text = shown(&missed);
        for part in ["MISSED", "since 2026-11-22 12:00:00Z", "node 2 does not respond"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let paused = SnapshotSchedule { paused: true, next: None, ..hourly() };
        assert_eq!((state(&paused), will_take(&paused).as_str()), ("paused", "It is paused.\n"));
    }

    #[test]
    fn intervals_are_shown_as_they_are_written() {
        for (seconds, text) in [(900, "15m"), (3_600, "1h"), (5_400, "90m"), (86_400, "1d"), (604_800, "7d")]
        {
            assert_eq!(interval(seconds), text);
        }
    }
}
