//! Findings of a cluster, as seen from each node.

use serde_json::{Value, json};
use terms::clock::unix_now;

use super::forwarding::{cluster_of, wait};
use super::rig::Rig;

/// All findings except that two nodes have no witness.
fn findings(rig: &Rig) -> Vec<Value> {
    let found = rig.get("/v1/findings").json(200);
    let items = found["items"].as_array().unwrap().iter();
    items.filter(|finding| finding["code"] != "no-witness").cloned().collect()
}

#[test]
fn any_node_finds_what_is_wrong_with_all_of_them() {
    let first = Rig::new();
    let mut second = Rig::prepared(|dir| std::fs::write(dir.join("audit"), "in the way").unwrap());
    cluster_of(&first, &second);
    let since = |rig: &Rig| findings(rig).first()?["since"]["at"].as_u64();
    wait("a log that cannot be written", || since(&second).is_some());
    let found = findings(&first);
    let [audit] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&audit["code"], &audit["severity"]), (&json!("audit-unavailable"), &json!("warning")));
    assert_eq!(audit["subject"], json!({"kind": "node", "name": "test", "node": 2}));
    assert_eq!(audit["seen_by"], json!([2]));
    let cause = audit["cause"].as_str().unwrap();
    assert!(cause.starts_with("Node 2 (test) cannot write the audit log in "), "{audit}");
    let now = unix_now();
    assert!((now - 60..=now).contains(&since(&first).unwrap()), "{audit}");
    assert_eq!(findings(&second), found);

    std::fs::remove_file(second.dir().join("audit")).unwrap();
    assert_eq!(second.get("/metrics").status, 200, "it is tried again");
    assert_eq!(findings(&first), [json!(null); 0]);

    second.stop();
    let is_down = || findings(&first).iter().any(|finding| finding["code"] == "node-down");
    wait("a node that is missed", is_down);
    let found = findings(&first);
    let nodes: Vec<_> = found.iter().filter(|finding| finding["subject"]["node"] == 2).collect();
    let [down] = nodes.as_slice() else { panic!("{found:?}") };
    let (since, now) = (&down["since"], unix_now());
    assert!((now - 60..=now).contains(&since["at"].as_u64().unwrap()), "{down}");
    assert_eq!(since.get("or_earlier"), None, "it was heard of");
}
