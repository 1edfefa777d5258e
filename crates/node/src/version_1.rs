//! Checks of JSON that version 1 has written: later versions must read it, and lose nothing of it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Checks that `T` is read from `written`, and still says all of it when it is written again. Reading alone
/// would succeed, and lose something, if a field was renamed that may be absent.
#[track_caller]
pub fn check<T: Serialize + DeserializeOwned>(written: &Value) {
    let read = serde_json::from_value::<T>(written.clone());
    let read = read.unwrap_or_else(|error| panic!("{written} cannot be read: {error}"));
    let again = serde_json::to_value(&read).expect("what is sent or recorded is JSON");
    assert!(says_all(&again, written), "{again} lacks something of {written}");
}

/// The same for values of an enum, which must include one of each variant.
#[track_caller]
pub fn check_all<T: Serialize + DeserializeOwned>(written: &Value) {
    let values = written.as_array().expect("it is a list");
    values.iter().for_each(check::<T>);
    for variant in variants::<T>() {
        let is_it = |value: &Value| value.as_str() == Some(&*variant) || value.get(&variant).is_some();
        assert!(values.iter().any(is_it), "there is no {variant} of version 1");
    }
}

/// The variants of an enum, which serde lists where it does not know one.
fn variants<T: DeserializeOwned>() -> Vec<String> {
    let unknown = serde_json::from_str::<T>("\"\"").err().expect("no variant has an empty name");
    let text = unknown.to_string();
    let variants: Vec<String> = text.split('`').skip(1).step_by(2).skip(1).map(str::to_owned).collect();
    assert!(!variants.is_empty(), "{text}");
    variants
}

/// Whether `value` says all that `written` says, or more.
fn says_all(value: &Value, written: &Value) -> bool {
    match (value, written) {
        (Value::Object(value), Value::Object(written)) => written
            .iter()
            .all(|(name, written)| value.get(name).is_some_and(|value| says_all(value, written))),
        (Value::Array(value), Value::Array(written)) => {
            value.len() == written.len()
                && value.iter().zip(written).all(|(value, written)| says_all(value, written))
        }
        _ => value == written,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Example {
        FirstOne,
        Second { number: u8 },
        Third(u8),
    }

    #[test]
    fn what_is_missing_or_other_is_noticed() {
        let written = json!({"nodes": [{"id": 1, "name": "a"}]});
        for value in [
            json!({"nodes": [{"id": 1}]}),
            json!({"nodes": [{"id": 2, "name": "a"}]}),
            json!({"nodes": []}),
            json!({}),
        ] {
            assert!(!says_all(&value, &written), "{value}");
        }
        assert!(says_all(&json!({"nodes": [{"id": 1, "name": "a", "new": 2}], "more": 1}), &written));
    }

    #[test]
    fn all_variants_are_known() {
        assert_eq!(variants::<Example>(), ["first-one", "second", "third"]);
        check_all::<Example>(&json!(["first-one", {"second": {"number": 1}}, {"third": 2}]));
    }

    #[test]
    #[should_panic(expected = "there is no second of version 1")]
    fn a_variant_without_a_value_is_noticed() {
        check_all::<Example>(&json!(["first-one", {"third": 2}]));
    }
}
