use serde_json::json;

use super::rig::{MIB, Rig};

#[test]
fn the_machines_block_devices_are_listed() {
    let rig = Rig::new();
    rig.get("/v1/disks?node=2").refused(404, "node_not_found");
    rig.get("/v1/disks?node=all").refused(400, "query_invalid");
    if !std::path::Path::new("/sys/class/block").exists() {
        rig.get("/v1/disks").refused(500, "disks_unknown");
        return;
    }
    for disk in rig.get("/v1/disks").json(200)["items"].as_array().unwrap() {
        assert!(disk["path"].as_str().unwrap().starts_with("/dev/"), "{disk}");
        assert!(disk["size"].as_u64().unwrap() > 0, "{disk}");
        let is_empty = disk["holds"] == "nothing" && disk.get("mounted_at").is_none();
        assert!(disk["unused"] == is_empty, "{disk}");
    }
}

#[test]
fn a_pool_is_created_exported_and_imported_again() {
    let rig = Rig::new();
    assert_eq!(rig.names("/v1/pools"), ["default"]);
    let path = rig.path("fast.pool");
    let new = json!({"name": "fast", "disks": [{"path": path, "size": 32 * MIB}]});
    let pool = rig.post("/v1/pools", new.clone()).json(201);
    assert_eq!(pool["name"], "fast");
    assert_eq!(pool["state"], "online");
    assert_eq!(pool["volumes"], 0);
    assert_eq!(pool["disks"][0]["path"], path);
    assert!(pool["free"].as_u64().unwrap() > 16 * MIB);
    assert_eq!(pool["free"], pool["total"]);
    assert_eq!(rig.get("/v1/pools/fast").json(200), pool);
    assert_eq!(rig.names("/v1/pools"), ["default", "fast"]);
    rig.post("/v1/pools", new).refused(409, "pool_exists");

    rig.post("/v1/volumes", json!({"name": "db", "size": 4 * MIB, "pool": "fast"})).json(201);
    let pool = rig.get("/v1/pools/fast").json(200);
    assert_eq!(pool["volumes"], 1);
    assert!(pool["free"].as_u64().unwrap() <= pool["total"].as_u64().unwrap() - 4 * MIB);
    let mapped = rig.post("/v1/pools/fast/export", json!({})).refused(409, "volume_mapped");
    // The call has no option that also deletes maps.
    assert_eq!(mapped["hint"], "delete the map first: `ursa map delete iqn.2026-11.io.ursa:db 0`");
    rig.delete("/v1/targets/iqn.2026-11.io.ursa:db?force=true").empty(204);
    rig.post("/v1/pools/fast/export", json!({})).empty(204);
    assert_eq!(rig.names("/v1/pools"), ["default"]);
    assert!(rig.names("/v1/volumes").is_empty());
    rig.get("/v1/pools/fast").refused(404, "pool_not_found");
    rig.post("/v1/pools/fast/export", json!({})).refused(404, "pool_not_found");

    let import = json!({"paths": [path]});
    let pool = rig.post("/v1/pools/import", import.clone()).json(201);
    assert_eq!((&pool["name"], &pool["volumes"]), (&json!("fast"), &json!(1)));
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
    let problem = rig.post("/v1/pools/import", import).json(422);
    assert_eq!(problem["code"], "disk_unusable", "{problem}");
}

#[test]
fn a_pool_with_colliding_names_is_released() {
    let rig = Rig::new();
    let path = rig.path("other.pool");
    rig.post("/v1/pools", json!({"name": "other", "disks": [{"path": path, "size": 32 * MIB}]})).json(201);
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "pool": "other", "map": false})).json(201);
    rig.post("/v1/pools/other/export", json!({})).empty(204);
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "map": false})).json(201);
    let import = json!({"paths": [path]});
    rig.post("/v1/pools/import", import.clone()).refused(409, "volume_exists");
    assert_eq!(rig.names("/v1/pools"), ["default"]);
    rig.delete("/v1/volumes/db").empty(204);
    rig.post("/v1/pools/import", import).json(201);
}

