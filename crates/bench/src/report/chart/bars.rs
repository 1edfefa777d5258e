//! A chart of grouped bars.

use super::axis::{Axis, text_width};
use super::frame::{Entry, Frame, HEIGHT, WIDTH, colour_class, figure};
use super::svg::Svg;

/// The share of a group's width that its bars take.
const BARS_SHARE: f64 = 0.76;
/// The smallest height of a bar, so that it is visible.
const HEIGHT_MIN: f64 = 1.0;
/// The gap between two numbers below the axis.
const LABEL_GAP: f64 = 4.0;
/// The greatest width of a bar.
const BAR_MAX: f64 = 44.0;

/// A chart of bars.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    pub(crate) y: Axis,
    /// What the groups are.
    pub(crate) x_name: &'a str,
    /// The groups, from left to right.
    pub(crate) groups: Vec<String>,
    pub(crate) bars: Vec<Bar>,
}

/// The bars of one kind, one in each group.
pub(crate) struct Bar {
    pub(crate) name: String,
    /// The index of its color.
    pub(crate) colour: usize,
    /// By group: from where to where the bar reaches; `None` means no bar.
    pub(crate) spans: Vec<Option<(f64, f64)>>,
}

impl Bar {
    /// Bars that begin at zero.
    pub(crate) fn from_zero(name: &str, colour: usize, values: &[Option<f64>]) -> Bar {
        let spans = values.iter().map(|value| value.map(|value| (0.0, value))).collect();
        Bar { name: name.to_owned(), colour, spans }
    }
}

impl Bars<'_> {
    /// The chart with its legend, as an HTML fragment.
    pub(crate) fn html(&self) -> String {
        let frame = Frame::new(&self.y);
        let mut svg = Svg::new(WIDTH, HEIGHT, self.title);
        // With only one kind of bars, the heading names it.
        let named = self.bars.iter().filter(|_| self.bars.len() > 1);
        let legend: Vec<Entry<'_>> = named.map(|bar| (bar.name.as_str(), colour_class(bar.colour))).collect();
        frame.draw_y(&mut svg, &self.y);
        let group_width = frame.width() / self.groups.len().max(1) as f64;
        let bar_width = (group_width * BARS_SHARE / self.bars.len().max(1) as f64).min(BAR_MAX);
        for (number, group) in self.groups.iter().enumerate() {
            let middle = frame.left + (number as f64 + 0.5) * group_width;
            let start = middle - bar_width * self.bars.len() as f64 / 2.0;
            for (place, bar) in self.bars.iter().enumerate() {
                let Some((low, high)) = bar.spans.get(number).copied().flatten() else { continue };
                let [top, bottom] = [high, low].map(|value| frame.up(self.y.scale.place(value)));
                let told = format!("{group}, {}: {}", bar.name, self.told(low, high));
                let class = format!("bar {}", colour_class(bar.colour));
                let x = start + place as f64 * bar_width + 0.5;
                svg.rect(&class, (x, top), (bar_width - 1.0, (bottom - top).max(HEIGHT_MIN)), &told);
            }
        }
        self.draw_labels(&frame, &mut svg, group_width);
        frame.draw_x(&mut svg, self.x_name);
        figure(self.title, &legend, svg)
    }

    fn told(&self, low: f64, high: f64) -> String {
        let high = self.y.unit.show(high);
        if low > 0.0 { format!("{} to {high}", self.y.unit.show(low)) } else { high }
    }

    /// The names of the groups if all fit, otherwise their numbers: the table next to the chart has both.
    fn draw_labels(&self, frame: &Frame, svg: &mut Svg, group_width: f64) {
        let fit = self.groups.iter().all(|group| text_width(group) < group_width);
        // As many numbers as fit without touching.
        let step = ((text_width("00") + LABEL_GAP) / group_width).ceil() as usize;
        for (number, group) in self.groups.iter().enumerate() {
            let x = frame.left + (number as f64 + 0.5) * group_width;
            if fit {
                frame.label_x(svg, x, group);
            } else if number % step == 0 {
                frame.label_x(svg, x, &(number + 1).to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::{Scale, Unit};

    #[test]
    fn bars_stand_on_the_axis() {
        let bars = Bars {
            title: "t",
            y: Axis::new(Scale::from_zero([100.0]), Unit::Number),
            x_name: "x",
            groups: vec!["one".into(), "two".into()],
            bars: vec![
                Bar::from_zero("a", 1, &[Some(50.0), Some(100.0)]),
                Bar::from_zero("b", 1, &[None, Some(1.0)]),
            ],
        };
        let html = bars.html();
        assert_eq!(html.matches("<rect class=\"bar c1\"").count(), 3);
        assert!(html.contains(">one</text>"));
        let many = Bars { groups: (0..9).map(|at| format!("a long name {at}")).collect(), ..bars };
        assert!(many.html().contains(">9</text>") && !many.html().contains(">a long name 8</text>"));
    }
}
