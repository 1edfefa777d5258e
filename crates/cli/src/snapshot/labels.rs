//! Labels of snapshots, as people write and read them.

use std::collections::BTreeMap;

use super::super::table::list;

/// The text is not a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a label: write KEY=VALUE, such as app=shop")]
pub struct InvalidLabel(String);

/// Parses `app=shop`. The node checks which characters are allowed.
pub fn parse_label(text: &str) -> Result<(String, String), InvalidLabel> {
    let parts = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = parts.ok_or_else(|| InvalidLabel(text.to_owned()))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// All labels of a snapshot for people.
pub fn shown(labels: &BTreeMap<String, String>) -> String {
    list(labels.iter().map(|(key, value)| format!("{key}={value}")), "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key_and_a_value() {
        assert_eq!(parse_label("app=shop"), Ok(("app".into(), "shop".into())));
        for text in ["", "app", "=shop", "app=", "="] {
            assert!(parse_label(text).is_err(), "{text:?}");
        }
    }
}
