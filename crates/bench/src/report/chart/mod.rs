//! Charts as inline SVG. Colours and fonts come from the page's style, so that a chart looks right on a dark
//! page and on a light one.

mod axis;
mod bars;
mod frame;
mod lines;
mod scale;
mod svg;

pub(crate) use axis::{Axis, Unit};
pub(crate) use bars::{Bar, Bars};
pub(crate) use lines::{Line, Lines, Mark};
pub(crate) use scale::Scale;
