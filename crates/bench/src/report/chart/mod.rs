//! Charts as inline SVG. Colors and fonts come from the page's style sheet, so a chart suits both dark and
//! light pages.

mod axis;
mod bars;
mod frame;
mod lines;
mod scale;
mod svg;

pub(crate) use axis::{Axis, Unit};
pub(crate) use bars::{Bar, Bars};
pub(crate) use lines::{Line, Lines, Mark, heights};
pub(crate) use scale::Scale;
