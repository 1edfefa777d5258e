use base::{BlockSize, Chain, Lba};
use initiator::{Lun, Options, Session};
use serde_json::{Value, json};

use super::rig::{MIB, Rig};

#[test]
fn snapshots_come_and_go() {
    let rig = Rig::new();
    for (name, kind) in [("a", "log"), ("b", "log"), ("c", "thick")] {
        let new = json!({"name": name, "kind": kind, "size": 4 * MIB, "map": false});
        rig.post("/v1/volumes", new).json(201);
    }
    assert_eq!(rig.get("/v1/snapshots").json(200), json!({"items": []}));
    let taken = rig.post("/v1/snapshots", json!({"volumes": ["b", "a"], "name": "first"})).json(201);
    assert_eq!(
        (&taken["number"], &taken["name"], &taken["state"]),
        (&json!(1), &json!("first"), &json!("complete"))
    );
    assert_eq!((&taken["held"], taken["pause_us"].is_u64()), (&json!(false), true), "{taken}");
    let mut volumes: Vec<&str> =
        taken["volumes"].as_array().unwrap().iter().map(|of| of["volume"].as_str().unwrap()).collect();
    volumes.sort_unstable();
    assert_eq!(volumes, ["a", "b"]);
    let copy = &taken["volumes"][0]["copies"][0];
    assert_eq!((&copy["state"], &copy["frees"]), (&json!("present"), &json!(0)), "{copy}");
    assert_eq!(rig.names("/v1/snapshots"), ["first"]);
    assert_eq!(rig.names("/v1/snapshots?volume=a"), ["first"]);
    assert!(rig.names("/v1/snapshots?volume=c").is_empty());
    rig.get("/v1/snapshots?volume=d").refused(404, "volume_not_found");
    for path in ["first", "1"] {
        assert_eq!(rig.get(&format!("/v1/snapshots/{path}")).json(200)["number"], 1);
    }

    let again = rig.post("/v1/snapshots", json!({"volumes": ["a"], "name": "first"}));
    again.refused(409, "snapshot_exists");
    let thick = rig.post("/v1/snapshots", json!({"volumes": ["a", "c"], "name": "second"}));
    assert!(thick.refused(409, "snapshot_volume_kind")["hint"].as_str().unwrap().contains("--kind log"));
    rig.post("/v1/snapshots", json!({"volumes": [], "name": "second"})).refused(422, "field_invalid");
    rig.post("/v1/snapshots", json!({"volumes": ["a"], "name": "2"})).refused(422, "field_invalid");
    rig.post("/v1/snapshots", json!({"volumes": ["a"], "name": "a b"})).refused(422, "name_invalid");
    rig.delete("/v1/volumes/a").refused(409, "volume_has_snapshots");
    rig.post("/v1/volumes/a/convert", json!({"kind": "thick"})).refused(409, "volume_has_snapshots");

    assert_eq!(rig.patch("/v1/snapshots/1", json!({"held": true})).json(200)["held"], true);
    for query in ["", "?dry_run=true"] {
        rig.delete(&format!("/v1/snapshots/first{query}")).refused(409, "snapshot_held");
    }
    assert_eq!(rig.patch("/v1/snapshots/first", json!({"held": false})).json(200)["held"], false);
    let would = rig.delete("/v1/snapshots/first?dry_run=true").json(200)["would"].clone();
    assert_eq!(would.as_array().unwrap().len(), 2, "{would}");
    assert_eq!(rig.names("/v1/snapshots"), ["first"], "nothing was done");
    rig.delete("/v1/snapshots/first").empty(204);
    rig.delete("/v1/snapshots/none").refused(404, "snapshot_not_found");
    // Its volumes can go, although their space may not be free yet.
    rig.delete("/v1/volumes/a").empty(204);
}

