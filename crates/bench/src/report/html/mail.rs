//! A mail server on a page.

use super::run::{
    conditions, facts, latencies as request_latencies, percentile_chart, percentiles, rates as request_rates,
    tiles_of,
};
use super::series::html_table;
use crate::mail::LATE;
use crate::quantity::micros;
use crate::record::{Mail, MailWindow, Run, TaskFigures};
use crate::report::chart::{Axis, Bar, Bars, Line, Lines, Scale, Unit, heights};
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
    // With the same numbers as in the chart of kinds.
    let tasks = mail.tasks.iter().enumerate().map(|(number, task)| {
        let mut row = task_row(task);
        row[0] = format!("{}. {}", number + 1, row[0]);
        (row, false)
    });
    html.push_str(&html_table(&TASK_HEAD, tasks.chain([(task_row(&mail.all), true)])));
    html.push_str("<h2>The volumes</h2>");
    html.push_str(&html_table(&VOLUME_HEAD, volume_rows(mail).map(|row| (row, false))));
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
        Line::new("done", 1, over_time(mail, |window| Some(window.rate))),
        Line::new("due, on average", 5, vec![(0.0, mail.due_rate), (mail.to, mail.due_rate)]),
    ];
    let y = Axis::new(Scale::from_zero(heights(&lines)), Unit::Number);
    Lines { shaded, ..Lines::new("Transactions/s over time", ("time", x), y, lines) }.html()
}

fn latencies(mail: &Mail) -> String {
    let (x, shaded) = time(mail);
    let mut lines = vec![
        Line::new("all tasks, average", 3, over_time(mail, |window| window.mean_us)),
        Line::new("all tasks, 95th percentile", 6, over_time(mail, |window| window.p95_us)),
        Line::new("send mail, 95th percentile", 4, over_time(mail, |window| window.send_p95_us)),
    ];
    // The limit is shown only if values are near it; otherwise it would compress all curves.
    let late = LATE.as_secs_f64() * 1e6;
    if heights(&lines).any(|micros| micros > late / 4.0) {
        lines.push(Line::new("1,000 ms", 2, vec![(0.0, late), (mail.to, late)]));
    }
    let y = Axis::new(Scale::log(heights(&lines)), Unit::Micros);
    Lines { shaded, ..Lines::new("Task latency by due time", ("time", x), y, lines) }.html()
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
