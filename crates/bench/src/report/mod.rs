//! Reports: records as text for a terminal, and as a page with charts.

mod chart;
pub mod html;
pub mod text;
