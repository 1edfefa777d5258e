//! Events of the node, as a list and as a stream.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::rig::Rig;

/// The events after the one with this number, as soon as there is one with this code.
fn until(rig: &Rig, after: u64, code: &str) -> Vec<Value> {
    let answer = rig.read_stream(&format!("/v1/events/stream?after={after}"), |text| text.contains(code));
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn codes(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["code"].as_str().unwrap()).collect()
}

#[test]
fn changes_are_reported_with_names() {
    let rig = Rig::new();
    let events = until(&rig, 0, "node_started");
    let last = events.last().unwrap()["id"].as_u64().unwrap();
    rig.post("/v1/volumes", json!({"name": "db", "size": 1 << 20})).json(201);
    rig.patch("/v1/volumes/db", json!({"name": "mail", "size": 2 << 20})).json(200);
    rig.delete("/v1/volumes/mail?force=true").empty(204);
    let events = until(&rig, last, "volume_deleted");
    let told = codes(&events);
    for code in ["volume_created", "volume_renamed", "volume_resized", "volume_deleted"] {
        assert_eq!(told.iter().filter(|told| **told == code).count(), 1, "{code}: {events:?}");
    }
    let one = |code: &str| events.iter().find(|event| event["code"] == code).unwrap();
    let renamed = one("volume_renamed");
    assert_eq!(renamed["subject"], "mail");
    assert_eq!(renamed["text"], "volume db renamed to mail");
    let made = one("volume_created");
    assert_eq!((&made["subject"], &made["severity"]), (&json!("db"), &json!("info")));
    assert!(made["at"].as_u64().unwrap() > 1_700_000_000);

    // The same events as a list, page by page.
    let page = rig.get(&format!("/v1/events?after={last}&limit=1")).json(200);
    assert_eq!((&page["items"][0], &page["gap"]), (&events[0], &json!(false)));
    let rest = rig.get(&format!("/v1/events?after={}", page["next"])).json(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), events.len() - 1);
    rig.get("/v1/events?limit=x").refused(400, "query_invalid");
}

#[test]
fn events_of_a_volume_are_found_by_id_and_not_mixed_with_anothers() {
    let rig = Rig::new();
    let first = until(&rig, 0, "node_started").last().unwrap()["id"].as_u64().unwrap();
    let make = |name: &str| {
        let made = rig.post("/v1/volumes", json!({"name": name, "size": 1 << 20, "map": false})).json(201);
        made["id"].as_str().unwrap().to_owned()
    };
    let before = make("db");
    rig.patch("/v1/volumes/db", json!({"name": "mail"})).json(200);
    let after = make("db");
    rig.delete("/v1/volumes/db").empty(204);
    until(&rig, first, "volume_deleted");
    let of = |subject: &str| {
        let events = rig.get(&format!("/v1/events?subject={subject}")).json(200)["items"].clone();
        let told = events.as_array().unwrap().iter().map(|event| event["code"].as_str().unwrap().to_owned());
        told.collect::<Vec<String>>()
    };
    assert_eq!(of(&before), ["volume_created", "volume_renamed"]);
    assert_eq!(of(&after), ["volume_created", "volume_deleted"]);
    assert_eq!(of("db"), ["volume_created", "volume_created", "volume_deleted"], "whatever was called so");
    let stream = format!("/v1/events/stream?after={first}&subject={before}");
    let told = rig.read_stream(&stream, |text| text.contains("volume_renamed"));
    assert!(told.contains(&format!("\"subject_id\":\"{before}\"")), "{told}");
    assert!(!told.contains("volume_deleted"), "{told}");
}

