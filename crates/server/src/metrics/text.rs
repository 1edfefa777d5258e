//! The text format of Prometheus, version 0.0.4: one family after another, each with HELP, TYPE and all of
//! its samples.

use std::fmt::{Display, Write};

/// The type of a family.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of durations.
    Histogram,
}

pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// A text that is being written.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// A family whose samples are being written.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Text {
    /// Begins a family. A family may begin only once.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        write(&mut self.0, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { text: &mut self.0, name }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: &Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Writes a histogram: for each bound in seconds the number of values up to it, for `+Inf` all of them,
    /// and the sum of all in seconds. `buckets` are not cumulative, and the last has no bound.
    pub(super) fn histogram(
        &mut self,
        labels: &Labels<'_>,
        buckets: impl IntoIterator<Item = (Option<f64>, u64)>,
        sum: f64,
    ) {
        let mut count = 0;
        for (bound, more) in buckets {
            count += more;
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.to_string());
            self.line("_bucket", labels, Some(("le", &bound)), count);
        }
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, last: Option<(&str, &str)>, value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels.iter().copied().chain(last) {
            self.text.push(separator);
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        write(self.text, format_args!(" {value}\n"));
    }
}

/// Escapes backslash, quote and line feed in a label's value.
fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

fn write(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_histograms() {
        let mut text = Text::default();
        text.family("a_total", Kind::Counter, "Of a.").sample(&[], 7);
        text.family("b_seconds", Kind::Gauge, "Of b.").sample(&[("x", "1"), ("y", "q\"b\\n\n")], 0.25);
        let buckets = [(Some(0.000004), 2), (Some(0.5), 0), (None, 1)];
        text.family("c_seconds", Kind::Histogram, "Of c.").histogram(&[("v", "db")], buckets, 3.5);
        let expected = r#"# HELP a_total Of a.
# TYPE a_total counter
a_total 7
# HELP b_seconds Of b.
# TYPE b_seconds gauge
b_seconds{x="1",y="q\"b\\n\n"} 0.25
# HELP c_seconds Of c.
# TYPE c_seconds histogram
c_seconds_bucket{v="db",le="0.000004"} 2
c_seconds_bucket{v="db",le="0.5"} 2
c_seconds_bucket{v="db",le="+Inf"} 3
c_seconds_sum{v="db"} 3.5
c_seconds_count{v="db"} 3
"#;
        assert_eq!(text.into_string(), expected);
    }
}
