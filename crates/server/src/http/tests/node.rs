use serde_json::json;

use super::rig::Rig;

#[test]
fn a_node_describes_itself_until_it_stops() {
    let mut rig = Rig::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(rig.get("/v1/health").json(200), json!({"status": "ok", "version": version}));
    let mut node = rig.get("/v1/node").json(200);
    assert!(node["uptime"].take().as_u64().unwrap() < 60);
    let record = node.as_object_mut().unwrap().remove("record").unwrap();
    assert_eq!((&record["place"], &record["answers"]), (&json!("nodes"), &json!(true)), "{record}");
    let portal = rig.state.portals[0].to_string();
    assert_eq!(
        node,
        json!({
            "name": "test", "version": version, "cores": 2, "portals": [portal], "uptime": null, "changes": [],
            "record_place": "nodes",
            "map_memory": {"used": 0, "limit": 1 << 30},
            "read_confirm": {"setting": "auto", "on": false},
        })
    );
    assert_eq!(rig.get("/v1/findings").json(200), json!({"items": []}));
    rig.stop();
    for path in ["/v1/health", "/v1/node", "/v1/findings", "/v1/volumes", "/metrics"] {
        rig.get(path).refused(503, "not_running");
    }
}

#[test]
fn the_node_describes_itself() {
    let rig = Rig::new();
    let document = rig.get("/v1/openapi.json").json(200);
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/volumes"]["post"].is_object());
}

#[test]
fn metrics_follow_what_there_is() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "db", "size": 1 << 20, "kind": "ram"})).json(201);
    let answer = rig.get("/metrics");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let lines: Vec<&str> = answer.text.lines().collect();
    for line in [
        r#"ursa_volume_capacity_bytes{volume="db",pool="default"} 1048576"#,
        r#"ursa_sessions{target="iqn.2026-11.io.ursa:db"} 0"#,
        r#"ursa_pool_state{pool="default",state="online"} 1"#,
        r#"ursa_pool_state{pool="default",state="read_only"} 0"#,
        r#"ursa_findings{severity="warning"} 0"#,
        r#"ursa_pool_volumes{pool="default"} 1"#,
        "ursa_discovery_sessions 0",
    ] {
        assert!(lines.contains(&line), "{line} is not in {}", answer.text);
    }
    assert!(answer.text.contains(r#"ursa_core_cpu_seconds_total{core="1"} "#));
    // There was no read and no write.
    assert!(!answer.text.contains("ursa_volume_operation_duration_seconds_bucket"));
}
