//! History: measured, kept and shown.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terms::clock::unix_now;

use super::rig::{MIB, Rig};
use crate::history::{EVERY, PoolUse, Row, Value as Kept};
use crate::http::{forecasts, history};

/// A measurement comes after ten seconds, or after fifteen, depending on the clock.
const MEASURED_DEADLINE: Duration = Duration::from_secs(60);

fn points(history: &Value, series: &str) -> Vec<Option<f64>> {
    let all = history["series"].as_array().unwrap();
    let one = all.iter().find(|one| one["series"] == series).unwrap();
    one["points"].as_array().unwrap().iter().map(Value::as_f64).collect()
}

#[test]
fn recorded_values_are_shown_step_by_step() {
    let rig = Rig::new();
    let nothing = rig.get("/v1/history?series=cpu").json(200);
    assert!(points(&nothing, "cpu").iter().all(Option::is_none));
    let now = unix_now() / 60 * 60;
    let row = |at: u64, cpu: f64| {
        let mut row = Row { at, step: EVERY, values: Default::default(), pools: Vec::new() };
        row.values[Kept::Cpu as usize] = Some(cpu);
        rig.state.history.keep(row);
    };
    row(now - 20, 0.25);
    row(now - 10, 0.5);
    row(now, 0.75);
    let path = format!("/v1/history?series=cpu,read_mean_us&from={}&to={}&points=10", now - 30, now);
    let end = Instant::now() + Duration::from_secs(10);
    while points(&rig.get(&path).json(200), "cpu")[..] != [Some(0.25), Some(0.5), Some(0.75)] {
        assert!(Instant::now() < end, "{}", rig.get(&path).text);
        thread::sleep(Duration::from_millis(10));
    }
    let shown = rig.get(&path).json(200);
    assert_eq!((&shown["from"], &shown["step_s"]), (&json!(now - 30), &json!(10)));
    assert_eq!(shown["series"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&shown["series"][1]["unit"], &shown["series"][0]["unit"]),
        (&json!("ratio"), &json!("microseconds"))
    );
    // A time for which only values per minute are kept.
    let minutes = rig.get(&format!("/v1/history?series=cpu&from={}&to={now}", now - 86_400)).json(200);
    assert_eq!((&minutes["step_s"], minutes.get("missing")), (&json!(240), None));

    for query in ["points=1", "points=1001", "points=x", "series=volumes", "from=5&to=5", "node=x", "to=-1"] {
        rig.get(&format!("/v1/history?{query}")).refused(400, "query_invalid");
    }
    rig.get("/v1/history?node=2").refused(404, "node_not_found");
    assert_eq!(rig.get("/v1/history?node=all&series=cpu").json(200)["series"].as_array().unwrap().len(), 1);
    rig.get(&format!("/v1/history?from=0&to={}", u64::MAX)).json(200);
}

#[test]
fn a_node_measures_itself() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB})).json(201);
    let measured = rig.tokio().spawn(history::keep(rig.state.clone()));
    let path = "/v1/history?series=pool_used_bytes,pool_size_bytes,read_operations,out_of_sync_bytes,cpu";
    let end = Instant::now() + MEASURED_DEADLINE;
    let shown = loop {
        // The rig's task runs only during such calls.
        rig.tokio().block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
        let shown = rig.get(path).json(200);
        if points(&shown, "cpu").iter().any(Option::is_some) {
            break shown;
        }
        assert!(Instant::now() < end, "nothing was measured: {shown}");
    };
    measured.abort();
    let last = |series: &str| points(&shown, series).into_iter().flatten().next_back().unwrap();
    let pool = rig.get("/v1/pools/default").json(200);
    assert_eq!(last("pool_size_bytes"), pool["total"].as_f64().unwrap());
    assert_eq!(
        last("pool_used_bytes"),
        (pool["total"].as_u64().unwrap() - pool["free"].as_u64().unwrap()) as f64
    );
    assert_eq!((last("read_operations"), last("out_of_sync_bytes")), (0.0, 0.0));
    assert!(last("cpu") >= 0.0 && last("pool_used_bytes") >= MIB as f64);
    let named = shown["series"].as_array().unwrap().iter().filter(|series| series["pool"] == "default");
    assert_eq!(named.count(), 2);
    assert!(rig.dir().join("history/10s").metadata().unwrap().len() > 0);
}

#[test]
fn the_time_until_a_pool_is_full_comes_from_its_history() {
    let rig = Rig::new();
    assert_eq!(rig.get("/v1/forecasts").json(200)["items"], json!([]), "nothing was kept yet");
    let pool = rig.get("/v1/pools/default").json(200);
    let id = u128::from_str_radix(pool["id"].as_str().unwrap(), 16).unwrap();
    // An eighth of the pool per day, for two days.
    let (now, size, hours) = (unix_now() / 60 * 60, pool["total"].as_u64().unwrap(), 48);
    for hour in 0..=hours {
        let pools = vec![PoolUse { id, used: size / 8 / 24 * hour, size }];
        let at = now - (hours - hour) * 3600;
        rig.state.history.keep(Row { at, step: EVERY, values: Default::default(), pools });
        // The thread answers after it has kept the rows before the request.
        rig.get("/v1/history?series=cpu").json(200);
    }
    let forecast = rig.get("/v1/forecasts?node=all").json(200)["items"][0].clone();
    assert_eq!(forecast["known_s"], hours * 3600, "{forecast}");
    assert_eq!((&forecast["pool"], &forecast["soon"]), (&json!("default"), &json!(true)));
    let days = forecast["full_in_s"].as_f64().unwrap() / 86_400.0;
    assert!((days - 6.0).abs() < 0.5, "{forecast}");
    assert!(forecast["text"].as_str().unwrap().contains("full in about 6 days"), "{forecast}");
    // The findings say it, too.
    let findings = || rig.get("/v1/findings").json(200)["items"].clone();
    assert_eq!(findings(), json!([]), "the node has not looked yet");
    rig.tokio().block_on(forecasts::look(&rig.state));
    let found = findings();
    let [finding] = &found.as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&finding["code"], &finding["severity"]), (&json!("pool-full-soon"), &json!("info")));
    assert!(finding["cause"].as_str().unwrap().contains("full in about 6 days"), "{finding}");
    rig.get("/v1/forecasts?node=x").refused(400, "query_invalid");
    rig.get("/v1/forecasts?node=2").refused(404, "node_not_found");
}
