//! Paths and queries of URLs.

/// Encodes a name as one segment of a path or as a value of a query (RFC 3986 2.1: percent-encoded except for
/// letters, digits and `-._~`; a colon is allowed in both places, and every iSCSI name has one).
pub(super) fn segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A path with the number of the cluster node that is meant; `None` means the queried node.
pub(super) fn of_node(path: String, node: Option<u16>) -> String {
    match node {
        Some(node) if path.contains('?') => format!("{path}&node={node}"),
        Some(node) => format!("{path}?node={node}"),
        None => path,
    }
}

/// A path with the parameters that have a value.
pub(super) fn with_query<const N: usize>(path: &str, parameters: [(&str, Option<String>); N]) -> String {
    let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let given: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(&value))).collect();
    format!("{path}?{}", given.join("&"))
}

#[cfg(test)]
mod tests {
    use super::{of_node, segment, with_query};

    #[test]
    fn parameters_without_a_value_are_left_out() {
        let parameters = [("limit", Some("5".into())), ("after", None), ("node", Some("a&b".into()))];
        assert_eq!(with_query("/v1/events", parameters), "/v1/events?limit=5&node=a%26b");
    }

    #[test]
    fn a_node_is_named_behind_what_else_is_asked() {
        assert_eq!(of_node("/v1/pools".into(), None), "/v1/pools");
        assert_eq!(of_node("/v1/pools".into(), Some(2)), "/v1/pools?node=2");
        assert_eq!(
            of_node("/v1/pools/a/forget?dry_run=true".into(), Some(2)),
            "/v1/pools/a/forget?dry_run=true&node=2"
        );
    }

    #[test]
    fn names_stay_in_their_segment() {
        assert_eq!(segment("iqn.2026-11.io.ursa:db"), "iqn.2026-11.io.ursa:db");
        assert_eq!(segment("a/b?c=d&e#f%"), "a%2Fb%3Fc%3Dd%26e%23f%25");
        assert_eq!(segment("ä b"), "%C3%A4%20b");
    }
}
