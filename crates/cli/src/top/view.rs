//! What is shown of a frame, in which order, and how keys change that.

use std::cmp::Ordering;

use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::table::age;
use super::frame::{CopyRow, CoreRow, Frame, PathRow, VolumeRow};

/// A table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum View {
    /// Volumes: load through this node
    #[default]
    Volumes,
    /// Copies: sync state and resync progress
    Copies,
    /// Paths: sessions of initiators
    Paths,
    /// Cores: load of each
    Cores,
}

impl View {
    pub(super) const ALL: [View; 4] = [View::Volumes, View::Copies, View::Paths, View::Cores];

    pub(super) fn name(self) -> &'static str {
        match self {
            View::Volumes => "volumes",
            View::Copies => "copies",
            View::Paths => "paths",
            View::Cores => "cores",
        }
    }
}

/// The state of the display.
#[derive(Clone, Debug)]
pub(super) struct Views {
    pub(super) shown: View,
    /// The sort column of each view, and whether the order is reversed.
    orders: [(usize, bool); 4],
    /// The first row shown.
    pub(super) first: usize,
    pub(super) paused: bool,
}

/// What a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Stay,
    Leave,
}

/// The style of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// The row shows a problem that is resolved automatically.
    Working,
    /// The row needs attention.
    Bad,
}

/// A table that is ready to be drawn.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) titles: Vec<&'static str>,
    /// Which columns are right-aligned: numbers.
    pub(super) right: Vec<bool>,
    pub(super) rows: Vec<(Vec<String>, Tone)>,
    /// The sort column, and whether the order is reversed.
    pub(super) order: (usize, bool),
    /// The text shown if there are no rows.
    pub(super) none: &'static str,
}

struct Column<R> {
    title: &'static str,
    number: bool,
    text: fn(&R) -> String,
    /// Numbers are sorted from the largest, names alphabetically.
    order: fn(&R, &R) -> Ordering,
}

impl Views {
    /// The default order of each view has first what users look for: the busiest, or what is not healthy.
    pub(super) fn new(shown: View) -> Views {
        Views { shown, orders: [(1, false), (2, false), (5, false), (0, false)], first: 0, paused: false }
    }

    /// Handles a key. The screen shows `rows` of `all` rows.
    pub(super) fn press(&mut self, key: KeyEvent, rows: usize, all: usize) -> KeyAction {
        let columns = self.columns();
        let (column, reversed) = self.orders[self.shown as usize];
        let order = &mut self.orders[self.shown as usize];
        let last = all.saturating_sub(rows);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Leave,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return KeyAction::Leave,
            KeyCode::Char('v' | '1') => self.show(View::Volumes),
            KeyCode::Char('c' | '2') => self.show(View::Copies),
            KeyCode::Char('p' | '3') => self.show(View::Paths),
            KeyCode::Char('o' | '4') => self.show(View::Cores),
            KeyCode::Tab => self.show(View::ALL[(self.shown as usize + 1) % View::ALL.len()]),
            KeyCode::BackTab => self.show(View::ALL[(self.shown as usize + 3) % View::ALL.len()]),
            KeyCode::Char('s' | '>') | KeyCode::Right => *order = ((column + 1) % columns, false),
            KeyCode::Char('<') | KeyCode::Left => *order = ((column + columns - 1) % columns, false),
            KeyCode::Char('r') => *order = (column, !reversed),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Down => self.first = (self.first + 1).min(last),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first = (self.first + rows).min(last),
            KeyCode::PageUp => self.first = self.first.saturating_sub(rows),
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = last,
            _ => {}
        }
        KeyAction::Stay
    }

    fn show(&mut self, view: View) {
        self.shown = view;
        self.first = 0;
    }

    fn columns(&self) -> usize {
        match self.shown {
            View::Volumes => VOLUMES.len(),
            View::Copies => COPIES.len(),
            View::Paths => PATHS.len(),
            View::Cores => CORES.len(),
        }
    }

    /// The table of the current view.
    pub(super) fn grid(&self, frame: &Frame) -> Grid {
        let order = self.orders[self.shown as usize];
        match self.shown {
            View::Volumes => {
                let tone = |row: &VolumeRow| match (row.serving, row.copies_in_sync < row.copies) {
                    (false, _) => Tone::Bad,
                    (true, true) => Tone::Working,
                    (true, false) => Tone::Plain,
                };
                grid(&VOLUMES, &frame.volumes, order, tone, "No volumes.")
            }
            View::Copies => {
                let tone = |row: &CopyRow| match (row.state.as_str(), row.waits || row.done.is_none()) {
                    ("in_sync", _) => Tone::Plain,
                    (_, false) => Tone::Working,
                    (_, true) => Tone::Bad,
                };
                grid(&COPIES, &frame.copies, order, tone, "No volume has copies on several nodes.")
            }
            View::Paths => grid(&PATHS, &frame.paths, order, |_| Tone::Plain, "No sessions."),
            View::Cores => grid(&CORES, &frame.cores, order, |_| Tone::Plain, "No cores reported."),
        }
    }
}

fn grid<R: Clone>(
    columns: &[Column<R>],
    rows: &[R],
    (by, reversed): (usize, bool),
    tone: impl Fn(&R) -> Tone,
    none: &'static str,
) -> Grid {
    let mut rows = rows.to_vec();
    // The sort is stable: equal rows stay in the order of their names.
    rows.sort_by(|a, b| {
        let order = (columns[by].order)(a, b);
        if reversed { order.reverse() } else { order }
    });
    Grid {
        titles: columns.iter().map(|column| column.title).collect(),
        right: columns.iter().map(|column| column.number).collect(),
        rows: rows
            .iter()
            .map(|row| (columns.iter().map(|column| (column.text)(row)).collect(), tone(row)))
            .collect(),
        order: (by, reversed),
        none,
    }
}