#[test]
fn clones_come_and_go() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        let new = json!({"name": name, "kind": "log", "size": 4 * MIB, "map": false});
        rig.post("/v1/volumes", new).json(201);
    }
    rig.post("/v1/snapshots", json!({"volumes": ["a", "b"], "name": "both"})).json(201);
    rig.post("/v1/snapshots", json!({"volumes": ["a"], "name": "first"})).json(201);
    let clone = |path: &str, asked: Value| rig.post(&format!("/v1/snapshots/{path}"), asked);

    let would =
        clone("first/clones?dry_run=true", json!({"name": "c", "count": 3})).json(200)["would"].clone();
    assert!(would[0].as_str().unwrap().starts_with("3 volumes, c-1 to c-3, are created"), "{would}");
    assert_eq!(rig.names("/v1/volumes"), ["a", "b"], "nothing was done");
    let cloned = clone("first/clones", json!({"name": "c", "count": 3})).json(201);
    assert_eq!((&cloned["volume"], &cloned["snapshot"]), (&json!("a"), &json!("first")));
    assert_eq!((&cloned["used"], cloned["took_us"].is_u64()), (&json!(0), true), "{cloned}");
    let names: Vec<&str> =
        cloned["clones"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c-1", "c-2", "c-3"]);
    let shown = rig.get("/v1/volumes/c-2").json(200);
    assert_eq!(shown["clone_of"]["volume"], "a");
    assert_eq!((&shown["clone_of"]["snapshot"], &shown["kind"]), (&json!("first"), &json!("log")));
    assert_eq!((&shown["size"], &shown["maps"]), (&json!(4 * MIB), &json!([])));
    assert!(rig.get("/v1/volumes/a").json(200).get("clone_of").is_none());

    clone("both/clones", json!({"name": "d"})).refused(422, "field_invalid");
    let of_b = clone("both/clones", json!({"name": "d", "volume": "b"})).json(201);
    assert_eq!((&of_b["volume"], &of_b["clones"][0]["name"]), (&json!("b"), &json!("d")));
    clone("first/clones", json!({"name": "e", "volume": "b"})).refused(409, "not_in_snapshot");
    clone("first/clones", json!({"name": "c-3"})).refused(409, "volume_exists");
    clone("first/clones", json!({"name": "a b"})).refused(422, "name_invalid");
    clone("first/clones", json!({"name": "e", "count": 1001})).refused(422, "field_invalid");
    clone("first/clones", json!({"name": "e", "copies": 2})).refused(409, "too_few_nodes");
    clone("first/clones", json!({"name": "e", "copies": 1, "nodes": [1]})).refused(422, "field_invalid");
    clone("none/clones", json!({"name": "e"})).refused(404, "snapshot_not_found");

    for query in ["", "?dry_run=true"] {
        let refused = rig.delete(&format!("/v1/snapshots/first{query}")).refused(409, "snapshot_has_clones");
        assert!(refused["hint"].as_str().unwrap().contains("ursa volume list"), "{refused}");
    }
    for name in ["c-1", "c-2", "c-3"] {
        rig.delete(&format!("/v1/volumes/{name}")).empty(204);
    }
    rig.delete("/v1/snapshots/first").empty(204);
    rig.delete("/v1/snapshots/both").refused(409, "snapshot_has_clones");
}

#[test]
fn snapshots_have_labels_and_expire() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "a", "kind": "log", "size": 4 * MIB, "map": false})).json(201);
    let take = |name: &str, more: Value| {
        let mut new = json!({"volumes": ["a"], "name": name});
        new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rig.post("/v1/snapshots", new)
    };
    let taken = take("first", json!({"labels": {"app": "shop", "ticket": "4711"}})).json(201);
    assert_eq!(taken["labels"], json!({"app": "shop", "ticket": "4711"}));
    assert!(taken.get("expires").is_none(), "{taken}");
    let taken = take("second", json!({"expires_after": 3600, "labels": {"app": "mail"}})).json(201);
    assert_eq!(taken["expires"].as_u64().unwrap(), taken["created"].as_u64().unwrap() + 3600);
    let third = take("third", json!({})).json(201);
    assert!(third.get("labels").is_none(), "{third}");

    let listed = |query: &str| rig.names(&format!("/v1/snapshots?{query}"));
    assert_eq!(listed("label=app"), ["first", "second"]);
    assert_eq!(listed("label=app%3Dshop"), ["first"]);
    assert_eq!(listed("volume=a&label=app%3Dmail"), ["second"]);
    assert!(listed("label=app,by").is_empty());
    assert_eq!(listed("").len(), 3);
    rig.get("/v1/snapshots?label=app%3D").refused(400, "query_invalid");

    take("other", json!({"expires_after": 59})).refused(422, "field_invalid");
    take("other", json!({"labels": {"a b": "c"}})).refused(422, "field_invalid");
    let nine: serde_json::Map<String, Value> = (0..9).map(|key| (key.to_string(), json!("a"))).collect();
    take("other", json!({"labels": nine})).refused(422, "field_invalid");

    let path = "/v1/snapshots/second";
    let changed =
        rig.patch(path, json!({"expires_after": 0, "labels": {"by": "eva"}, "remove_labels": ["app"]}));
    let changed = changed.json(200);
    assert_eq!((&changed["labels"], changed.get("expires")), (&json!({"by": "eva"}), None));
    let changed = rig.patch(path, json!({"expires_after": 86_400})).json(200);
    assert!(changed["expires"].as_u64().unwrap() > taken["expires"].as_u64().unwrap());
    assert_eq!((&changed["held"], &changed["labels"]), (&json!(false), &json!({"by": "eva"})));
    rig.patch(path, json!({"expires_after": 1})).refused(422, "field_invalid");
    rig.patch(path, json!({"labels": {"a": ""}})).refused(422, "field_invalid");
}

