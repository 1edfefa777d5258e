//! A chart of lines over a common axis.

use super::axis::Axis;
use super::frame::{Entry, Frame, HEIGHT, WIDTH, colour_class, figure};
use super::svg::Svg;

/// A line with more points has no dots.
const DOTS_MAX: usize = 40;

/// A chart of lines.
pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// What the horizontal axis shows.
    pub(crate) x_name: &'a str,
    pub(crate) lines: Vec<Line>,
    /// A part of the horizontal axis that does not count, and its name.
    pub(crate) shaded: Option<(f64, f64, &'a str)>,
    pub(crate) marks: Vec<Mark>,
}

pub(crate) struct Line {
    pub(crate) name: String,
    /// The index of its color.
    pub(crate) colour: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    pub(crate) fn new(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.to_owned(), colour, points }
    }
}

/// The vertical values of all points of some lines.
pub(crate) fn heights(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y)
}

/// A named point.
pub(crate) struct Mark {
    pub(crate) at: (f64, f64),
    pub(crate) name: String,
}

impl<'a> Lines<'a> {
    /// Lines over a named horizontal axis, with nothing shaded or marked.
    pub(crate) fn new(title: &'a str, (x_name, x): (&'a str, Axis), y: Axis, lines: Vec<Line>) -> Lines<'a> {
        Lines { title, x, y, x_name, lines, shaded: None, marks: Vec::new() }
    }

    /// The chart with its legend, as an HTML fragment.
    pub(crate) fn html(&self) -> String {
        let frame = Frame::new(&self.y);
        let mut svg = Svg::new(WIDTH, HEIGHT, self.title);
        let mut legend: Vec<Entry<'_>> =
            self.lines.iter().map(|line| (line.name.as_str(), colour_class(line.colour))).collect();
        if let Some((from, to, name)) = self.shaded {
            let [x0, x1] = [from, to].map(|value| frame.across(self.x.scale.place(value)));
            svg.rect("shade", (x0, frame.top), (x1 - x0, frame.height()), name);
            legend.push((name, "shade".to_owned()));
        }
        frame.draw_y(&mut svg, &self.y);
        for (at, label) in self.x.fitting(frame.width()) {
            let x = frame.left + at;
            svg.line("tick", (x, frame.bottom), (x, frame.bottom + 4.0));
            frame.label_x(&mut svg, x, label);
        }
        frame.draw_x(&mut svg, self.x_name);
        self.lines.iter().for_each(|line| self.draw_line(&frame, &mut svg, line));
        self.marks.iter().for_each(|mark| self.draw_mark(&frame, &mut svg, mark));
        figure(self.title, &legend, svg)
    }

    fn place(&self, frame: &Frame, (x, y): (f64, f64)) -> (f64, f64) {
        (frame.across(self.x.scale.place(x)), frame.up(self.y.scale.place(y)))
    }

    fn draw_line(&self, frame: &Frame, svg: &mut Svg, line: &Line) {
        let colour = colour_class(line.colour);
        svg.path(&format!("line {colour}"), line.points.iter().map(|point| self.place(frame, *point)));
        for point in line.points.iter().filter(|_| line.points.len() <= DOTS_MAX) {
            let (x, y) = (self.x.unit.show(point.0), self.y.unit.show(point.1));
            let told = format!("{}: {x}, {y}", line.name);
            svg.circle(&format!("dot {colour}"), self.place(frame, *point), 2.5, &told);
        }
    }

    /// Draws a ring and its name. In the right half the name is to the left of the ring, otherwise to its
    /// right.
    fn draw_mark(&self, frame: &Frame, svg: &mut Svg, mark: &Mark) {
        let (x, y) = self.place(frame, mark.at);
        let (class, text_x) = if x > frame.across(0.5) { ("end", x - 9.0) } else { ("start", x + 9.0) };
        // Above the ring, but never above the chart.
        let text_y = (y - 9.0).max(frame.top + 2.0);
        svg.circle("ring", (x, y), 6.0, &mark.name);
        svg.text(&format!("mark {class}"), (text_x, text_y), &mark.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::{Scale, Unit};

    #[test]
    fn lines_stay_inside_the_chart() {
        let points: Vec<(f64, f64)> = (0..=10).map(|at| (f64::from(at), f64::from(at * at))).collect();
        let chart = Lines {
            title: "a < b",
            x: Axis::new(Scale::from_zero([10.0]), Unit::Seconds),
            y: Axis::new(Scale::from_zero([100.0]), Unit::Number),
            x_name: "time",
            lines: vec![Line { name: "reads".into(), colour: 1, points }],
            shaded: Some((0.0, 2.0, "warm-up")),
            marks: vec![Mark { at: (10.0, 100.0), name: "knee".into() }],
        };
        let frame = Frame::new(&chart.y);
        assert_eq!(chart.place(&frame, (10.0, 100.0)), (frame.right, frame.top));
        let html = chart.html();
        assert!(html.contains("a &lt; b") && html.matches("<circle class=\"dot").count() == 11);
        assert!(html.contains("class=\"mark end\""), "there is no room right of the ring");
        assert!(!html.contains("NaN"));
    }
}
