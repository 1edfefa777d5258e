//! Adds to the parameters of calls: the range of 64-bit integers, and the header that makes a `POST`
//! idempotent.
//!
//! For such integers utoipa writes `int64`, which covers only half of the range. Its feature for other
//! formats (`non_strict_integers`) writes `u-int64`, which no tool knows. `uint64` is in OpenAPI's registry
//! of formats; `maximum` is for tools that do not know it either.

use utoipa::Number;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::{KnownFormat, RefOr, Required, Schema, SchemaFormat};

use crate::http::access::Need;
use crate::http::idempotency::{KEY, KEY_BYTES_MAX};

const FORMAT: &str = "uint64";

/// Corrects the format of the unsigned 64-bit parameters of a call.
pub(super) fn say(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema
            && is_unsigned(schema)
        {
            schema.format = Some(SchemaFormat::Custom(FORMAT.to_owned()));
            schema.maximum = schema.maximum.take().or(Some(Number::UInt(usize::MAX)));
        }
    }
}

/// Adds the idempotency header to a call that supports it ([`crate::http::idempotency`]).
pub(super) fn say_key(method: &str, operation: &mut Operation, need: Need) {
    if method != "POST" || need == Need::Nothing {
        return;
    }
    let description = "A new key for each request: if the request is repeated with the same key within a day, it is not carried out again and gets the same response";
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    let key = ParameterBuilder::new()
        .name(KEY)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(text.max_length(Some(KEY_BYTES_MAX))))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::T(key));
}

const _: () = assert!(usize::MAX as u64 == u64::MAX, "it is the largest number of 64 bits, too");

/// utoipa writes a minimum only for unsigned integers, unless a parameter sets one.
fn is_unsigned(schema: &Object) -> bool {
    schema.format == Some(SchemaFormat::KnownFormat(KnownFormat::Int64)) && schema.minimum.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::http::openapi::say_of_each;

    #[test]
    fn numbers_of_64_bits_state_their_range() {
        let mut document = crate::http::api().into_openapi();
        say_of_each(&mut document);
        let document: Value = serde_json::to_value(&document).unwrap();
        let schema = |path: &str, name: &str| {
            let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
            parameters.iter().find(|parameter| parameter["name"] == name).unwrap()["schema"].clone()
        };
        let whole = json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": 18_446_744_073_709_551_615_u64});
        assert_eq!(schema("/v1/events", "after"), whole);
        assert_eq!(schema("/v1/events/stream", "after"), whole);
        assert_eq!(schema("/v1/history", "points")["maximum"], 1000, "it has one of its own");
    }

    #[test]
    fn calls_that_are_carried_out_once_say_so() {
        let mut document = crate::http::api().into_openapi();
        say_of_each(&mut document);
        let document: Value = serde_json::to_value(&document).unwrap();
        let keys = |method: &str, path: &str| {
            let parameters = document["paths"][path][method]["parameters"].as_array();
            let is_key = |one: &&Value| one["name"] == "Idempotency-Key" && one["in"] == "header";
            parameters.into_iter().flatten().filter(is_key).cloned().collect::<Vec<Value>>()
        };
        for path in ["/v1/volumes", "/v1/volumes/{name}/verify", "/v1/tokens", "/v1/pools/{name}/reopen"] {
            let [key]: [Value; 1] = keys("post", path).try_into().unwrap();
            assert_eq!(
                (&key["required"], &key["schema"]["maxLength"]),
                (&json!(false), &json!(128)),
                "{path}"
            );
        }
        for (method, path) in [("get", "/v1/volumes"), ("delete", "/v1/jobs/{id}"), ("post", "/v1/login")] {
            assert!(keys(method, path).is_empty(), "{method} {path}");
        }
    }
}