#[test]
fn freeing_the_space_of_snapshots_is_paused_and_resumed() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "a", "kind": "log", "size": 4 * MIB, "map": false})).json(201);
    let freeings = || {
        let jobs = rig.get("/v1/jobs").json(200)["items"].as_array().unwrap().clone();
        jobs.into_iter().filter(|job| job["kind"] == "free_snapshots").collect::<Vec<Value>>()
    };
    assert!(freeings().is_empty());
    let pool = rig.get("/v1/pools").json(200)["items"][0].clone();
    let id = store::PoolId::parse(pool["id"].as_str().unwrap()).unwrap();
    rig.control(move |control| async move { control.pause_freeing(id, "eva").await });
    let job = freeings().remove(0);
    assert_eq!((&job["state"], &job["paused"]["by"]), (&json!("paused"), &json!("eva")), "{job}");
    assert_eq!((&job["subject"], &job["can_be_cancelled"]), (&pool["name"], &json!(false)), "{job}");
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    rig.delete(&path).refused(409, "job_not_cancellable");
    assert_eq!(rig.post(&format!("{path}/pause"), json!({})).json(200)["state"], "paused");
    let resumed = rig.post(&format!("{path}/resume"), json!({})).json(200);
    assert!(resumed.get("paused").is_none(), "{resumed}");
    assert!(freeings().is_empty());
    rig.get(&path).refused(404, "job_not_found");
}

