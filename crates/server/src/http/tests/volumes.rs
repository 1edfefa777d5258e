use serde_json::json;

use super::forwarding::wait;
use super::rig::{MIB, Rig};

const TARGET: &str = "iqn.2026-11.io.ursa:db";

#[test]
fn a_volume_can_be_used_as_soon_as_it_is_created() {
    let rig = Rig::new();
    let volume = rig.post("/v1/volumes", json!({"name": "db", "size": 4 * MIB})).json(201);
    assert_eq!(volume["name"], "db");
    assert_eq!(volume["pool"], "default");
    assert_eq!(volume["kind"], "thick");
    assert_eq!(volume["size"], 4 * MIB);
    assert_eq!((&volume["block_size"], &volume["physical_block_size"]), (&json!(512), &json!(4096)));
    assert_eq!(volume["slices"], 2);
    assert!(volume["reserved"].as_u64().unwrap() >= 4 * MIB);
    assert_eq!(volume["maps"], json!([{"target": TARGET, "lun": 0, "host": "local"}]));
    // A company identifier, then the volume's ID.
    let (id, naa) = (volume["id"].as_str().unwrap(), volume["naa"].as_str().unwrap());
    assert_eq!(naa, format!("6025552{}", &id[7..]));
    assert!(volume["created"].as_u64().unwrap() > 1_700_000_000);

    assert_eq!(rig.get("/v1/volumes/db").json(200), volume);
    assert_eq!(rig.get(&format!("/v1/volumes/{id}")).json(200), volume);
    assert_eq!(rig.get("/v1/volumes").json(200), json!({"items": [volume]}));
    let target = rig.get(&format!("/v1/targets/{TARGET}")).json(200);
    assert_eq!(target["maps"], json!([{"lun": 0, "volume": "db", "volume_id": id, "host": "local"}]));
}

#[test]
fn a_volumes_own_target_is_deleted_with_it_even_after_a_rename() {
    let rig = Rig::new();
    // A target that an administrator has created stays, whatever its name.
    rig.post("/v1/targets", json!({"name": "iqn.2026-11.io.ursa:own"})).json(201);
    for name in ["db", "own"] {
        rig.post("/v1/volumes", json!({"name": name, "size": MIB, "kind": "ram"})).json(201);
        rig.patch(&format!("/v1/volumes/{name}"), json!({"name": "renamed"})).json(200);
        let would = rig.delete("/v1/volumes/renamed?force=true&dry_run=true").json(200);
        let goes = would["would"].to_string().contains("iqn.2026-11.io.ursa:db, which was created with it");
        assert_eq!(goes, name == "db", "{would}");
        rig.delete("/v1/volumes/renamed?force=true").empty(204);
    }
    assert_eq!(rig.names("/v1/targets"), ["iqn.2026-11.io.ursa:own"]);
    // Also if it was unmapped before, but not if it was changed since.
    for alias in [None, Some("shared")] {
        rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "kind": "ram"})).json(201);
        rig.delete(&format!("/v1/targets/{TARGET}/maps/0")).empty(204);
        rig.patch(&format!("/v1/targets/{TARGET}"), json!({"alias": alias})).json(200);
        rig.delete("/v1/volumes/db").empty(204);
        assert_eq!(rig.names("/v1/targets").len(), if alias.is_some() { 2 } else { 1 });
    }
}

#[test]
fn a_volume_is_mapped_as_requested() {
    let rig = Rig::new();
    rig.post("/v1/hosts", json!({"name": "esx", "addresses": ["10.0.0.0/8"]})).json(201);
    let target = "iqn.2026-11.example:shared";
    let new = json!({
        "name": "a", "size": 1_000_000, "kind": "ram", "block_size": 4096, "slices": 1,
        "target": target, "host": "esx", "lun": 7,
    });
    let volume = rig.post("/v1/volumes", new).json(201);
    assert_eq!(volume["size"], 1_003_520, "rounded up to whole blocks");
    assert_eq!(volume["physical_block_size"], 4096);
    assert_eq!(volume["maps"], json!([{"target": target, "lun": 7, "host": "esx"}]));
    let new =
        json!({"name": "b", "size": MIB, "kind": "ram", "native_512": true, "target": target, "host": "esx"});
    let volume = rig.post("/v1/volumes", new).json(201);
    assert_eq!(volume["physical_block_size"], 512);
    assert_eq!(volume["maps"][0]["lun"], 0);
    let volume =
        rig.post("/v1/volumes", json!({"name": "c", "size": MIB, "kind": "ram", "map": false})).json(201);
    assert_eq!(volume["maps"], json!([]));
    assert_eq!(rig.names("/v1/targets"), [target]);
    // Characters that are not allowed in iSCSI names.
    let volume = rig.post("/v1/volumes", json!({"name": "Mail_2", "size": MIB, "kind": "ram"})).json(201);
    assert_eq!(volume["maps"][0]["target"], "iqn.2026-11.io.ursa:mail-2");
}

