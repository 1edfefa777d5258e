//! Showing records: as text for a terminal, and as a page with charts.

pub mod text;