#[test]
fn schedules_come_and_go() {
    let rig = Rig::new();
    for (name, kind) in [("a", "log"), ("b", "log"), ("c", "thick")] {
        let new = json!({"name": name, "kind": kind, "size": 4 * MIB, "map": false});
        rig.post("/v1/volumes", new).json(201);
    }
    assert_eq!(rig.get("/v1/snapshot-schedules").json(200), json!({"items": []}));
    let hourly = json!({"name": "hourly", "volumes": ["b", "a"], "every": 3600, "keep": 24, "daily": 7});
    let created = rig.post("/v1/snapshot-schedules", hourly.clone()).json(201);
    let counts = ["every", "keep", "daily", "weekly", "monthly", "snapshots"].map(|field| &created[field]);
    assert_eq!(counts.map(Value::as_u64), [3600, 24, 7, 0, 0, 0].map(Some));
    let mut volumes: Vec<&str> =
        created["volumes"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    volumes.sort_unstable();
    assert_eq!((volumes, &created["paused"]), (vec!["a", "b"], &json!(false)));
    assert_eq!(created["next"].as_u64().unwrap() % 3600, 0);
    assert!(created.get("last_snapshot").is_none() && created.get("missed_since").is_none(), "{created}");
    assert_eq!(rig.get("/v1/snapshot-schedules/hourly").json(200), created);
    assert_eq!(rig.names("/v1/snapshot-schedules"), ["hourly"]);

    rig.post("/v1/snapshot-schedules", hourly).refused(409, "snapshot_schedule_exists");
    let create = |field: &str, value: Value| {
        let mut new = json!({"name": "other", "volumes": ["a"], "every": 900, "keep": 4});
        new[field] = value;
        rig.post("/v1/snapshot-schedules", new)
    };
    create("every", json!(90)).refused(422, "field_invalid");
    create("keep", json!(0)).refused(422, "field_invalid");
    create("monthly", json!(900)).refused(422, "field_invalid");
    create("volumes", json!([])).refused(422, "field_invalid");
    create("name", json!("n".repeat(43))).refused(422, "field_invalid");
    create("name", json!("a b")).refused(422, "name_invalid");
    create("volumes", json!(["c"])).refused(409, "snapshot_volume_kind");
    create("volumes", json!(["d"])).refused(404, "volume_not_found");

    let path = "/v1/snapshot-schedules/hourly";
    let changed = rig.patch(path, json!({"volumes": ["a"], "weekly": 4, "paused": true})).json(200);
    assert_eq!((&changed["volumes"], &changed["weekly"]), (&json!(["a"]), &json!(4)));
    assert_eq!((&changed["keep"], &changed["paused"]), (&json!(24), &json!(true)));
    assert!(changed.get("next").is_none(), "{changed}");
    rig.patch(path, json!({"keep": 0, "daily": 0, "weekly": 0})).refused(422, "field_invalid");
    rig.patch("/v1/snapshot-schedules/none", json!({})).refused(404, "snapshot_schedule_not_found");

    let would = rig.delete(&format!("{path}?dry_run=true")).json(200)["would"].to_string();
    assert!(would.contains("no more snapshots of a are taken by schedule hourly"), "{would}");
    assert_eq!(rig.names("/v1/snapshot-schedules"), ["hourly"], "nothing was done");
    rig.delete(path).empty(204);
    let gone = rig.delete(path).refused(404, "snapshot_schedule_not_found");
    assert!(gone["hint"].as_str().unwrap().contains("ursa snapshot schedule list"), "{gone}");
}

#[test]
fn what_differs_between_snapshots_is_shown_in_pages() {
    let rig = Rig::new();
    for (name, map) in [("db", true), ("logs", false)] {
        let new = json!({"name": name, "kind": "log", "size": 4 * MIB, "map": map});
        rig.post("/v1/volumes", new).json(201);
    }
    let portal = rig.state.portals[0];
    // Blocks of 4 KiB, and the bytes that they are filled with.
    let take_after = |writes: &'static [(u64, u8)], name: &str| {
        rig.client(move || async move {
            let session =
                Session::connect(portal, "iqn.2026-11.io.ursa:db", &Options::default()).await.unwrap();
            session.make_ready(Lun(0)).await.unwrap();
            for (block, byte) in writes {
                let data = Chain::copy_of(&[*byte; 4096]);
                session.write(Lun(0), Lba(block * 8), data, BlockSize::B512).await.unwrap();
            }
        });
        rig.post("/v1/snapshots", json!({"volumes": ["db"], "name": name})).json(201);
    };
    take_after(&[(1, 7), (9, 7)], "first");
    take_after(&[(1, 8), (3, 8), (4, 8), (9, 7)], "second");
    take_after(&[(3, 0)], "third");
    let diff = |snapshot: &str, query: &str| rig.get(&format!("/v1/snapshots/{snapshot}/diff?{query}"));
    let range = |block: u64, blocks: u64, zeroed: bool| json!({"offset": 4096 * block, "len": 4096 * blocks, "zeroed": zeroed});
    let whole = json!({
        "volume": "db", "since": "first", "snapshot": "second", "size": 4 * MIB,
        "ranges": [range(1, 1, false), range(3, 2, false)],
    });
    for (snapshot, since) in [("second", "first"), ("2", "1")] {
        assert_eq!(diff(snapshot, &format!("volume=db&since={since}")).json(200), whole);
    }
    let page = diff("second", "volume=db&since=first&limit=1").json(200);
    assert_eq!((&page["ranges"], &page["next"]), (&json!([range(1, 1, false)]), &json!(8192)));
    let page = diff("second", "volume=db&since=first&limit=1&offset=8192").json(200);
    assert_eq!((&page["ranges"], page.get("next")), (&json!([range(3, 2, false)]), None));
    assert_eq!(diff("third", "volume=db&since=second").json(200)["ranges"], json!([range(3, 1, true)]));
    let all = diff("second", "volume=db").json(200);
    let has = json!([range(1, 1, false), range(3, 2, false), range(9, 1, false)]);
    assert_eq!((&all["ranges"], all.get("since")), (&has, None), "{all}");

    let read = |snapshot: &str, offset: u64, len: u64| {
        rig.get(&format!("/v1/snapshots/{snapshot}/data?volume=db&offset={offset}&len={len}"))
    };
    for (snapshot, byte) in [("first", "\u{7}"), ("2", "\u{8}")] {
        let found = read(snapshot, 4096 + 512, 2 * 4096 - 512);
        assert_eq!(found.status, 200);
        assert!(found.text == byte.repeat(4096 - 512) + &"\0".repeat(4096), "in snapshot {snapshot}");
    }
    assert_eq!(read("first", 0, 4 * MIB).text.len() as u64, 4 * MIB, "the whole volume");
    read("first", 4 * MIB - 1, 2).refused(422, "field_invalid");
    read("first", u64::MAX, 2).refused(422, "field_invalid");
    read("first", 0, 4 * MIB + 1).refused(422, "field_invalid");
    read("none", 0, 1).refused(404, "snapshot_not_found");
    rig.get("/v1/snapshots/first/data?volume=logs&offset=0&len=1").refused(409, "not_in_snapshot");
    rig.get("/v1/snapshots/first/data?volume=db&offset=0").refused(400, "query_invalid");

    diff("none", "volume=db&since=first").refused(404, "snapshot_not_found");
    diff("second", "volume=none&since=first").refused(404, "volume_not_found");
    diff("second", "volume=logs&since=first").refused(409, "not_in_snapshot");
    diff("second", &format!("volume=db&since=first&offset={}", 4 * MIB + 1)).refused(422, "field_invalid");
    for query in ["since=first", "volume=db&since=first&limit=0", "volume=db&since=first&limit=4097"] {
        diff("second", query).refused(400, "query_invalid");
    }
}

