//! `ursa events`.

use std::collections::VecDeque;
use std::time::Duration;

use ::node::events::code::COPY_OUT_OF_SYNC;
use api::{Client, DiskRange, Event, EventsQuery, Missing, Severity};
use clap::{Args, ValueEnum};
use terms::clock::utc;
use terms::same_names::same_names;

use super::error::CliError;
use super::output::Output;
use super::table::{Table, list, say_missing};

/// How often a single node is polled.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The most events that it returns at once.
const PAGE: usize = 1000;
/// How often all nodes are polled: each sends its newest events again.
const ASK_ALL_EVERY: Duration = Duration::from_secs(2);
/// The most events that they return at once.
const PAGE_OF_ALL: usize = 200;
/// How many events of all nodes are remembered to detect repetitions.
///
/// Several pages, so that the events of a node that was unreachable for a while are known when it returns.
const TOLD_MAX: usize = 8 * PAGE_OF_ALL;

/// Which events.
#[derive(Args, Debug)]
pub struct Events {
    /// Number of events, newest last
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Events after this ID, of one node; 0: from the oldest that the node has
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Newest events up to this time, in seconds since 1970
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["after", "follow"])]
    until: Option<u64>,
    /// With --until: skip the newest N (paging)
    #[arg(long, value_name = "N", requires = "until")]
    skip: Option<usize>,
    /// Another node of the cluster, by number, or all
    #[arg(long, value_name = "NUMBER|all")]
    node: Option<String>,
    /// Only events about this subject: a volume, pool, host group, target or node, by its name at the time; a
    /// volume also by ID, whatever its name was
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Minimum severity
    #[arg(long, value_enum, value_name = "SEVERITY")]
    severity: Option<Least>,
    /// Follow new events until interrupted
    #[arg(long, short)]
    follow: bool,
}

/// How grave events are at least.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Least {
    /// All events
    Info,
    /// Needs attention
    Warning,
    /// Data or service is lost, or one fault away from it
    Critical,
}

same_names! {
    fn at_least(Least) -> Severity { Info, Warning, Critical }
}

impl Events {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let of_all = self.node.as_deref() == Some("all");
        let Events { limit, after, until, skip, node, subject, severity, follow } = self;
        let severity = severity.map(at_least);
        let query = EventsQuery { after, until, skip, limit: limit.into(), node, subject, severity };
        match (follow, of_all) {
            (true, true) => follow_all(client, query, output),
            (true, false) => follow_one(client, query, output),
            (false, _) => {
                let events = client.events(&query)?;
                if events.gap {
                    eprintln!("ursa: {}", gap());
                }
                output.show(&events, |events| table(&events.items, of_all))?;
                say_missing(&events.missing);
                Ok(())
            }
        }
    }
}

/// Follows one node, whose events have numbers: none is missed without a message.
fn follow_one(client: &Client, mut query: EventsQuery, output: &Output) -> Result<(), CliError> {
    let mut absent = Absent::default();
    loop {
        let events = client.events(&query)?;
        absent.say(events.missing);
        if events.gap {
            eprintln!("ursa: {}", gap());
        }
        for event in &events.items {
            output.line(event, line)?;
        }
        if events.items.is_empty() {
            std::thread::sleep(ASK_EVERY);
        }
        query = EventsQuery { after: events.next.or(query.after), limit: PAGE, ..query };
    }
}

/// Follows all nodes by polling their newest events, since each node has its own numbers.
fn follow_all(client: &Client, query: EventsQuery, output: &Output) -> Result<(), CliError> {
    let wanted = query.limit;
    let query = EventsQuery { limit: wanted.max(PAGE_OF_ALL), ..query };
    let (mut absent, mut told) = (Absent::default(), PrintedEvents::default());
    let mut oldest = None;
    loop {
        let events = client.events(&query)?;
        absent.say(events.missing);
        // While a node's events are missing, older ones of the others take their place: they are not new.
        let oldest = *oldest.get_or_insert(events.items.first().map_or(0, |event| event.at));
        let is_new = |event: &Event| event.at >= oldest && !told.has(event);
        let new: Vec<Event> = events.items.into_iter().filter(is_new).collect();
        let mut skipped = 0;
        if told.0.is_empty() {
            skipped = new.len().saturating_sub(wanted);
        } else if new.len() >= query.limit {
            eprintln!("ursa: some events are missing here: more happened than one request returns");
        }
        for (place, event) in new.into_iter().enumerate() {
            if place >= skipped {
                output.line(&event, line_of_nodes)?;
            }
            told.note(event);
        }
        std::thread::sleep(ASK_ALL_EVERY);
    }
}

/// The events shown last.
#[derive(Default)]
struct PrintedEvents(VecDeque<Event>);

