//! Charts as inline SVG. Colours and fonts come from the page's style, so that a chart looks right on a dark page and on a
//! light one.

mod axis;
mod frame;
mod lines;
mod scale;
mod svg;

pub(crate) use axis::{Axis, Unit};
pub(crate) use lines::{Line, Lines};
pub(crate) use scale::Scale;
