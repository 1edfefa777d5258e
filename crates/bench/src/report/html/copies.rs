//! Copies on a page: one group of bars for each volume that was measured.

use super::series::{details, html_table};
use crate::record::{Copies, CopiesSide, Run};
use crate::report::chart::{Axis, Bar, Bars, Scale, Unit};
use crate::report::text::{COPIES_HEAD, copies_row};

/// The rates come first: they are what copies cost.
pub(super) fn copies(copies: &Copies, runs: &[Run]) -> String {
    let rows = copies.sides.iter().map(|side| (copies_row(side), false));
    format!(
        "<div class=\"charts\">{}{}{}{}</div>{}{}",
        bars(copies, "IOPS", Unit::Number, &[("", 1, |side| side.iops)]),
        bars(copies, "MB/s", Unit::Number, &[("", 1, |side| side.mb_per_s)]),
        latencies(copies),
        bars(
            copies,
            "CPU time per request",
            Unit::Micros,
            &[("client", 4, |side| side.client_us), ("server", 3, |side| side.server_us)]
        ),
        html_table(&COPIES_HEAD, rows),
        details(runs),
    )
}

/// A name, a color and a figure.
type Kind<'a> = (&'a str, usize, fn(&CopiesSide) -> Option<f64>);

fn bars(copies: &Copies, title: &str, unit: Unit, kinds: &[Kind<'_>]) -> String {
    let bars: Vec<Bar> = kinds
        .iter()
        .map(|(name, colour, figure)| {
            let values: Vec<Option<f64>> = copies.sides.iter().map(figure).collect();
            Bar::from_zero(name, *colour, &values)
        })
        .collect();
    let highest = bars.iter().flat_map(|bar| &bar.spans).flatten().map(|(_, high)| *high);
    let y = Axis::new(Scale::from_zero(highest), unit);
    Bars { title, y, x_name: "", groups: names(copies), bars }.html()
}

fn latencies(copies: &Copies) -> String {
    let spans: Vec<_> = copies.sides.iter().map(|side| side.p50_us.zip(side.p99_us)).collect();
    let y = Axis::new(Scale::log(spans.iter().flatten().flat_map(|(low, high)| [*low, *high])), Unit::Micros);
    let bars = vec![Bar { name: String::new(), colour: 1, spans }];
    let title = "Latency, median to 99th percentile";
    Bars { title, y, x_name: "", groups: names(copies), bars }.html()
}

fn names(copies: &Copies) -> Vec<String> {
    copies.sides.iter().map(|side| side.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn all_are_in_one_chart() {
        let sides = ["raw disk", "1 copy", "2 copies"].map(|name| (name.into(), vec![sample::run()]));
        let (found, runs) = Copies::of(sides.to_vec());
        let html = copies(&found, &runs);
        let chart = html.split("</svg>").next().unwrap();
        assert_eq!(chart.matches("class=\"bar c1\"").count(), 3);
        for name in ["raw disk", "1 copy", "2 copies"] {
            assert!(chart.contains(&format!(">{name}</text>")), "{name}");
        }
    }
}
