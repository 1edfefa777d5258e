//! Events and audit logs of all nodes, as one of them shows them.

use axum::body::Body;
use axum::http::Request;
use axum::http::header::AUTHORIZATION;
use serde_json::{Value, json};

use super::forwarding::{cluster_of, wait};
use super::rig::{MIB, Rig};

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().unwrap().clone()
}

/// The events of the node so far. A rig takes its events only while requests are sent to it.
fn seen(rig: &Rig) -> Vec<Value> {
    rig.get("/v1/volumes").json(200);
    items(&rig.get("/v1/events?limit=1000").json(200))
}

fn of_code(events: &[Value], code: &str) -> Vec<Value> {
    events.iter().filter(|event| event["code"] == code).cloned().collect()
}

fn numbers(list: &[Value]) -> Vec<u64> {
    list.iter().map(|item| item["id"].as_u64().unwrap()).collect()
}

fn make_host(rig: &Rig, name: &str) {
    let initiator = format!("iqn.2026-01.org.example:{name}");
    rig.post("/v1/hosts", json!({"name": name, "initiators": [initiator]})).json(201);
}

#[test]
fn any_node_lists_the_events_of_all_and_shared_ones_once() {
    let (first, mut second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let (_first, carrying) = (first.carry_out(), second.carry_out());
    make_host(&first, "a");
    let pool = json!({"name": "far", "disks": [{"path": second.path("far.pool"), "size": 64 * MIB}]});
    second.post("/v1/pools", pool).json(201);
    let has = |rig: &Rig, code: &str| !of_code(&seen(rig), code).is_empty();
    wait("both have seen it", || {
        has(&first, "host_created") && has(&second, "host_created") && has(&second, "pool_created")
    });

    let all = first.get("/v1/events?node=all&limit=1000").json(200);
    assert_eq!((&all["gap"], all.get("next"), all.get("missing")), (&json!(false), None, None));
    let of_all = items(&all);
    let [made]: [Value; 1] = of_code(&of_all, "host_created").try_into().unwrap();
    let mut seen_by: Vec<u64> =
        made["seen_by"].as_array().unwrap().iter().map(|node| node.as_u64().unwrap()).collect();
    seen_by.sort_unstable();
    assert_eq!((seen_by, made["revision"].is_u64(), made.get("node")), (vec![1, 2], true, None), "{made}");
    let of_far = of_code(&of_all, "pool_created").into_iter().filter(|event| event["subject"] == "far");
    let [pool]: [Value; 1] = of_far.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((&pool["seen_by"], &pool["node"]), (&json!([2]), &json!(2)), "{pool}");
    let started: Vec<Value> =
        of_code(&of_all, "node_started").into_iter().map(|event| event["seen_by"].clone()).collect();
    assert!(started.contains(&json!([1])) && started.contains(&json!([2])), "each node's own: {started:?}");
    let times: Vec<u64> = of_all.iter().map(|event| event["at"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // The result does not depend on the queried node.
    let by_second = items(&second.get("/v1/events?node=all&limit=1000").json(200));
    for code in ["host_created", "pool_created"] {
        assert_eq!(of_code(&by_second, code), of_code(&of_all, code));
    }
    assert_eq!(items(&first.get("/v1/events?node=all&limit=2").json(200)).len(), 2);
    // A filter by subject finds the event, however many others have followed.
    make_host(&first, "b");
    for path in ["/v1/events?node=all&subject=a&limit=1", "/v1/events?node=2&subject=a&limit=1"] {
        assert_eq!(of_code(&items(&first.get(path).json(200)), "host_created").len(), 1, "{path}");
    }
    assert_eq!(first.get("/v1/events?node=all&until=1").json(200)["items"], json!([]));

    // Page by page, by the node's own numbers.
    let told = || {
        let page = first.get("/v1/events?node=2&after=0&limit=1").json(200);
        let rest = first.get(&format!("/v1/events?node=2&after={}&limit=1000", page["next"])).json(200);
        [items(&page), items(&rest)].concat()
    };
    wait("all that it has seen", || numbers(&seen(&second)) == numbers(&told()));
    assert!(told().iter().all(|event| event["seen_by"] == json!([2])));

    first.get("/v1/events?node=all&after=0").refused(400, "query_invalid");
    first.get("/v1/events?after=1&until=5").refused(400, "query_invalid");
    first.get("/v1/events?node=x").refused(400, "query_invalid");
    first.get("/v1/events?node=7").refused(404, "node_not_found");

    drop(carrying);
    let missing = first.get("/v1/events?node=2").json(200);
    assert_eq!((&missing["items"], missing.get("next")), (&json!([]), None));
    let reason = missing["missing"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("or is stopping"), "nobody answers there: {reason}");
    second.stop();
    wait("a node that is missed", || first.get("/v1/nodes").json(200)["items"][1]["up"] == false);
    let all = first.get("/v1/events?node=all&limit=1000").json(200);
    let missing = json!([{"node": 2, "node_name": "test", "reason": "heartbeat timeout"}]);
    assert_eq!(all["missing"], missing);
    assert_eq!(of_code(&items(&all), "host_created")[0]["seen_by"], json!([1]));
}

const STREAM_OF_ALL: &str = "/v1/events/stream?node=all";

/// A request for a stream from this position.
fn from(place: &str, path: &str) -> Request<Body> {
    Request::get(path).header("last-event-id", place).body(Body::empty()).unwrap()
}

/// The events of a stream, and the position after them.
fn told(text: &str) -> (Vec<Value>, String) {
    // The data of a position message is empty.
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "{}");
    let place = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    (data.map(|data| serde_json::from_str(data).unwrap()).collect(), place.to_owned())
}

/// Whether the stream has sent a position.
fn has_place(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("id: ")) && text.ends_with("\n\n")
}

#[test]
fn a_stream_of_all_nodes_resumes_where_its_reader_was() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let carrying = second.carry_out();
    let make = |name: &str, count: usize| {
        make_host(&first, name);
        let have = |rig: &Rig| of_code(&seen(rig), "host_created").len() == count;
        wait("both have seen it", || have(&first) && have(&second));
    };
    let hosts = |events: &[Value]| -> Vec<Value> {
        of_code(events, "host_created").iter().map(|event| event["subject"].clone()).collect()
    };
    make("a", 1);
    // From the next event on.
    let (events, place) = told(&first.read_stream(STREAM_OF_ALL, has_place));
    assert_eq!(events, Vec::<Value>::new());
    make("b", 2);
    let (events, place) = told(&first.read_stream_of(from(&place, STREAM_OF_ALL), has_place));
    assert_eq!(hosts(&events), ["b"]);
    let seen_by = of_code(&events, "host_created")[0]["seen_by"].as_array().unwrap().len();
    assert_eq!(seen_by, 2, "it is told once: {events:?}");
    let (events, _) = told(&first.read_stream_of(from(&place, STREAM_OF_ALL), has_place));
    assert_eq!(hosts(&events), Vec::<Value>::new(), "all was told");

    // All stored events, including those of node 2, for which the reader has no position.
    let (all, _) = told(&first.read_stream_of(from("0,1:0", STREAM_OF_ALL), has_place));
    assert_eq!(hosts(&all), ["a", "b"]);
    let started: Vec<Value> =
        of_code(&all, "node_started").into_iter().map(|event| event["seen_by"].clone()).collect();
    assert!(started.contains(&json!([1])) && started.contains(&json!([2])), "each node's own: {started:?}");
    // An event number from before the start of node 2.
    let gap = first.read_stream_of(from("0,1:0,2:17", STREAM_OF_ALL), has_place);
    assert!(gap.contains("event: gap\ndata: {\"node\":2,\"after\":17}\n"), "{gap}");

    // The stream of one node has that node's own numbers.
    let (of_second, place) = told(&first.read_stream("/v1/events/stream?node=2&after=0", has_place));
    assert!(!of_second.is_empty() && numbers(&seen(&second)).starts_with(&numbers(&of_second)));
    assert_eq!(place, of_second.last().unwrap()["id"].to_string());

    // With a filter, the position still moves past all events.
    let of_b = from("0,1:0", &format!("{STREAM_OF_ALL}&subject=b"));
    let (of_b, _) = told(&first.read_stream_of(of_b, has_place));
    assert!(hosts(&of_b) == ["b"] && of_b.iter().all(|event| event["subject"] == "b"), "{of_b:?}");

    first.get("/v1/events/stream?node=all&after=0").refused(400, "query_invalid");
    first.get("/v1/events/stream?node=x").refused(400, "query_invalid");
    first.get("/v1/events/stream?node=7").refused(404, "node_not_found");
    first.send(from("17", STREAM_OF_ALL)).refused(400, "query_invalid");
    first.send(from("0,1:0", "/v1/events/stream?node=2")).refused(400, "query_invalid");

    drop(carrying);
    let silent = first.read_stream(STREAM_OF_ALL, |text| text.matches("event: missing").count() == 1);
    assert!(silent.contains("data: {\"node\":2,"), "{silent}");
}

