//! Dry runs: they report the steps, are refused like the change itself, and change nothing.

use serde_json::{Value, json};

use super::rig::{Answer, MIB, Rig};

/// The steps of a dry run.
#[track_caller]
fn would(answer: &Answer) -> Vec<String> {
    let told = answer.json(200);
    let steps = told["would"].as_array().unwrap();
    steps.iter().map(|step| step.as_str().unwrap().to_owned()).collect()
}

#[test]
fn creating_a_pool_shows_what_its_disks_hold() {
    let rig = Rig::new();
    let (new, used) = (rig.path("new"), rig.path("used"));
    std::fs::write(&used, vec![7; 32 << 20]).unwrap();
    let pool = |name: &str, disks: Value, wipe: bool| json!({"name": name, "disks": disks, "wipe": wipe});
    let told = |body: &Value| rig.post("/v1/pools?dry_run=true", body.clone());

    let made = pool("fast", json!([{"path": new, "size": 32 * MIB}]), false);
    let said = [
        format!("{new} is created for pool fast, a file of 32M"),
        "pool fast is then available for new volumes".to_owned(),
    ];
    assert_eq!(would(&told(&made)), said);
    assert!(!std::path::Path::new(&new).exists(), "nothing was done");
    let wiped = pool("fast", json!([{"path": used}]), true);
    let unknown = "becomes a disk of pool fast; its content is destroyed: unknown data";
    assert!(would(&told(&wiped))[0].ends_with(unknown));
    assert!(std::fs::read(&used).unwrap() == vec![7; 32 << 20], "nothing was done");
    assert_eq!(rig.names("/v1/pools"), ["default"]);

    // Refused like the change itself.
    let twice = json!([{"path": new, "size": 32 * MIB}, {"path": new, "size": 32 * MIB}]);
    let refused = [
        (pool("default", json!([{"path": new, "size": 32 * MIB}]), false), 409, "pool_exists"),
        (pool("no name", json!([{"path": new, "size": 32 * MIB}]), false), 422, "name_invalid"),
        (pool("fast", json!([]), false), 422, "no_disks"),
        (pool("fast", json!([{"path": used}]), false), 409, "disk_not_empty"),
        (pool("fast", json!([{"path": rig.path("missing")}]), false), 422, "disk_unusable"),
        (pool("fast", json!([{"path": rig.path("no/such"), "size": 32 * MIB}]), false), 422, "disk_unusable"),
        (pool("fast", json!([{"path": used, "size": 32 * MIB}]), true), 422, "disk_unusable"),
        (pool("fast", json!([{"path": used}, {"path": used}]), true), 422, "disk_unusable"),
        (pool("fast", twice, false), 422, "disk_unusable"),
        (pool("fast", json!([{"path": rig.path("default.pool")}]), true), 422, "disk_unusable"),
        (pool("fast", json!([{"path": new, "size": MIB}]), false), 422, "disk_too_small"),
        (pool("fast", json!([{"path": "relative"}]), false), 422, "field_invalid"),
    ];
    for (body, status, code) in refused {
        told(&body).refused(status, code);
        rig.post("/v1/pools", body).refused(status, code);
    }

    // What the dry run says is possible; and a disk of a pool says which pool.
    rig.post("/v1/pools", wiped).json(201);
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "pool": "fast", "map": false})).json(201);
    rig.post("/v1/pools/fast/export", json!({})).empty(204);
    let again = pool("other", json!([{"path": used}]), true);
    let held = "a disk of pool fast, which test has exported, with volumes db";
    assert!(would(&told(&again))[0].ends_with(held), "{:?}", would(&told(&again)));
    rig.post("/v1/pools/import", json!({"paths": [used]})).json(201);
    assert_eq!(rig.names("/v1/volumes"), ["db"]);
}