#[test]
fn a_volume_that_cannot_be_mapped_is_not_created() {
    let rig = Rig::new();
    let create = |more: serde_json::Value| {
        let mut new = json!({"name": "db", "size": 4 * MIB});
        new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rig.post("/v1/volumes", new)
    };
    let free = rig.get("/v1/pools/default").json(200)["free"].clone();
    create(json!({"host": "nobody"})).refused(404, "host_not_found");
    create(json!({"host": "no body"})).refused(422, "name_invalid");
    create(json!({"target": "nonsense"})).refused(422, "name_invalid");
    assert_eq!(create(json!({"lun": 256})).refused(422, "field_invalid")["field"], "lun");
    create(json!({"map": false, "lun": 1})).refused(422, "field_invalid");
    create(json!({"map": false, "host": "any"})).refused(422, "field_invalid");
    assert!(rig.names("/v1/volumes").is_empty());
    assert!(rig.names("/v1/targets").is_empty(), "targets that were made go, too");

    // An existing target stays as it was.
    rig.post("/v1/volumes", json!({"name": "other", "size": MIB, "kind": "ram", "target": TARGET})).json(201);
    create(json!({"lun": 0})).refused(409, "lun_taken");
    assert_eq!(rig.names("/v1/volumes"), ["other"]);
    assert_eq!(rig.names("/v1/targets"), [TARGET]);
    assert_eq!(rig.get("/v1/pools/default").json(200)["free"], free, "all space is back");
    assert_eq!(create(json!({})).json(201)["maps"][0]["lun"], 1);
}

#[test]
fn a_volume_that_cannot_be_is_refused() {
    let rig = Rig::new();
    let create = |name: &str, size: u64| rig.post("/v1/volumes", json!({"name": name, "size": size}));
    create("a", MIB).json(201);
    create("a", MIB).refused(409, "volume_exists");
    create("b", 0).refused(422, "field_invalid");
    create("b", u64::MAX).refused(422, "field_invalid");
    create("b", 1 << 40).refused(507, "no_space");
    create("", MIB).refused(422, "name_invalid");
    create("-b", MIB).refused(422, "name_invalid");
    create(&"b".repeat(64), MIB).refused(422, "name_invalid");
    let odd = |more: &str, value| rig.post("/v1/volumes", json!({"name": "b", "size": MIB, more: value}));
    assert_eq!(odd("block_size", json!(1024)).refused(422, "field_invalid")["field"], "block_size");
    assert_eq!(odd("slices", json!(3)).refused(422, "field_invalid")["field"], "slices");
    odd("kind", json!("tape")).refused(422, "field_invalid");
    let new = json!({"name": "b", "size": MIB, "block_size": 4096, "native_512": true});
    rig.post("/v1/volumes", new).refused(422, "field_invalid");
    rig.post("/v1/volumes", json!({"name": "b", "size": 1 << 30, "kind": "ram"})).refused(507, "no_memory");
    assert_eq!(rig.names("/v1/volumes"), ["a"]);
}

#[test]
fn a_volume_is_grown_and_renamed() {
    let rig = Rig::new();
    let before = rig.post("/v1/volumes", json!({"name": "db", "size": 4 * MIB})).json(201);
    rig.post("/v1/volumes", json!({"name": "other", "size": MIB})).json(201);
    let after = rig.patch("/v1/volumes/db", json!({"size": 8 * MIB, "name": "db2"})).json(200);
    assert_eq!((&after["id"], &after["name"]), (&before["id"], &json!("db2")));
    assert_eq!(after["size"], 8 * MIB);
    assert_eq!(after["maps"], before["maps"]);
    assert_eq!(rig.patch("/v1/volumes/db2", json!({"size": 8 * MIB})).json(200), after);
    assert_eq!(rig.patch("/v1/volumes/db2", json!({"name": "db2"})).json(200), after);
    assert_eq!(rig.patch("/v1/volumes/db2", json!({})).json(200), after);

    rig.patch("/v1/volumes/db2", json!({"size": 4 * MIB})).refused(422, "would_shrink");
    rig.patch("/v1/volumes/db2", json!({"name": "other"})).refused(409, "volume_exists");
    rig.patch("/v1/volumes/db2", json!({"name": "no name"})).refused(422, "name_invalid");
    rig.patch("/v1/volumes/nothing", json!({"name": "x"})).refused(404, "volume_not_found");
    rig.patch("/v1/volumes/db2", json!({"pool": "x"})).refused(422, "field_invalid");
    // Both changes or neither.
    rig.patch("/v1/volumes/db2", json!({"name": "db3", "size": 1_u64 << 40})).refused(507, "no_space");
    rig.patch("/v1/volumes/db2", json!({"name": "other", "size": 16 * MIB})).refused(409, "volume_exists");
    assert_eq!(rig.get("/v1/volumes/db2").json(200), after);
}

