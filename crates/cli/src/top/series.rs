//! Series in Prometheus' text format, as nodes write it.

/// A line of the text.
#[derive(Debug, PartialEq)]
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    labels: &'a str,
    pub(super) value: f64,
}

/// All series of the text. Invalid lines are skipped.
pub(super) fn series(text: &str) -> impl Iterator<Item = Series<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        Some(Series { name, labels, value: value.parse().ok()? })
    })
}

impl Series<'_> {
    pub(super) fn label(&self, wanted: &str) -> Option<String> {
        let mut rest = self.labels;
        loop {
            let (name, quoted) = rest.split_once("=\"")?;
            let (value, length) = unquoted(quoted)?;
            if name.trim_start_matches(',') == wanted {
                return Some(value);
            }
            rest = &quoted[length..];
        }
    }
}

/// The text before the closing quote, and its length in bytes with the quote.
///
/// A backslash, a quote and a newline are escaped.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, at + 1)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_whatever_is_in_them() {
        let text =
            "# HELP a A.\na_total 7\nb{x=\"1\",y=\"q\\\"},z=\\\\ \\n\",z=\"last\"} 0.25\nnot a series\n";
        let found: Vec<Series<'_>> = series(text).collect();
        assert_eq!((found.len(), found[0].name, found[0].value), (2, "a_total", 7.0));
        assert_eq!(found[0].label("x"), None);
        let labels = ["x", "y", "z", "w"].map(|name| found[1].label(name));
        assert_eq!(labels, [Some("1".into()), Some("q\"},z=\\ \n".into()), Some("last".into()), None]);
    }
}