#[test]
fn disks_that_are_none_are_refused() {
    let rig = Rig::new();
    let create = |name: &str, disks| rig.post("/v1/pools", json!({"name": name, "disks": disks}));
    create("p", json!([])).refused(422, "no_disks");
    create("p", json!([{"path": rig.path("missing")}])).refused(422, "disk_unusable");
    create("p", json!([{"path": rig.dir()}])).refused(422, "disk_unusable");
    create("p", json!([{"path": "relative", "size": 32 * MIB}])).refused(422, "field_invalid");
    create("p", json!([{"path": rig.path("small"), "size": MIB}])).refused(422, "disk_too_small");
    create("p", json!([{"path": rig.path("x"), "preallocate": true}])).refused(422, "field_invalid");
    create("no name", json!([{"path": rig.path("x"), "size": 32 * MIB}])).refused(422, "name_invalid");

    let used = rig.path("used");
    std::fs::write(&used, vec![7; 32 << 20]).unwrap();
    create("p", json!([{"path": used}])).refused(409, "disk_not_empty");
    rig.post("/v1/pools/import", json!({"paths": [used]})).refused(422, "not_a_pool");
    rig.post("/v1/pools/import", json!({"paths": []})).refused(422, "no_disks");
    rig.post("/v1/pools/import", json!({"paths": ["relative"]})).refused(422, "field_invalid");
    let wiped = json!({"name": "p", "disks": [{"path": used}], "wipe": true});
    assert_eq!(rig.post("/v1/pools", wiped).json(201)["state"], "online");

    let problem = rig.post("/v1/volumes", json!({"name": "a", "size": 4 * MIB, "pool": "none"}));
    problem.refused(404, "pool_not_found");
}

#[test]
fn a_pool_in_use_is_not_forgotten() {
    let rig = Rig::new();
    rig.post("/v1/pools/default/reopen", json!({})).refused(409, "pool_works");
    rig.post("/v1/pools/none/reopen", json!({})).refused(404, "pool_not_found");
    rig.get("/v1/pools/default/remains").refused(409, "pool_open");
    rig.post("/v1/pools/default/forget", json!({})).refused(409, "pool_open");
    rig.post("/v1/pools/default/forget", json!({"unmap": true})).refused(409, "pool_open");
    rig.post("/v1/pools/default/forget?dry_run=true", json!({})).refused(409, "pool_open");
    rig.post("/v1/pools/none/forget?dry_run=true", json!({})).refused(404, "pool_not_found");
    rig.post("/v1/pools/default/forget", json!({"maps": true})).refused(422, "field_invalid");
    rig.get("/v1/pools/none/remains").refused(404, "pool_not_found");
    rig.get("/v1/pools/default?node=2").refused(404, "node_not_found");
    rig.post("/v1/pools/default/export?node=2", json!({})).refused(404, "node_not_found");
    rig.post("/v1/pools/none/forget", json!({})).refused(404, "pool_not_found");
    assert_eq!(rig.names("/v1/pools"), ["default"]);
}

#[test]
fn disks_are_added_to_a_pool_that_has_room_for_them() {
    let rig = Rig::new();
    let free = rig.get("/v1/pools/default").json(200)["free"].as_u64().unwrap();
    let add = |pool: &str, disk| rig.post(&format!("/v1/pools/{pool}/disks"), disk);
    add("none", json!({"path": rig.path("x"), "size": 64 * MIB})).refused(404, "pool_not_found");
    assert_eq!(add("default", json!({"path": "relative"})).refused(422, "field_invalid")["field"], "path");
    add("default", json!({"path": rig.path("x"), "preallocate": true})).refused(422, "field_invalid");
    add("default", json!({"path": rig.path("missing")})).refused(422, "disk_unusable");
    add("default", json!({"path": rig.path("small"), "size": MIB / 8})).refused(422, "disk_too_small");
    let used = rig.path("used");
    std::fs::write(&used, vec![7; 32 << 20]).unwrap();
    add("default", json!({"path": used})).refused(409, "disk_not_empty");
    let pool = add("default", json!({"path": used, "wipe": true})).json(201);
    assert!(pool["free"].as_u64().unwrap() > free + 24 * MIB, "{pool}");
    assert_eq!(pool["disks"][1]["path"], used);
    assert_eq!(rig.get("/v1/pools/default").json(200), pool);
}
