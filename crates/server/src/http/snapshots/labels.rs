//! `label=app=shop,ticket`: which labels snapshots must have to be listed.

use std::collections::BTreeMap;

use axum::http::StatusCode;

use super::super::refusal::Refusal;

/// Labels that snapshots must have: the key of each, and its value unless any value will do.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(Vec<(String, Option<String>)>);

impl Labels {
    /// Those of a query.
    ///
    /// # Errors
    /// 400: a key or a value is empty.
    pub(super) fn parse(text: &str) -> Result<Labels, Refusal> {
        let label = |part: &str| {
            let (key, value) = part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value)));
            let is_empty = key.is_empty() || value.is_some_and(str::is_empty);
            (!is_empty).then(|| (key.to_owned(), value.map(str::to_owned)))
        };
        let labels: Option<Vec<_>> = text.split(',').map(label).collect();
        labels.map(Labels).ok_or_else(|| {
            let detail =
                format!("`label` must be KEY=VALUE or KEY, or several separated by commas, not {text:?}");
            Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail)
        })
    }

    /// Whether a snapshot has all of them.
    pub(super) fn are_on(&self, labels: &BTreeMap<String, String>) -> bool {
        let is_on = |(key, value): &(String, Option<String>)| {
            labels.get(key).is_some_and(|has| value.as_ref().is_none_or(|value| value == has))
        };
        self.0.iter().all(is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_must_be_there() {
        let has = [("app", "shop"), ("ticket", "4711")];
        let has = BTreeMap::from(has.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let are_on = |text| Labels::parse(text).unwrap().are_on(&has);
        for text in ["app=shop", "app", "ticket", "app=shop,ticket=4711", "ticket,app=shop"] {
            assert!(are_on(text), "{text}");
        }
        for text in ["app=other", "shop", "app=shop,by", "App", "app=shop=shop"] {
            assert!(!are_on(text), "{text}");
        }
        assert!(Labels::default().are_on(&BTreeMap::new()));
        for text in ["", "=", "=shop", "app=", "app,,ticket", "app=shop,"] {
            assert!(Labels::parse(text).is_err(), "{text:?}");
        }
    }
}
