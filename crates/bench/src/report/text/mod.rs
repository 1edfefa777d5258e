//! Records as text.

mod columns;
mod copies;
mod fleet;
mod mail;
mod series;

pub(crate) use copies::{HEAD as COPIES_HEAD, row as copies_row};
pub(crate) use mail::{TASK_HEAD, VOLUME_HEAD, task_row, volume_rows};
pub(crate) use series::verdict;

use std::fmt::Write;

use crate::record::{Analysis, Ceiling, Cpu, Direction, Document, Ending, Loss, Noise, Process, Run};
use crate::{Disks, grouped};

/// Whether and how text is bold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Never.
    Plain,
    /// With the control sequences of terminals.
    Terminal,
}

impl Style {
    pub(crate) fn bold(self, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Terminal => format!("\x1b[1m{text}\x1b[0m"),
        }
    }

    /// Text that must not be overlooked.
    pub(crate) fn alarm(self, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Terminal => format!("\x1b[1;31m{text}\x1b[0m"),
        }
    }
}

/// A whole record.
pub fn document(document: &Document, style: Style) -> String {
    let runs = document.runs.as_slice();
    match &document.analysis {
        None => runs.iter().map(|one| run(one, style)).collect::<Vec<_>>().join("\n"),
        Some(Analysis::Sweep(sweep)) => series::sweep(sweep, runs, style),
        Some(Analysis::Pack(pack)) => series::pack(pack, runs, style),
        Some(Analysis::Compare(compare)) => series::compare(compare, style),
        Some(Analysis::Fleet(fleet)) => fleet::fleet(fleet, runs, style),
        Some(Analysis::Copies(of)) => copies::copies(of, runs, style),
        Some(Analysis::Mail(mail)) => runs.iter().map(|run| mail::mail(mail, run, style)).collect(),
    }
}

/// A run: figures, CPU times, noise, and failures.
pub fn run(run: &Run, style: Style) -> String {
    let mut text = String::new();
    let targets: Vec<String> = run.subjects.iter().map(|subject| subject.target.to_string()).collect();
    let head = format!("{}, {} x {}", run.name, run.workload.threads, run.workload.depth);
    line(&mut text, &format!("{} on {}", style.bold(&head), targets.join(", ")));
    line(&mut text, &format!("{}, measured for {:.1} s", run.letters, run.seconds));
    line(&mut text, "");
    text.push_str(&figures(run));
    line(&mut text, "");
    if let Some(cpu) = &run.cpu {
        text.push_str(&cpu_lines(cpu));
    }
    if let Some(noise) = noise_line(&run.noise) {
        line(&mut text, &format!("Noise   {noise}"));
    }
    if let Some(check) = &run.check {
        let (checked, unchecked) = (grouped(check.checked as f64), grouped(check.unchecked as f64));
        line(&mut text, &format!("Verify  {checked} reads checked, {unchecked} could not be"));
    }
    if let Some(ceiling) = &run.ceiling {
        line(&mut text, &ceiling_line(ceiling));
    }
    for note in &run.notes {
        line(&mut text, &format!("Note    {note}"));
    }
    text.push_str(&losses(&run.ending, style));
    text
}

/// The failures, if any, in order of time.
pub(crate) fn losses(ending: &Ending, style: Style) -> String {
    let mut text = String::new();
    let Some(first) = ending.losses.first() else {
        if !ending.complete {
            line(&mut text, &style.alarm("The run was stopped early."));
        }
        return text;
    };
    let what = if first.wrong_data { "WRONG DATA" } else { "LOST" };
    line(&mut text, &style.alarm(&format!("{what}: {} after {:.1} s", first.target, first.at)));
    line(&mut text, &format!("  {}: {}", first.request, first.reason));
    if let Some(answer) = last_answer(&ending.losses) {
        line(&mut text, &format!("  Last response after {answer:.3} s."));
    }
    let (reads, writes) = (ending.unanswered_reads, ending.unanswered_writes);
    if reads + writes > 0 {
        let writes_text = match writes {
            0 => String::new(),
            _ => "; it is unknown whether these writes took effect".to_owned(),
        };
        line(&mut text, &format!("  Unanswered: {reads} reads and {writes} writes{writes_text}."));
    }
    if ending.losses.len() > 1 {
        line(&mut text, &format!("  {} threads failed in total.", ending.losses.len()));
    }
    line(&mut text, "  Figures cover the time before the failure.");
    text
}