#[test]
fn importing_a_pool_shows_its_contents_and_its_former_node() {
    let (rig, other) = (Rig::new(), Rig::new());
    let path = other.path("far");
    let told = |import: Value| rig.post("/v1/pools/import?dry_run=true", import);
    other.post("/v1/pools", json!({"name": "far", "disks": [{"path": path, "size": 32 * MIB}]})).json(201);
    other.post("/v1/volumes", json!({"name": "db", "size": MIB, "pool": "far", "map": false})).json(201);
    // While the other node has it open.
    told(json!({"paths": [path], "force": true})).refused(422, "disk_unusable");
    // The disk as the other node left it when it failed.
    let lost = rig.path("lost");
    std::fs::copy(&path, &lost).unwrap();
    let import = |force: bool| json!({"paths": [lost], "force": force});
    let before = std::fs::read(&lost).unwrap();
    told(import(false)).refused(409, "pool_used_elsewhere");
    let steps = would(&told(import(true)));
    assert_eq!(steps[0], format!("pool far on {lost} is imported to this node"));
    assert!(steps[1].starts_with("test used it last and has not exported it"));
    assert_eq!(steps[2], "volume db becomes available with it");
    let renamed = json!({"paths": [lost], "force": true, "name": "near"});
    assert!(would(&told(renamed))[0].ends_with("and renamed to near"));
    told(json!({"paths": [lost], "force": true, "name": "default"})).refused(409, "pool_exists");
    told(json!({"paths": [lost], "force": true, "name": "no name"})).refused(422, "name_invalid");
    told(json!({"paths": [rig.path("missing")]})).refused(422, "disk_unusable");
    told(json!({"paths": []})).refused(422, "no_disks");
    assert!(std::fs::read(&lost).unwrap() == before, "nothing was written");
    assert_eq!(rig.names("/v1/pools"), ["default"]);

    rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "map": false})).json(201);
    told(import(true)).refused(409, "volume_exists");
    rig.delete("/v1/volumes/db").empty(204);
    rig.post("/v1/pools/import", import(true)).json(201);
}

#[test]
fn adding_a_disk_says_that_it_is_permanent() {
    let rig = Rig::new();
    let (new, used) = (rig.path("new"), rig.path("used"));
    std::fs::write(&used, vec![7; 32 << 20]).unwrap();
    let before = rig.get("/v1/pools/default").json(200);
    let told = |pool: &str, disk: Value| rig.post(&format!("/v1/pools/{pool}/disks?dry_run=true"), disk);
    let steps = would(&told("default", json!({"path": new, "size": 64 * MIB})));
    assert_eq!(steps[0], format!("{new} is created for pool default, a file of 64M"));
    assert!(steps[1].ends_with("until the disk is removed again"), "{steps:?}");
    let steps = would(&told("default", json!({"path": used, "wipe": true})));
    assert!(steps[0].ends_with("its content is destroyed: unknown data"), "{steps:?}");
    told("none", json!({"path": new, "size": 64 * MIB})).refused(404, "pool_not_found");
    let removed = |path: &str| rig.post("/v1/pools/default/remove-disk?dry_run=true", json!({"path": path}));
    let only = before["disks"][0]["path"].as_str().unwrap();
    removed(only).refused(409, "disk_only");
    removed(&new).refused(404, "disk_not_found");
    removed("relative").refused(422, "field_invalid");
    told("default", json!({"path": used})).refused(409, "disk_not_empty");
    told("default", json!({"path": new, "size": MIB / 8})).refused(422, "disk_too_small");
    told("default", json!({"path": rig.path("missing")})).refused(422, "disk_unusable");
    told("default", json!({"path": "relative"})).refused(422, "field_invalid");
    rig.post("/v1/pools/default/reopen?dry_run=true", json!({})).refused(409, "pool_works");
    rig.post("/v1/pools/none/reopen?dry_run=true", json!({})).refused(404, "pool_not_found");
    assert_eq!(rig.get("/v1/pools/default").json(200), before, "nothing was done");
    assert!(!std::path::Path::new(&new).exists());
}

