//! A mail server as text.

use super::columns::Columns;
use super::{Style, cpu_lines, line, losses, noise_line, short};
use crate::grouped;
use crate::record::{Direction, Mail, Run, TaskFigures};

/// Its tasks, its volumes, and whether it was steady.
pub(super) fn mail(mail: &Mail, run: &Run, style: Style) -> String {
    let mut text = String::new();
    line(&mut text, &style.bold(&run.name));
    line(&mut text, &format!("{}, measured from {:.1} s to {:.1} s", run.letters, mail.from, mail.to));
    line(&mut text, "");
    text.push_str(&tasks(mail));
    line(&mut text, "");
    text.push_str(&volumes(mail));
    line(&mut text, "");
    let verdict = match mail.is_degraded() {
        true => style.alarm(mail.verdict()),
        false => style.bold(mail.verdict()),
    };
    line(&mut text, &format!("Send    {}; {verdict}", send(mail)));
    line(&mut text, &format!("Rate    {}", rate(mail)));
    line(&mut text, &format!("Steady  {}", mail.steadiness()));
    if let Some(cpu) = &run.cpu {
        text.push_str(&cpu_lines(cpu));
    }
    if let Some(noise) = noise_line(&run.noise) {
        line(&mut text, &format!("Noise   {noise}"));
    }
    if let Some(check) = &run.check {
        let (checked, unchecked) = (grouped(check.checked as f64), grouped(check.unchecked as f64));
        line(&mut text, &format!("Verify  {checked} pages checked, {unchecked} could not be"));
    }
    for note in &run.notes {
        line(&mut text, &format!("Note    {note}"));
    }
    text + &losses(&run.ending, style)
}

/// The latency of sending mail.
fn send(mail: &Mail) -> String {
    let Some(latency) = &mail.send().latency else { return "none".to_owned() };
    let [mean, p95] = [latency.mean_us, latency.p95_us].map(millis);
    format!("average {mean} ms, 95th percentile {p95} ms")
}

/// The rate achieved, and the rate due.
fn rate(mail: &Mail) -> String {
    format!("{} of {} transactions/s due", short(mail.all.rate), short(mail.due_rate))
}

/// Milliseconds for people.
fn millis(micros: f64) -> String {
    match micros / 1000.0 {
        millis if millis < 10.0 => format!("{millis:.2}"),
        millis => short(millis),
    }
}

/// The column names of a table of tasks.
pub(crate) const TASK_HEAD: [&str; 9] =
    ["", "tasks", "tasks/s", "mean ms", "p50 ms", "p95 ms", "p99 ms", "max ms", "> 1,000 ms"];

/// A row of such a table.
pub(crate) fn task_row(task: &TaskFigures) -> Vec<String> {
    let latency = task.latency.clone().unwrap_or_default();
    let mut row = vec![task.name.clone(), grouped(task.tasks as f64), short(task.rate)];
    row.extend([latency.mean_us, latency.p50_us, latency.p95_us, latency.p99_us, latency.max_us].map(millis));
    row.push(grouped(task.late as f64));
    row
}

fn tasks(mail: &Mail) -> String {
    let mut table = Columns::new(&TASK_HEAD);
    mail.tasks.iter().chain([&mail.all]).for_each(|task| table.row(task_row(task)));
    table.text()
}

/// The column names of a table of volumes.
pub(crate) const VOLUME_HEAD: [&str; 8] =
    ["", "reads/s", "p50 µs", "p99 µs", "writes/s", "p50 µs", "p99 µs", "MB/s"];

/// Rows of such a table: the role, and the figures.
pub(crate) fn volume_rows(mail: &Mail) -> impl Iterator<Item = Vec<String>> {
    let of = |direction: &Direction| {
        let latency = direction.latency.as_ref();
        let micros = |value: Option<f64>| value.map_or("-".to_owned(), short);
        [
            short(direction.iops),
            micros(latency.map(|latency| latency.p50_us)),
            micros(latency.map(|latency| latency.p99_us)),
        ]
    };
    mail.volumes.iter().map(move |volume| {
        let mut row = vec![format!("{} ({})", volume.role, volume.about())];
        row.extend(of(&volume.reads));
        row.extend(of(&volume.writes));
        row.push(short(volume.reads.mb_per_s + volume.writes.mb_per_s));
        row
    })
}

fn volumes(mail: &Mail) -> String {
    let mut table = Columns::new(&VOLUME_HEAD);
    volume_rows(mail).for_each(|row| table.row(row));
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn a_mail_server_is_judged_by_its_sending() {
        let text = mail(&sample::mail(), &sample::run(), Style::Plain);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        assert_eq!(
            line("send mail").split_whitespace().collect::<Vec<_>>(),
            ["send", "mail", "52", "1.0", "0.10", "0.10", "0.13", "0.40", "5.00", "0"]
        );
        assert_eq!(line("Send"), "Send    average 0.10 ms, 95th percentile 0.13 ms; good: below 1,000 ms");
        assert_eq!(line("Rate"), "Rate    9.7 of 9.1 transactions/s due");
        assert!(line("Steady").starts_with("Steady  after 6.0 s of warm-up; "), "{text}");
        assert!(line("log (").contains("1.00 GiB, written sequentially"), "{text}");
    }
}
