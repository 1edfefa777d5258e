//! An axis: a scale, the unit of its values, and the labels that fit next to each other.

use super::Scale;
use crate::quantity::{compact, micros};

/// The unit of the values on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A plain number.
    Number,
    Micros,
    Seconds,
    Percent,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::Number => compact(value),
            Unit::Micros => micros(value),
            Unit::Seconds => format!("{} s", compact(value)),
            Unit::Percent => format!("{} %", compact(value)),
        }
    }
}

/// An axis with its labels.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) scale: Scale,
    /// Values and their labels, from the start to the end.
    pub(crate) labels: Vec<(f64, String)>,
    pub(crate) unit: Unit,
}

impl Axis {
    pub(crate) fn new(scale: Scale, unit: Unit) -> Axis {
        let labels = scale.ticks().into_iter().map(|value| (value, unit.show(value))).collect();
        Axis { scale, labels, unit }
    }

    /// An axis with the caller's labels.
    pub(crate) fn labelled(scale: Scale, unit: Unit, labels: Vec<(f64, String)>) -> Axis {
        Axis { scale, labels, unit }
    }

    /// The labels that fit next to each other on a horizontal axis of `width`; each is centered on its value.
    pub(crate) fn fitting(&self, width: f64) -> Vec<(f64, &str)> {
        let mut fitting: Vec<(f64, &str)> = Vec::new();
        let mut end = f64::NEG_INFINITY;
        for (value, label) in &self.labels {
            let (at, half) = (self.scale.place(*value) * width, text_width(label) / 2.0);
            if at - half >= end {
                fitting.push((at, label));
                end = at + half + GAP;
            }
        }
        fitting
    }
}

/// The smallest gap between two labels.
const GAP: f64 = 8.0;
/// The average width of a character, rounded up; the page's font size is 12 units.
const CHARACTER: f64 = 7.0;

/// The approximate width of a text.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_touch() {
        let labels = (0..20).map(|value| (f64::from(value), format!("label {value}"))).collect();
        let axis = Axis::labelled(Scale::Linear { min: 0.0, max: 19.0 }, Unit::Number, labels);
        let fitting = axis.fitting(400.0);
        assert!((4..=7).contains(&fitting.len()), "{fitting:?}");
        let free = |pair: &[(f64, &str)]| pair[1].0 - pair[0].0 - text_width(pair[1].1);
        assert!(fitting.windows(2).all(|pair| free(pair) > 0.0));
        assert_eq!(Axis::new(Scale::from_zero([60.0]), Unit::Seconds).labels[1].1, "20 s");
    }
}