#[test]
fn changing_a_host_group_or_a_user_shows_who_loses_access() {
    let rig = Rig::new();
    let (one, two) = ("iqn.2026-11.example:1", "iqn.2026-11.example:2");
    rig.post("/v1/hosts", json!({"name": "web", "initiators": [one], "addresses": ["10.0.0.0/8"]})).json(201);
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "host": "web"})).json(201);
    let before = rig.get("/v1/hosts/web").json(200);
    let told = |change: Value| rig.put("/v1/hosts/web?dry_run=true", change);
    let steps = would(&told(json!({"initiators": [two], "addresses": []})));
    let said = [
        format!("initiator {one} no longer matches"),
        format!("initiator {two} matches"),
        "any address matches".to_owned(),
        "hosts that no longer match lose access to 1 LUN mapped to the group".to_owned(),
    ];
    assert_eq!(steps, said);
    let same = json!({"initiators": [one], "addresses": ["10.0.0.0/8"]});
    assert_eq!(would(&told(same)), ["no change: host group web already has these settings"]);
    let chap = json!({"user": "web", "secret": "opensesame123"});
    let secret = json!({"initiators": [one], "addresses": ["10.0.0.0/8"], "chap": chap});
    assert!(would(&told(secret))[0].starts_with("the CHAP secret changes (CHAP name web)"));
    told(json!({"initiators": ["x"], "addresses": []})).refused(422, "name_invalid");
    told(json!({"initiators": [], "addresses": ["x"]})).refused(422, "field_invalid");
    rig.put("/v1/hosts/local?dry_run=true", json!({"initiators": [], "addresses": []}))
        .refused(409, "host_built_in");
    rig.put("/v1/hosts/none?dry_run=true", json!({"initiators": [], "addresses": []}))
        .refused(404, "host_not_found");
    assert_eq!(rig.get("/v1/hosts/web").json(200), before, "nothing was done");

    for (name, role) in [("eva", "admin"), ("tom", "viewer")] {
        let user = json!({"name": name, "role": role, "password": "correct horse battery"});
        rig.post("/v1/users", user).json(201);
    }
    let told = |name: &str, change: Value| rig.patch(&format!("/v1/users/{name}?dry_run=true"), change);
    let ended = "user tom is logged out on all nodes";
    let steps = would(&told("tom", json!({"role": "operator"})));
    assert_eq!(steps, ["user tom gets the role operator", ended]);
    let steps = would(&told("tom", json!({"password": "another horse battery"})));
    assert_eq!(steps, ["user tom gets a new password", ended]);
    let steps = would(&told("tom", json!({"name": "thomas"})));
    assert_eq!(steps, ["user tom is renamed to thomas", ended]);
    told("tom", json!({"name": "eva"})).refused(409, "user_exists");
    told("tom", json!({"name": "a b"})).refused(422, "name_invalid");
    told("tom", json!({"password": "short"})).refused(422, "field_invalid");
    told("eva", json!({"role": "viewer"})).refused(409, "last_admin");
    told("none", json!({"role": "viewer"})).refused(404, "user_not_found");
    let users = rig.get("/v1/users").json(200);
    assert_eq!(users["items"][1]["role"], "viewer", "{users}");
}

#[test]
fn deleting_a_token_names_its_owner() {
    let rig = Rig::new();
    let made = rig.post("/v1/tokens", json!({"name": "backup", "role": "viewer"})).json(201);
    let id = made["id"].as_str().unwrap();
    let steps = would(&rig.delete(&format!("/v1/tokens/{id}?dry_run=true")));
    assert_eq!(steps[0], format!("token backup ({id}, viewer), created by local, is deleted"));
    assert_eq!(steps.len(), 2);
    assert_eq!(rig.names("/v1/tokens"), ["backup"]);
    rig.delete("/v1/tokens/none?dry_run=true").refused(404, "token_not_found");
    rig.delete("/v1/jobs/change.99?dry_run=true").refused(404, "job_not_found");
    rig.delete(&format!("/v1/tokens/{id}")).empty(204);
    rig.delete(&format!("/v1/tokens/{id}?dry_run=true")).refused(404, "token_not_found");
}