#[test]
fn volumes_are_restored_once_their_hosts_are_named() {
    let rig = Rig::new();
    for (name, map) in [("db", true), ("logs", false), ("other", false)] {
        let new = json!({"name": name, "kind": "log", "size": 4 * MIB, "map": map});
        rig.post("/v1/volumes", new).json(201);
    }
    rig.post("/v1/snapshots", json!({"volumes": ["db", "logs"], "name": "first"})).json(201);
    let restore = |query: &str, body: Value| rig.post(&format!("/v1/snapshots/first/restore{query}"), body);
    let would = restore("?dry_run=true", json!({})).json(200)["would"].to_string();
    for step in ["volume db becomes", "volume logs becomes", "is kept as a snapshot"] {
        assert!(would.contains(step), "{step} is not in {would}");
    }
    assert_eq!(rig.names("/v1/snapshots"), ["first"], "nothing was done");
    rig.post("/v1/snapshots/none/restore", json!({})).refused(404, "snapshot_not_found");
    restore("", json!({"volumes": ["none"]})).refused(404, "volume_not_found");
    restore("", json!({"volumes": ["other"]})).refused(409, "not_in_snapshot");

    let only_logs = json!({"volumes": ["logs"], "discard": true});
    let restored = restore("", only_logs.clone()).json(200);
    assert_eq!((&restored["snapshot"], &restored["volumes"]), (&json!("first"), &json!(["logs"])));
    assert!(restored.get("kept").is_none() && restored["pause_us"].is_u64(), "{restored}");
    assert_eq!(rig.names("/v1/snapshots"), ["first"]);

    let portal = rig.state.portals[0];
    rig.client(move || async move {
        let session = Session::connect(portal, "iqn.2026-11.io.ursa:db", &Options::default()).await.unwrap();
        session.make_ready(Lun(0)).await.unwrap();
        // The session stays logged in.
        rt::spawn(async move {
            let _session = session;
            std::future::pending::<()>().await;
        })
        .detach();
    });
    for query in ["", "?dry_run=true"] {
        let refused = restore(query, json!({})).refused(409, "volumes_in_use");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("volume db is in use by iqn.2026-01.org.ursa:initiator"), "{detail}");
        assert!(refused["hint"].as_str().unwrap().contains("--force"), "{refused}");
    }
    // No host sees this one.
    restore("", only_logs).json(200);
    let forced = restore("", json!({"force": true})).json(200);
    let kept = forced["kept"]["name"].as_str().unwrap();
    assert_eq!((kept, &forced["kept"]["state"]), ("before-restore-of-first-4", &json!("complete")));
    assert_eq!(rig.names("/v1/snapshots?volume=db"), ["first", kept]);
}