/// A column of names.
macro_rules! name {
    ($title:literal, $field:ident) => {
        Column {
            title: $title,
            number: false,
            text: |row| row.$field.to_string(),
            order: |a, b| a.$field.cmp(&b.$field),
        }
    };
}

/// A column of numbers, sorted from the largest.
macro_rules! number {
    ($title:literal, $shown:ident, |$row:ident| $value:expr) => {
        Column {
            title: $title,
            number: true,
            text: |$row| $shown($value),
            order: |a, b| {
                let [a, b] = [a, b].map(|$row| f64::from_value($value));
                b.total_cmp(&a)
            },
        }
    };
}

/// Values that are compared as numbers; absent ones are smaller than all others.
trait FromValue<T> {
    fn from_value(value: T) -> f64;
}

impl FromValue<f64> for f64 {
    fn from_value(value: f64) -> f64 {
        value
    }
}

impl FromValue<Option<f64>> for f64 {
    fn from_value(value: Option<f64>) -> f64 {
        value.unwrap_or(-1.0)
    }
}

static VOLUMES: [Column<VolumeRow>; 9] = [
    name!("VOLUME", volume),
    Column {
        title: "IOPS",
        number: true,
        text: |row| count(row.reads + row.writes),
        order: |a, b| (b.reads + b.writes).total_cmp(&(a.reads + a.writes)),
    },
    number!("READS", count, |row| row.reads),
    number!("WRITES", count, |row| row.writes),
    number!("READ/S", bytes, |row| row.bytes_read),
    number!("WRITTEN/S", bytes, |row| row.bytes_written),
    number!("READ", latency, |row| row.read_seconds),
    number!("WRITE", latency, |row| row.write_seconds),
    number!("P99", latency, |row| row.p99_seconds),
];

static COPIES: [Column<CopyRow>; 8] = [
    name!("VOLUME", volume),
    name!("NODE", node),
    Column {
        title: "STATE",
        number: false,
        text: |row| state(&row.state).into(),
        // Copies that are not in sync come first.
        order: |a, b| (a.state == "in_sync").cmp(&(b.state == "in_sync")),
    },
    number!("DONE", percent, |row| row.done),
    number!("LEFT", bytes_left, |row| row.bytes_left),
    number!("RATE/S", bytes_left, |row| row.bytes_per_second),
    number!("TO GO", time, |row| row.seconds_left),
    Column {
        title: "CAUSE",
        number: false,
        text: |row| if row.waits { format!("WAITING; {}", row.cause) } else { row.cause.clone() },
        order: |a, b| a.cause.cmp(&b.cause),
    },
];

static PATHS: [Column<PathRow>; 8] = [
    name!("INITIATOR", initiator),
    name!("FROM", from),
    name!("TARGET", target),
    Column {
        title: "CORE",
        number: false,
        text: |row| core(row.node, u32::from(row.core)),
        order: |a, b| (a.node, a.core).cmp(&(b.node, b.core)),
    },
    Column { title: "AGE", number: true, text: |row| age(row.age), order: |a, b| b.age.cmp(&a.age) },
    number!("COMMANDS", count, |row| row.commands),
    number!("RECEIVED/S", bytes, |row| row.bytes_received),
    number!("SENT/S", bytes, |row| row.bytes_sent),
];

static CORES: [Column<CoreRow>; 5] = [
    Column {
        title: "CORE",
        number: false,
        text: |row| core(row.node, row.core),
        order: |a, b| (a.node, a.core).cmp(&(b.node, b.core)),
    },
    number!("BUSY", share, |row| row.busy),
    number!("POLLING", share, |row| row.polling),
    number!("ENTERS/S", known, |row| row.enters),
    number!("COMPLETIONS/S", known, |row| row.completions),
];

/// A copy's state in words; a state unknown to this version is shown unchanged.
fn state(state: &str) -> &str {
    match state {
        "in_sync" => "in sync",
        "catching_up" => "catching up",
        "out_of_sync" => "out of sync",
        other => other,
    }
}

/// A core's number, with its node's if several nodes are shown.
fn core(node: Option<u16>, core: u32) -> String {
    node.map_or_else(|| core.to_string(), |node| format!("{node}:{core}"))
}

fn known(value: Option<f64>) -> String {
    value.map_or("-".into(), count)
}

/// Operations per second, with about three digits.
pub(super) fn count(value: f64) -> String {
    match value {
        value if value < 0.05 => "0".into(),
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 9_999.5 => format!("{value:.0}"),
        value if value < 999_500.0 => format!("{:.1}k", value / 1e3),
        value => format!("{:.2}M", value / 1e6),
    }
}

/// Bytes, with about three digits and a binary suffix.
pub(super) fn bytes(value: f64) -> String {
    let (mut value, mut units) = (value.max(0.0).round(), ["", "K", "M", "G", "T", "P"].iter());
    let mut unit = units.next();
    while value >= 1023.5 && units.len() > 0 {
        (value, unit) = (value / 1024.0, units.next());
    }
    let digits = if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{}{}", digits.strip_suffix(".0").unwrap_or(&digits), unit.copied().unwrap_or_default())
}

fn bytes_left(value: Option<f64>) -> String {
    value.map_or("-".into(), bytes)
}

fn latency(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 0.9995e-3 => format!("{:.0}us", value * 1e6),
        Some(value) if value < 0.09995 => format!("{:.1}ms", value * 1e3),
        Some(value) if value < 0.9995 => format!("{:.0}ms", value * 1e3),
        Some(value) => format!("{value:.1}s"),
    }
}

fn time(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| age(value.max(0.0) as u64))
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{:.0} %", (value * 100.0).floor()))
}

fn share(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}
