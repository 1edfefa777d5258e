//! Floating IPs: added, configured by a node, removed.

use node::floating::Devices;
use serde_json::{Value, json};

use super::forwarding::wait;
use super::rig::Rig;

fn addresses(rig: &Rig) -> Vec<Value> {
    rig.get("/v1/floating-ips").json(200)["items"].as_array().unwrap().clone()
}

#[test]
fn an_address_is_declared_and_a_node_takes_it() {
    // These devices accept every request.
    let devices = Devices::new(|_| Box::pin(std::future::ready(Ok(()))));
    let rig = Rig::with(|_| {}, |config| config.devices = devices);
    rig.post("/v1/cluster", json!({"listen": ["127.0.0.1:0"]})).json(201);
    assert!(addresses(&rig).is_empty());
    for wrong in ["nonsense", "0.0.0.0/8", "127.0.0.1/8", "127.9.9.9/33", "127.9.9.9"] {
        let problem = rig.post("/v1/floating-ips", json!({"address": wrong})).refused(422, "field_invalid");
        assert_eq!(problem["field"], "address", "{wrong}");
    }
    let device = json!({"address": "127.9.9.9/8", "device": "no device"});
    assert_eq!(rig.post("/v1/floating-ips", device).refused(422, "field_invalid")["field"], "device");
    let preferred = json!({"address": "127.9.9.9/8", "prefer": 7});
    rig.post("/v1/floating-ips", preferred).refused(404, "node_not_found");

    let added = rig.post("/v1/floating-ips", json!({"address": "127.9.9.9/8", "nodes": [1]})).json(201);
    assert_eq!((&added["address"], &added["portal_group"]), (&json!("127.9.9.9/8"), &json!(65280)));
    rig.post("/v1/floating-ips", json!({"address": "127.9.9.9/16"})).refused(409, "address_exists");
    wait("a node that has it", || addresses(&rig)[0]["state"] == "held");
    let one = addresses(&rig).remove(0);
    assert_eq!((&one["holder"], &one["holder_name"]), (&json!(1), &json!("test")), "{one}");
    assert!(one["waits"] == false && one.get("troubles").is_none() && one["since"].is_u64(), "{one}");

    rig.delete("/v1/floating-ips/127.9.9.8").refused(404, "address_not_found");
    rig.delete("/v1/floating-ips/nonsense?dry_run=true").refused(404, "address_not_found");
    let would = rig.delete("/v1/floating-ips/127.9.9.9?dry_run=true").json(200);
    assert!(would["would"][0].as_str().unwrap().starts_with("test releases 127.9.9.9/8"), "{would}");
    assert_eq!(addresses(&rig).len(), 1);
    rig.delete("/v1/floating-ips/127.9.9.9").empty(204);
    assert!(addresses(&rig).is_empty());
}

#[test]
fn a_node_that_cannot_have_it_says_why() {
    let rig = Rig::new();
    rig.post("/v1/cluster", json!({"listen": ["127.0.0.1:0"]})).json(201);
    rig.post("/v1/floating-ips", json!({"address": "127.9.9.9/8"})).json(201);
    let trouble = || {
        let all = addresses(&rig);
        let trouble = &all[0]["troubles"][0];
        let why = trouble["text"].as_str().unwrap_or_default();
        trouble["node_name"] == "test" && why.contains("network devices")
    };
    wait("why it has it not", trouble);
    wait("that it gives it up", || addresses(&rig)[0].get("holder").is_none());
    assert_eq!(addresses(&rig)[0]["state"], "nobody");
}