#[test]
fn events_of_one_subject_are_found_among_all_others() {
    let rig = Rig::new();
    let first = until(&rig, 0, "node_started").last().unwrap()["id"].as_u64().unwrap();
    rig.post("/v1/volumes", json!({"name": "db", "size": 1 << 20, "map": false})).json(201);
    for name in ["a", "b", "last"] {
        let initiator = format!("iqn.2026-01.org.example:{name}");
        rig.post("/v1/hosts", json!({"name": name, "initiators": [initiator]})).json(201);
    }
    let all = until(&rig, first, "\"last\"");
    let items = |path: &str| rig.get(path).json(200)["items"].as_array().unwrap().clone();
    for path in ["/v1/events?subject=db&limit=1", "/v1/events?subject=db&until=99999999999"] {
        assert_eq!(codes(&items(path)), ["volume_created"], "{path}");
    }
    let page = rig.get(&format!("/v1/events?subject=db&after={first}")).json(200);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["gap"]), (1, &json!(false)));
    assert_eq!(page["next"], all.last().unwrap()["id"], "the others are passed over");
    assert_eq!(items("/v1/events?subject=d"), Vec::<Value>::new());

    let bad = items("/v1/events?severity=warning&limit=1000");
    assert!(bad.iter().all(|event| event["severity"] != "info"), "{bad:?}");
    assert!(items("/v1/events?severity=info&limit=1000").len() >= all.len());
    rig.get("/v1/events?severity=grave").refused(400, "query_invalid");
    rig.get(&format!("/v1/events?subject={}", "a".repeat(4097))).refused(400, "query_invalid");

    let stream = format!("/v1/events/stream?after={first}&subject=b");
    let told = rig.read_stream(&stream, |text| text.contains("host_created"));
    assert!(!told.contains("volume_created") && !told.contains("org.example:a"), "{told}");
}

#[test]
fn a_stream_resumes_where_it_was_and_reports_a_gap() {
    let rig = Rig::new();
    let first = until(&rig, 0, "node_started").last().unwrap()["id"].as_u64().unwrap();
    rig.post("/v1/hosts", json!({"name": "a", "initiators": ["iqn.2026-01.org.example:a"]})).json(201);
    let request =
        |id: &str| Request::get("/v1/events/stream").header("last-event-id", id).body(Body::empty()).unwrap();
    let again = rig.read_stream_of(request(&first.to_string()), |text| text.contains("host_created"));
    assert!(!again.contains("event: gap") && !again.contains("node_started"), "{again}");
    assert!(again.contains("\nid: "), "{again}");
    // A number from before the start of the node.
    let other = rig.read_stream_of(request("17"), |text| text.contains("host_created"));
    assert!(other.contains("event: gap\ndata: {\"after\":17}\n"), "{other}");
}

#[test]
fn live_figures_are_sent_every_second_until_the_node_stops() {
    let mut rig = Rig::new();
    let told = rig.read_stream("/v1/live", |text| text.matches("event: sample").count() >= 2);
    let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
    let samples: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    for sample in &samples {
        assert_eq!(sample["cores"].as_array().unwrap().len(), 2, "{sample}");
        let seconds = sample["seconds"].as_f64().unwrap();
        assert!((0.9..10.0).contains(&seconds), "{sample}");
        assert_eq!((&sample["read"]["operations"], &sample["volumes"]), (&json!(0.0), &json!([])));
    }
    assert!(samples[0]["at"].as_u64() <= samples[1]["at"].as_u64());
    rig.get("/v1/live?node=2").refused(400, "query_invalid");
    let alone = rig.read_stream("/v1/live?node=all", |text| text.contains("event: sample"));
    assert!(!alone.contains("event: missing"), "{alone}");
    rig.stop();
    let rest = rig.read_stream("/v1/live", |_| false);
    assert!(!rest.contains("event: sample"), "{rest}");
}

#[test]
fn a_stream_ends_with_the_node() {
    let mut rig = Rig::new();
    until(&rig, 0, "node_started");
    rig.stop();
    let rest = rig.read_stream("/v1/events/stream?after=0", |_| false);
    assert!(rest.contains("node_started"), "what it knew is told: {rest}");
}
