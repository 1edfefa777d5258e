//! What somebody should look after, seen from another node.

use serde_json::{Value, json};

use super::errands::{cluster_of, wait};
use super::rig::Rig;
use crate::clock::unix_now;

fn told(rig: &Rig, path: &str) -> Value {
    rig.get(path).json(200)
}

#[test]
fn any_node_tells_of_the_problems_of_all_and_who_does_not_answer() {
    let first = Rig::new();
    let mut second = Rig::prepared(|dir| std::fs::write(dir.join("audit"), "in the way").unwrap());
    cluster_of(&first, &second);
    wait("a log that cannot be written", || {
        told(&second, "/v1/problems")["items"][0]["since"]["at"].is_u64()
    });
    let of_all = told(&first, "/v1/problems?node=all");
    let [problem] = of_all["items"].as_array().unwrap().as_slice() else { panic!("{of_all}") };
    assert_eq!((&problem["node"], &problem["node_name"]), (&json!(2), &json!("test")));
    assert!(problem["text"].as_str().unwrap().contains("audit log"), "{problem}");
    assert_eq!((&problem["code"], problem.get("subject")), (&json!("audit_unavailable"), None));
    let (since, now) = (problem["since"]["at"].as_u64().unwrap(), unix_now());
    assert!((now - 60..=now).contains(&since), "{problem}");
    assert_eq!(of_all.get("missing"), None);
    assert_eq!(told(&first, "/v1/problems?node=2"), of_all);
    assert_eq!(told(&second, "/v1/problems"), of_all);
    assert_eq!(told(&first, "/v1/problems"), json!({"items": []}));
    assert_eq!(told(&first, "/v1/node")["problems"], json!([]));
    first.get("/v1/problems?node=7").refused(404, "node_not_found");
    first.get("/v1/problems?node=x").refused(400, "query_invalid");

    std::fs::remove_file(second.dir().join("audit")).unwrap();
    assert_eq!(second.get("/metrics").status, 200, "it is tried again");
    assert_eq!(told(&first, "/v1/problems?node=all"), json!({"items": []}));

    second.stop();
    wait("a node that is missed", || told(&first, "/v1/nodes")["items"][1]["up"] == false);
    let nodes = told(&first, "/v1/nodes");
    let (since, now) = (&nodes["items"][1]["down_since"], unix_now());
    assert!((now - 60..=now).contains(&since["at"].as_u64().unwrap()), "{nodes}");
    assert_eq!(since.get("or_earlier"), None, "it was heard of");
    assert_eq!(nodes["items"][0].get("down_since"), None);
    let of_all = told(&first, "/v1/problems?node=all");
    let missing = json!({"node": 2, "node_name": "test", "reason": "heartbeat timeout"});
    assert_eq!(of_all, json!({"items": [], "missing": [missing]}));
}