fn last_answer(losses: &[Loss]) -> Option<f64> {
    losses.iter().filter_map(|loss| loss.last_answer).max_by(f64::total_cmp)
}

fn figures(run: &Run) -> String {
    let names = ["p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
    let mut text = format!("{:<6}{:>12}{:>10}{:>10}", "", "IOPS", "MB/s", "mean µs");
    names.iter().for_each(|name| write!(text, "{:>10}", format!("{name} µs")).expect("a string takes all"));
    text.push('\n');
    let mixed = run.reads.requests > 0 && run.writes.requests > 0;
    for (name, direction) in [("read", &run.reads), ("write", &run.writes), ("total", &run.total)] {
        if direction.latency.is_none() || (name == "total" && !mixed) {
            continue;
        }
        line(&mut text, &figures_of(name, direction));
    }
    text
}

fn figures_of(name: &str, direction: &Direction) -> String {
    let latency = direction.latency.clone().unwrap_or_default();
    let mut text = format!("{name:<6}{:>12}{:>10}", grouped(direction.iops), short(direction.mb_per_s));
    write!(text, "{:>10}", short(latency.mean_us)).expect("a string takes all");
    for (_, micros) in latency.shown() {
        write!(text, "{:>10}", short(micros)).expect("a string takes all");
    }
    text
}

/// A number with a decimal place where that is significant.
pub(crate) fn short(number: f64) -> String {
    if number.abs() < 1000.0 { format!("{number:.1}") } else { grouped(number) }
}

fn cpu_lines(cpu: &Cpu) -> String {
    let mut text = String::new();
    let process = |process: &Process| {
        let Process { us_per_request, percent, name, pid, .. } = process;
        format!("{us_per_request:.2} µs CPU per request, {percent:.0} % of a CPU ({name}, pid {pid})")
    };
    line(&mut text, &format!("Client  {}", process(&cpu.client)));
    for server in &cpu.servers {
        line(&mut text, &format!("Server  {}", process(server)));
    }
    for server in &cpu.servers {
        let disk = server.disk.map_or_else(String::new, |disk| disk.line());
        if !disk.is_empty() {
            line(&mut text, &format!("Disks   {disk} ({}, pid {})", server.name, server.pid));
        }
    }
    text
}

pub(crate) fn ceiling_line(ceiling: &Ceiling) -> String {
    let Disks { raw, disks, copies } = ceiling.disks;
    let one = |rate: Option<f64>| rate.map_or("-".to_owned(), grouped);
    format!(
        "Ceiling {} IOPS, of which this is {:.0} %: {disks} disks of {} read, {} write IOPS; {copies} copies",
        grouped(ceiling.iops),
        ceiling.percent,
        one(raw.reads),
        one(raw.writes),
    )
}

pub(crate) fn noise_line(noise: &Noise) -> Option<String> {
    let parts = [
        noise.others_percent.map(|percent| format!("other processes used {percent:.0} % of a CPU")),
        noise.stolen_percent.map(|percent| format!("{percent:.1} % steal")),
        noise.rate_deviation_percent.map(|percent| format!("rate deviation {percent:.1} %")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn line(text: &mut String, more: &str) {
    text.push_str(more.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn a_run_is_a_table_and_a_few_lines() {
        let text = run(&sample::run(), Style::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "4K <random> read, 1 x 2 on iscsi://10.0.0.7:3260/iqn.2026-11.io.ursa:db/0");
        assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>()[..4], ["read", "10,000", "41.0", "100.0"]);
        assert_eq!(lines[6], "Client  2.00 µs CPU per request, 2 % of a CPU (ursa, pid 1)");
        assert_eq!(lines[8], "Disks   1.25 bytes read per byte read (ursa, pid 2)");
        assert_eq!(lines[9], "Noise   other processes used 1 % of a CPU, 0.0 % steal, rate deviation 2.5 %");
        assert!(text.lines().all(|line| line.chars().count() <= 110));
    }

    #[test]
    fn lost_requests_are_reported() {
        let text = losses(&sample::lost().ending, Style::Plain);
        assert!(
            text.starts_with("LOST: iscsi://10.0.0.7:3260/iqn.2026-11.io.ursa:db/0 after 7.0 s\n"),
            "{text}"
        );
        assert!(text.contains("Last response after 6.500 s."), "{text}");
        assert!(losses(&sample::run().ending, Style::Plain).is_empty());
        assert!(losses(&sample::lost().ending, Style::Terminal).starts_with("\x1b["));
    }
}
