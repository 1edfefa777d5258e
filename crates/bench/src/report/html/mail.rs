//! A mail server on a page.

use super::run::{
    conditions, facts, latencies as request_latencies, percentile_chart, percentiles, rates as request_rates,
    tiles_of,
};
use super::series::html_table;
use crate::mail::LATE;
use crate::quantity::micros;
use crate::record::{Mail, MailWindow, Run, TaskFigures};
use crate::report::chart::{Axis, Bar, Bars, Line, Lines, Scale, Unit};
use crate::report::text::{TASK_HEAD, VOLUME_HEAD, short, task_row, volume_rows};

/// Tasks first, then the I/O of the volumes.
pub(super) fn mail(mail: &Mail, run: &Run) -> String {
    let mut html = String::new();
    if mail.is_degraded() {
        html.push_str(&format!(
            "<div class=\"card alarm\"><p><strong>&quot;Send mail&quot; is {}</strong></p></div>",
            mail.verdict()
        ));
    }
    html.push_str(&tiles(mail));
    let rows = [
        ("Steady", mail.steadiness()),
        (
            "Users",
            format!(
                "{} with {} tasks in a day of {:.0} h, at {} times the speed",
                crate::grouped(mail.users.into()),
                mail.tasks_a_day,
                mail.day / 3600.0,
                mail.compression
            ),
        ),
    ];
    html.push_str(&format!("<div class=\"card\">{}</div>", facts(&rows)));
    html.push_str(&format!(
        "<div class=\"charts\">{}{}{}{}</div>",
        rates(mail),
        latencies(mail),
        sending(mail),
        by_kind(mail)
    ));
    let head: Vec<&str> = std::iter::once("").chain(TASK_HEAD).collect();
    // With the same numbers as in the chart of kinds.
    let tasks = mail.tasks.iter().enumerate().map(|(number, task)| {
        let mut row = task_row(task);
        row[0] = format!("{}. {}", number + 1, row[0]);
        (row, false)
    });
    html.push_str(&html_table(&head, tasks.chain([(task_row(&mail.all), true)])));
    html.push_str("<h2>The volumes</h2>");
    let head: Vec<&str> = std::iter::once("").chain(VOLUME_HEAD).collect();
    html.push_str(&html_table(&head, volume_rows(mail).map(|row| (row, false))));
    html.push_str(&format!(
        "<div class=\"charts\">{}{}{}{}</div>",
        percentiles(run),
        request_rates(run),
        request_latencies(run),
        super::run::cpu(run)
    ));
    html + &conditions(run)
}

fn tiles(mail: &Mail) -> String {
    let mut tiles = vec![(short(mail.all.rate), "transactions/s"), (short(mail.due_rate), "due")];
    if let Some(latency) = &mail.send().latency {
        tiles.push((micros(latency.mean_us), "send mail, average"));
        tiles.push((micros(latency.p95_us), "send mail, 95th percentile"));
    }
    tiles.push((mail.tasks.iter().map(|task| task.late).sum::<u64>().to_string(), "tasks over 1,000 ms"));
    tiles_of(&tiles)
}

/// The time axis, and the part of it that does not count.
fn time(mail: &Mail) -> (Axis, Option<(f64, f64, &'static str)>) {
    let axis = Axis::new(Scale::Linear { min: 0.0, max: mail.to.max(1e-3) }, Unit::Seconds);
    let name = if mail.steady.is_some() { "warm-up" } else { "excluded" };
    (axis, (mail.from > 0.0).then_some((0.0, mail.from, name)))
}

/// Points at the middles of the windows.
fn over_time(mail: &Mail, value: impl Fn(&MailWindow) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut start = 0.0;
    let mut points = Vec::new();
    for window in &mail.windows {
        points.extend(value(window).map(|value| ((start + window.until) / 2.0, value)));
        start = window.until;
    }
    points
}

fn rates(mail: &Mail) -> String {
    let (x, shaded) = time(mail);
    let lines = vec![
        Line { name: "done".to_owned(), colour: 1, points: over_time(mail, |window| Some(window.rate)) },
        Line {
            name: "due, on average".to_owned(),
            colour: 5,
            points: vec![(0.0, mail.due_rate), (mail.to, mail.due_rate)],
        },
    ];
    let values: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|(_, rate)| *rate).collect();
    let y = Axis::new(Scale::from_zero(values), Unit::Number);
    Lines { title: "Transactions/s over time", x, y, x_name: "time", lines, shaded, marks: Vec::new() }.html()
}

fn latencies(mail: &Mail) -> String {
    let (x, shaded) = time(mail);
    let mut lines = vec![
        Line {
            name: "all tasks, average".to_owned(),
            colour: 3,
            points: over_time(mail, |window| window.mean_us),
        },
        Line {
            name: "all tasks, 95th percentile".to_owned(),
            colour: 6,
            points: over_time(mail, |window| window.p95_us),
        },
        Line {
            name: "send mail, 95th percentile".to_owned(),
            colour: 4,
            points: over_time(mail, |window| window.send_p95_us),
        },
    ];
    let values: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|(_, micros)| *micros).collect();
    // The limit is shown only if values are near it; otherwise it would compress all curves.
    let late = LATE.as_secs_f64() * 1e6;
    if values.iter().any(|micros| *micros > late / 4.0) {
        lines.push(Line {
            name: "1,000 ms".to_owned(),
            colour: 2,
            points: vec![(0.0, late), (mail.to, late)],
        });
    }
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, micros)| *micros);
    let y = Axis::new(Scale::log(values.collect::<Vec<_>>()), Unit::Micros);
    let title = "Task latency by due time";
    Lines { title, x, y, x_name: "time", lines, shaded, marks: Vec::new() }.html()
}

/// The latency of sending, next to that of all tasks.
fn sending(mail: &Mail) -> String {
    let curve = |task: &TaskFigures| task.latency.as_ref().map(|latency| latency.curve.clone());
    let curves = [("send mail", 4, mail.send()), ("all tasks", 3, &mail.all)];
    let curves = curves.map(|(name, colour, task)| (name, colour, curve(task).unwrap_or_default()));
    percentile_chart("Tasks by percentile", "percentile of tasks", &curves)
}

fn by_kind(mail: &Mail) -> String {
    let spans: Vec<_> = mail
        .tasks
        .iter()
        .map(|task| task.latency.as_ref().map(|latency| (latency.p50_us, latency.p95_us)))
        .collect();
    let y = Axis::new(Scale::log(spans.iter().flatten().flat_map(|(low, high)| [*low, *high])), Unit::Micros);
    Bars {
        title: "Tasks by kind, median to 95th percentile",
        y,
        x_name: "kind of task, as in the table",
        groups: mail.tasks.iter().map(|task| task.name.clone()).collect(),
        bars: vec![Bar { name: "tasks".to_owned(), colour: 1, spans }],
    }
    .html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn a_page_shows_tasks_and_volumes() {
        let mut figures = sample::mail();
        let html = mail(&figures, &sample::run());
        assert_eq!(html.matches("<svg").count(), 8);
        assert!(html.contains("warm-up") && !html.contains("DEGRADED") && !html.contains("NaN"));
        figures.tasks[crate::mail::SEND].latency.as_mut().unwrap().mean_us = 2e6;
        assert!(mail(&figures, &sample::run()).contains("&quot;Send mail&quot; is DEGRADED"));
    }
}