impl PrintedEvents {
    fn note(&mut self, event: Event) {
        if self.0.len() >= TOLD_MAX {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    /// Whether the event was shown.
    ///
    /// An event of the cluster may come from another node this time: the first of those that report it.
    fn has(&self, event: &Event) -> bool {
        self.0.iter().rev().any(|told| told.is_same_as(event))
    }
}

/// The nodes that do not respond.
#[derive(Default)]
struct Absent(Vec<u16>);

impl Absent {
    /// Reports nodes that do not respond, once per absence.
    fn say(&mut self, missing: Vec<Missing>) {
        let nodes = missing.iter().map(|one| one.node).collect();
        let new: Vec<Missing> = missing.into_iter().filter(|one| !self.0.contains(&one.node)).collect();
        say_missing(&new);
        self.0 = nodes;
    }
}

fn gap() -> &'static str {
    "some events are missing here: the node was restarted, or had more events than it keeps"
}

/// Numbers belong to a single node: for events `of_all` nodes, the nodes that saw them take their place.
fn table(events: &[Event], of_all: bool) -> String {
    let mut table = Table::new(&["ID", "TIME", "SEEN BY", "SEVERITY", "CODE", "CAUSE", "NODE", "EVENT"]);
    for event in events {
        table.row([
            event.id.to_string(),
            utc(event.at),
            list(&event.seen_by, "-"),
            event.severity.to_string(),
            event.code.clone(),
            event.cause.clone().unwrap_or_else(|| "-".into()),
            event.node.map_or("-".into(), |node| node.to_string()),
            what(event),
        ]);
    }
    table.omit(if of_all { "ID" } else { "SEEN BY" });
    table.text("No matching events.")
}

/// The event's text, with the range that a disk could not read if the text does not name it.
fn what(event: &Event) -> String {
    let text = event.text.escape_debug();
    let Some(range) = event.range.as_deref().filter(|_| event.code == COPY_OUT_OF_SYNC.as_str()) else {
        return text.to_string();
    };
    let DiskRange { node, pool, disk, offset, len, lba, blocks } = range;
    let (pool, disk) = (pool.escape_debug(), disk.escape_debug());
    let lbas = if *blocks == 1 { format!("LBA {lba}") } else { format!("LBA {lba} to {}", lba + blocks - 1) };
    format!(
        "{text} (disk {disk} of pool {pool} on node {node}, bytes {offset} to {}, {lbas})",
        offset + len - 1
    )
}

fn line(event: &Event) -> String {
    let action = event.action.as_ref().map_or(String::new(), |action| format!(" ({action})"));
    format!("{} {} {}: {}{action}", utc(event.at), event.severity, event.code, what(event))
}

fn line_of_nodes(event: &Event) -> String {
    format!("{}, seen by {}", line(event), list(&event.seen_by, "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(seen_by: &[u16], id: u64, at: u64) -> Event {
        Event {
            id,
            at,
            severity: Severity::Critical,
            code: "node_lost".into(),
            cause: Some("silent".into()),
            subject: Some("san3".into()),
            subject_id: None,
            subject_node: Some(3),
            map: None,
            text: "node san3 is down: heartbeat timeout".into(),
            action: None,
            node: Some(3),
            revision: None,
            range: None,
            seen_by: seen_by.to_vec(),
        }
    }

    #[test]
    fn the_reporting_node_is_shown_if_there_are_several() {
        assert_eq!(
            table(&[lost(&[1, 2], 7, 1_800_000_000)], true),
            "TIME                  SEEN BY  SEVERITY  CODE       CAUSE   NODE  EVENT\n\
             2027-01-15 08:00:00Z  1, 2     critical  node_lost  silent  3     node san3 is down: heartbeat timeout\n"
        );
        assert_eq!(table(&[], true), "No matching events.\n");
        assert_eq!(
            line_of_nodes(&lost(&[1, 2], 7, 1_800_000_000)),
            "2027-01-15 08:00:00Z critical node_lost: node san3 is down: heartbeat timeout, seen by 1, 2"
        );
    }

    #[test]
    fn the_unreadable_range_is_shown_for_the_copy_that_leaves_because_of_it() {
        let range = DiskRange {
            node: 3,
            pool: "main".into(),
            disk: "/dev/sdb".into(),
            offset: 1_048_576,
            len: 4096,
            lba: 24,
            blocks: 8,
        };
        let text = "copy of volume db on san3 is out of sync".to_owned();
        let lost = Event {
            code: "copy_out_of_sync".into(),
            text,
            range: Some(Box::new(range)),
            ..lost(&[1], 7, 100)
        };
        assert_eq!(
            what(&lost),
            "copy of volume db on san3 is out of sync (disk /dev/sdb of pool main on node 3, bytes 1048576 to 1052671, LBA 24 to 31)"
        );
        // The text of this event names the range.
        assert_eq!(what(&Event { code: "read_failed".into(), ..lost.clone() }), lost.text);
        assert_eq!(what(&Event { range: None, ..lost.clone() }), lost.text);
    }

    #[test]
    fn repeated_events_are_shown_once() {
        let mut told = PrintedEvents::default();
        told.note(lost(&[1], 7, 100));
        assert!(told.has(&lost(&[1, 2], 7, 100)));
        assert!(told.has(&lost(&[2, 1], 90, 99)), "node 2 says that it was earlier");
        assert!(!told.has(&lost(&[1], 8, 106)), "again");
        assert!(!told.has(&lost(&[2], 91, 111)), "later");
        let of_record = |node: u16, at| Event { revision: Some(5), ..lost(&[node], 8, at) };
        assert!(!told.has(&of_record(1, 100)));
        told.note(of_record(1, 100));
        assert!(told.has(&of_record(2, 900)), "it was cut off");
        let own = |node: u16| Event { node: None, ..lost(&[node], 9, 100) };
        told.note(own(1));
        assert!(!told.has(&own(2)));
        for id in 0..2 * TOLD_MAX as u64 {
            told.note(lost(&[1], id, 200));
        }
        assert_eq!(told.0.len(), TOLD_MAX);
    }
}