#[test]
fn a_volume_in_use_is_deleted_only_by_force() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB})).json(201);
    rig.delete("/v1/volumes/db").refused(409, "volume_mapped");
    rig.delete("/v1/volumes/db?force=false").refused(409, "volume_mapped");
    rig.delete("/v1/volumes/db?force=true").empty(204);
    rig.get("/v1/volumes/db").refused(404, "volume_not_found");
    rig.delete("/v1/volumes/db?force=true").refused(404, "volume_not_found");
    assert!(rig.names("/v1/targets").is_empty(), "the target that was made with it goes with it");

    rig.post("/v1/volumes", json!({"name": "a", "size": MIB, "map": false})).json(201);
    rig.delete("/v1/volumes/a").empty(204);

    // A target that an administrator has created stays.
    rig.post("/v1/targets", json!({"name": TARGET, "alias": "mine"})).json(201);
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB})).json(201);
    rig.delete("/v1/volumes/db?force=true").empty(204);
    assert_eq!(rig.names("/v1/targets"), [TARGET]);
}

/// Blocks of a log volume are allocated as they are written, so it may find its pool full.
#[test]
fn a_log_volume_has_a_policy_for_a_full_pool_and_perhaps_a_reserve() {
    let rig = Rig::new();
    let new = json!({"name": "vm", "size": 256 * MIB, "kind": "log", "when_full": "pause", "reserve": MIB});
    let volume = rig.post("/v1/volumes", new).json(201);
    assert_eq!((&volume["when_full"], &volume["reserved"]), (&json!("pause"), &json!(MIB)));
    let volume = rig.patch("/v1/volumes/vm", json!({"reserve": 0})).json(200);
    assert_eq!((&volume["when_full"], &volume["reserved"]), (&json!("pause"), &json!(0)));
    let would =
        rig.patch("/v1/volumes/vm?dry_run=true", json!({"when_full": "fail", "reserve": MIB})).json(200);
    let said = [
        "writes to volume vm fail at once when its pool is full",
        "the reserve of volume vm changes from 0 to 1M",
    ];
    assert_eq!(would["would"], json!(said));
    let volume = rig.patch("/v1/volumes/vm", json!({"when_full": "fail"})).json(200);
    assert_eq!(rig.get("/v1/volumes/vm").json(200), volume);
    assert_eq!(volume["when_full"], "fail");
    rig.patch("/v1/volumes/vm", json!({"reserve": 200 * MIB})).refused(507, "no_space");
    rig.patch("/v1/volumes/vm", json!({"reserve": 257 * MIB})).refused(422, "field_invalid");
    // A reserve is measured by the size that the volume gets. If it does not suit, the volume does not grow.
    let grown = json!({"size": 300 * MIB, "reserve": 301 * MIB});
    rig.patch("/v1/volumes/vm", grown).refused(422, "field_invalid");
    assert_eq!(rig.get("/v1/volumes/vm").json(200)["size"], 256 * MIB);
    let grown = json!({"size": 300 * MIB, "reserve": 299 * MIB});
    assert_eq!(
        rig.patch("/v1/volumes/vm?dry_run=true", grown).json(200)["would"][1],
        json!("the reserve of volume vm changes from 0 to 299M")
    );
    let thick = rig.post("/v1/volumes", json!({"name": "db", "size": 4 * MIB})).json(201);
    assert_eq!(thick.get("when_full"), None);
    for change in [json!({"when_full": "pause"}), json!({"reserve": MIB})] {
        rig.patch("/v1/volumes/db", change).refused(422, "field_invalid");
    }
}

#[test]
fn a_volume_is_converted_in_the_background() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "db", "size": 4 * MIB})).json(201);
    let path = "/v1/volumes/db/convert";
    let would = rig.post(&format!("{path}?dry_run=true"), json!({"kind": "log"})).json(200);
    assert!(would["would"][0].as_str().unwrap().contains("copies what is in use to the log"), "{would}");
    assert_eq!(rig.get("/v1/volumes/db").json(200)["kind"], "thick");
    let same = rig.post(&format!("{path}?dry_run=true"), json!({"kind": "thick"})).json(200);
    assert!(same["would"][0].as_str().unwrap().starts_with("no change"), "{same}");
    rig.post(path, json!({"kind": "ram"})).refused(422, "field_invalid");
    rig.post(path, json!({"kind": "log"})).json(202);
    wait("the conversion ends", || {
        let ended = rig.get("/v1/jobs?ended=true").json(200);
        ended["items"].as_array().unwrap().iter().any(|job| job["kind"] == "convert")
    });
    assert_eq!(rig.get("/v1/volumes/db").json(200)["kind"], "log");
    rig.patch("/v1/volumes/db", json!({"size": 5 * MIB})).json(200);
    // A thick volume has no reserve.
    rig.patch("/v1/volumes/db", json!({"reserve": MIB})).json(200);
    rig.post(path, json!({"kind": "thick"})).refused(422, "field_invalid");
}
