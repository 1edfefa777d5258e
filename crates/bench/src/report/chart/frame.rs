//! The common parts of all charts: a heading, a legend, two axes and their labels.

use super::axis::{Axis, text_width};
use super::svg::Svg;
use crate::report::html::escape;

/// The size of a chart in its own units; the page scales it.
pub(super) const WIDTH: f64 = 460.0;
pub(super) const HEIGHT: f64 = 250.0;
/// Room around the axes.
const TOP: f64 = 12.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 42.0;
/// Room left of the axis, in addition to the widest label.
const LEFT: f64 = 10.0;

/// The position of the axes.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// A frame with room for the labels of the vertical axis.
    pub(super) fn new(y: &Axis) -> Frame {
        let left = LEFT + y.labels.iter().map(|(_, label)| text_width(label)).fold(0.0, f64::max);
        Frame { left, right: WIDTH - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM }
    }

    pub(super) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// The position of a fraction of the horizontal axis.
    pub(super) fn across(&self, share: f64) -> f64 {
        self.left + share * self.width()
    }

    /// The position of a fraction of the vertical axis.
    pub(super) fn up(&self, share: f64) -> f64 {
        self.bottom - share * self.height()
    }

    /// The vertical axis: a line across for each label.
    pub(super) fn draw_y(&self, svg: &mut Svg, y: &Axis) {
        for (value, label) in &y.labels {
            let at = self.up(y.scale.place(*value));
            svg.line("grid", (self.left, at), (self.right, at));
            svg.text("end", (self.left - 5.0, at + 4.0), label);
        }
    }

    /// The line of the horizontal axis and its name.
    pub(super) fn draw_x(&self, svg: &mut Svg, name: &str) {
        svg.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        svg.text("middle faint", (self.across(0.5), HEIGHT - 6.0), name);
    }

    /// A label of the horizontal axis.
    pub(super) fn label_x(&self, svg: &mut Svg, x: f64, label: &str) {
        svg.text("middle", (x, self.bottom + 17.0), label);
    }
}

/// A name in a legend and the class of its swatch.
pub(super) type Entry<'a> = (&'a str, String);

/// A chart as an HTML fragment.
pub(super) fn figure(title: &str, legend: &[Entry<'_>], svg: Svg) -> String {
    let entry = |(name, class): &Entry<'_>| {
        format!("<li><span class=\"swatch {class}\"></span>{}</li>", escape(name))
    };
    let legend: String = legend.iter().map(entry).collect();
    let title = escape(title);
    format!(
        "<figure class=\"chart\"><figcaption>{title}</figcaption><ul class=\"legend\">{legend}</ul>{}</figure>",
        svg.finish()
    )
}

/// The CSS class of a color.
pub(super) fn colour_class(colour: usize) -> String {
    format!("c{colour}")
}
