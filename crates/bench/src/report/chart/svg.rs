//! The few shapes that charts consist of.

use std::fmt::Write;

use crate::report::html::escape;

/// Why writing into a string cannot fail.
const TAKES: &str = "a string takes all";

/// A picture to which shapes are added.
pub(super) struct Svg(String);

impl Svg {
    /// An empty picture of a size in its own units; `title` is for screen readers.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Svg {
        let title = escape(title);
        Svg(format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">"))
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let shape = format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
        self.0.write_fmt(shape).expect(TAKES);
    }

    /// Adds a rectangle. `told` is its tooltip.
    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), told: &str) {
        let (shape, told) = (format_args!("x=\"{x:.1}\" y=\"{y:.1}\""), escape(told));
        let size = format_args!("width=\"{width:.1}\" height=\"{height:.1}\"");
        write!(self.0, "<rect class=\"{class}\" {shape} {size}><title>{told}</title></rect>").expect(TAKES);
    }

    /// Adds a circle. `told` is its tooltip.
    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64, told: &str) {
        let (shape, told) = (format_args!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\""), escape(told));
        write!(self.0, "<circle class=\"{class}\" {shape}><title>{told}</title></circle>").expect(TAKES);
    }

    pub(super) fn path(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        write!(self.0, "<path class=\"{class}\" d=\"").expect(TAKES);
        for (number, (x, y)) in points.enumerate() {
            write!(self.0, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' }).expect(TAKES);
        }
        self.0.push_str("\"/>");
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        write!(self.0, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>").expect(TAKES);
    }

    pub(super) fn finish(self) -> String {
        self.0 + "</svg>"
    }
}