#[test]
fn administrators_see_the_audit_log_of_other_nodes() {
    let (first, second) = (Rig::new(), Rig::new());
    cluster_of(&first, &second);
    let carrying = second.carry_out();
    make_host(&second, "a");
    second.delete("/v1/hosts/b").refused(404, "host_not_found");
    make_host(&first, "c");

    let all = first.get("/v1/audit?node=all&limit=1000").json(200);
    assert_eq!(all.get("missing"), None);
    let deeds = items(&all);
    let on_hosts = |node: u64| -> Vec<String> {
        let deeds = deeds
            .iter()
            .filter(|deed| deed["node"] == node && deed["action"].as_str().unwrap().contains("/v1/hosts"));
        deeds.map(|deed| format!("{} {} {}", deed["node_name"], deed["action"], deed["status"])).collect()
    };
    assert_eq!(on_hosts(1), [r#""test" "POST /v1/hosts" 201"#]);
    assert_eq!(on_hosts(2), [r#""test" "DELETE /v1/hosts/b" 404"#, r#""test" "POST /v1/hosts" 201"#]);
    let times: Vec<u64> = deeds.iter().map(|deed| deed["at"].as_u64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(items(&first.get("/v1/audit?node=all&limit=2").json(200)).len(), 2);
    assert_eq!(first.get("/v1/audit?node=all&until=1").json(200)["items"], json!([]));

    // Page by page, by the node's own numbers.
    let own = numbers(&items(&second.get("/v1/audit").json(200)));
    assert_eq!(numbers(&items(&first.get("/v1/audit?node=2").json(200))), own);
    let older = first.get(&format!("/v1/audit?node=2&before={}", own[0])).json(200);
    assert_eq!(numbers(&items(&older)), own[1..]);

    first.get("/v1/audit?node=all&before=3").refused(400, "query_invalid");
    first.get("/v1/audit?node=7").refused(404, "node_not_found");
    for role in ["viewer", "operator"] {
        let token = first.post("/v1/tokens", json!({"name": role, "role": role})).json(201);
        let secret = format!("Bearer {}", token["secret"].as_str().unwrap());
        let request = Request::get("/v1/audit?node=2").header(AUTHORIZATION, secret);
        first.send(request.body(Body::empty()).unwrap()).refused(403, "role_too_low");
    }

    drop(carrying);
    let all = first.get("/v1/audit?node=all").json(200);
    assert_eq!(all["missing"][0]["node"], 2);
    assert!(items(&all).iter().all(|deed| deed["node"] == 1));
}

#[test]
fn a_log_that_another_node_cannot_read_is_missing_with_why() {
    let first = Rig::new();
    let second = Rig::prepared(|dir| std::fs::create_dir_all(dir.join("audit/audit.jsonl")).unwrap());
    cluster_of(&first, &second);
    let _carrying = second.carry_out();
    second.get("/v1/audit").refused(500, "audit_unreadable");
    let all = first.get("/v1/audit?node=all").json(200);
    assert_eq!(all["missing"][0]["node"], 2);
    let reason = all["missing"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("audit log cannot be read"), "{reason}");
    assert!(!items(&all).is_empty(), "what this node was asked");
}

#[test]
fn paging_back_passes_a_second_with_more_events_than_a_page() {
    const HOSTS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let rig = Rig::new();
    HOSTS.iter().for_each(|name| make_host(&rig, name));
    wait("it has seen them", || of_code(&seen(&rig), "host_created").len() == HOSTS.len());
    let newest_first = |list: &Value| {
        let mut numbers = numbers(&items(list));
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        numbers
    };
    for path in ["/v1/events?", "/v1/events?node=all&", "/v1/audit?", "/v1/audit?node=all&"] {
        let all = rig.get(&format!("{path}limit=1000")).json(200);
        let until = items(&all).iter().map(|one| one["at"].as_u64().unwrap()).max().unwrap();
        let all = newest_first(&all);
        assert!(all.len() >= HOSTS.len(), "{all:?}");
        for skip in 0..=all.len() {
            let page = rig.get(&format!("{path}until={until}&skip={skip}&limit=2")).json(200);
            let expected: Vec<u64> = all.iter().skip(skip).take(2).copied().collect();
            assert_eq!(newest_first(&page), expected, "{path} {skip}");
        }
        rig.get(&format!("{path}skip=1")).refused(400, "query_invalid");
        rig.get(&format!("{path}until=5&skip=1000")).refused(400, "query_invalid");
        rig.get(&format!("{path}until=5&skip=999&limit=2")).refused(400, "query_invalid");
    }
}

#[test]
fn a_node_that_is_alone_lists_its_own_events() {
    let rig = Rig::new();
    make_host(&rig, "a");
    wait("it has seen it", || !of_code(&seen(&rig), "host_created").is_empty());
    let all = items(&rig.get("/v1/events?node=all&limit=1000").json(200));
    assert_eq!(of_code(&all, "host_created").len(), 1);
    assert_eq!(items(&rig.get("/v1/audit?node=all").json(200)).len(), 1);
    rig.get("/v1/events?node=1").json(200);
    rig.get("/v1/events?node=2").refused(404, "node_not_found");
    rig.get("/v1/audit?node=2").refused(404, "node_not_found");
    rig.get("/v1/events/stream?node=2").refused(404, "node_not_found");
    let (events, _) = told(&rig.read_stream_of(from("0,0:0", STREAM_OF_ALL), has_place));
    assert_eq!(of_code(&events, "host_created"), of_code(&all, "host_created"));
}
