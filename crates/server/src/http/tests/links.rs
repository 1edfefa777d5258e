//! The links between nodes, as seen from each node.

use serde_json::{Value, json};

use super::forwarding::{cluster_of, wait};
use super::rig::Rig;

fn links(rig: &Rig, path: &str) -> Vec<Value> {
    rig.get(path).json(200)["items"].as_array().unwrap().clone()
}

#[test]
fn any_node_lists_the_links_between_all() {
    let (first, mut second) = (Rig::new(), Rig::new());
    assert!(links(&first, "/v1/links").is_empty() && links(&first, "/v1/links?node=all").is_empty());
    cluster_of(&first, &second);
    let all_up = |rig: &Rig| {
        let links = links(rig, "/v1/links?node=all");
        links.len() == 2 && links.iter().all(|link| link["state"] == "up")
    };
    wait("links that are up", || all_up(&first) && all_up(&second));

    let all = first.get("/v1/links?node=all").json(200);
    assert_eq!(all.get("missing"), None);
    let ends = |link: &Value| (link["node"].clone(), link["peer"].clone());
    let [one, other] = all["items"].as_array().unwrap().as_slice() else { panic!("{all}") };
    assert_eq!((ends(one), ends(other)), ((json!(1), json!(2)), (json!(2), json!(1))));
    for link in [one, other] {
        assert_eq!((&link["node_name"], &link["peer_name"]), (&json!("test"), &json!("test")));
        assert_eq!(link["encrypted"], true, "{link}");
        // Both nodes run on two cores.
        for (role, count) in [("control", 1), ("replication", 2)] {
            let of_role = &link[role];
            assert_eq!((&of_role["up"], &of_role["of"]), (&json!(count), &json!(count)), "{link}");
            assert_eq!(of_role["addresses"], json!(["127.0.0.1"]), "{link}");
            assert!(of_role["age"].as_u64().unwrap() < 60, "{link}");
            assert!(of_role["silence"].as_u64().unwrap() < 60, "{link}");
        }
    }
    assert_eq!(links(&first, "/v1/links").iter().map(ends).collect::<Vec<_>>(), [ends(one)]);
    assert_eq!(links(&first, "/v1/links?node=2").iter().map(ends).collect::<Vec<_>>(), [ends(other)]);
    assert_eq!(links(&second, "/v1/links").iter().map(ends).collect::<Vec<_>>(), [ends(other)]);
    first.get("/v1/links?node=7").refused(404, "node_not_found");
    first.get("/v1/links?node=x").refused(400, "query_invalid");

    second.stop();
    wait("a link that is down", || links(&first, "/v1/links")[0]["state"] == "down");
    wait("a node that is missed", || first.get("/v1/nodes").json(200)["items"][1]["up"] == false);
    let all = first.get("/v1/links?node=all").json(200);
    let missing = json!([{"node": 2, "node_name": "test", "reason": "heartbeat timeout"}]);
    assert_eq!(all["missing"], missing, "{all}");
    let [link] = all["items"].as_array().unwrap().as_slice() else { panic!("{all}") };
    for (role, of) in [("control", 1), ("replication", 2)] {
        let of_role = &link[role];
        assert_eq!((&of_role["up"], &of_role["of"]), (&json!(0), &json!(of)), "{link}");
        assert_eq!((&of_role["addresses"], of_role.get("age")), (&json!([]), None), "{link}");
        assert!(of_role["silence"].is_u64(), "it is said when it was heard last: {link}");
    }
}
