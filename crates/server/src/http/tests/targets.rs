use serde_json::json;

use super::rig::{MIB, Rig};

const TARGET: &str = "iqn.2026-11.example:t";

#[test]
fn targets_and_maps_come_and_go() {
    let rig = Rig::new();
    let target = rig.post("/v1/targets", json!({"name": TARGET, "alias": "a target"})).json(201);
    assert_eq!(target, json!({"name": TARGET, "alias": "a target", "chap_user": null, "maps": []}));
    assert_eq!(rig.get("/v1/targets").json(200), json!({"items": [target]}));
    rig.post("/v1/targets", json!({"name": TARGET})).refused(409, "target_exists");
    for name in ["", "t", "iqn.2026-11.Example:t", "iqn.2026-11.example:t t", "eui.0"] {
        rig.post("/v1/targets", json!({"name": name})).refused(422, "name_invalid");
    }

    let volume = rig.post("/v1/volumes", json!({"name": "a", "size": MIB, "map": false})).json(201);
    let maps = format!("/v1/targets/{TARGET}/maps");
    let map = rig.post(&maps, json!({"volume": "a"})).json(201);
    assert_eq!(map, json!({"lun": 0, "volume": "a", "volume_id": volume["id"], "host": "local"}));
    let map = rig.post(&maps, json!({"volume": volume["id"], "host": "any", "lun": 5})).json(201);
    assert_eq!((&map["lun"], &map["volume"]), (&json!(5), &json!("a")));
    rig.post(&maps, json!({"volume": "a", "lun": 0})).refused(409, "lun_taken");
    rig.post(&maps, json!({"volume": "a", "lun": 256})).refused(422, "field_invalid");
    rig.post(&maps, json!({"volume": "a", "lun": 65536})).refused(422, "field_invalid");
    rig.post(&maps, json!({"volume": "b"})).refused(404, "volume_not_found");
    rig.post(&maps, json!({"volume": "a", "host": "b"})).refused(404, "host_not_found");
    let elsewhere = rig.post("/v1/targets/iqn.2026-11.example:u/maps", json!({"volume": "a"}));
    elsewhere.refused(404, "target_not_found");

    rig.delete(&format!("{maps}/5?host=local")).refused(404, "map_not_found");
    rig.delete(&format!("{maps}/5?host=any")).empty(204);
    rig.delete(&format!("{maps}/5")).refused(404, "map_not_found");
    rig.delete(&format!("/v1/targets/{TARGET}")).refused(409, "target_has_maps");
    rig.delete(&format!("{maps}/0")).empty(204);
    rig.delete(&format!("/v1/targets/{TARGET}")).empty(204);
    rig.get(&format!("/v1/targets/{TARGET}")).refused(404, "target_not_found");
    rig.delete(&format!("/v1/targets/{TARGET}")).refused(404, "target_not_found");
}

#[test]
fn a_targets_alias_and_secret_change_and_its_maps_stay() {
    let rig = Rig::new();
    let path = format!("/v1/targets/{TARGET}");
    rig.post("/v1/volumes", json!({"name": "a", "size": MIB, "target": TARGET})).json(201);
    let before = rig.get(&path).json(200);
    let secret = || {
        rig.control(|control| async move {
            Ok(control.access().target(TARGET).unwrap().chap.as_ref().map(|chap| chap.secret.clone()))
        })
    };

    let chap = json!({"user": "target", "secret": "opensesame123"});
    let would = rig.patch(&format!("{path}?dry_run=true"), json!({"alias": "a target", "chap": chap}));
    let steps = would.json(200)["would"].clone();
    assert_eq!(steps[0], "its alias becomes a target");
    assert!(steps[1].as_str().unwrap().starts_with("its CHAP secret changes (CHAP name target)"));
    assert_eq!((rig.get(&path).json(200), secret()), (before.clone(), None), "nothing was done");

    let changed = rig.patch(&path, json!({"alias": "a target", "chap": chap}));
    let expected =
        json!({"name": TARGET, "alias": "a target", "chap_user": "target", "maps": before["maps"]});
    assert_eq!(changed.json(200), expected);
    assert_eq!((rig.get(&path).json(200), secret().as_deref()), (expected, Some("opensesame123")));
    for text in [would.text, changed.text] {
        assert!(!text.contains("opensesame"), "{text}");
    }

    // Absent fields stay as they are.
    let chap = json!({"user": "target", "secret": "another secret"});
    assert_eq!(rig.patch(&path, json!({"chap": chap})).json(200)["alias"], "a target");
    assert_eq!(secret().as_deref(), Some("another secret"));
    assert_eq!(rig.patch(&path, json!({"alias": null})).json(200)["chap_user"], "target");
    let would = rig.patch(&format!("{path}?dry_run=true"), json!({"chap": chap})).json(200);
    assert_eq!(would["would"], json!([format!("no change: target {TARGET} already has these settings")]));
    let short = json!({"chap": {"user": "target", "secret": "short"}});
    for query in ["", "?dry_run=true"] {
        let problem = rig.patch(&format!("{path}{query}"), short.clone()).refused(422, "field_invalid");
        assert_eq!(problem["field"], "chap.secret");
        rig.patch(&format!("/v1/targets/iqn.x:none{query}"), json!({})).refused(404, "target_not_found");
    }
    assert_eq!(secret().as_deref(), Some("another secret"));
    assert_eq!(rig.patch(&path, json!({"chap": null})).json(200), before);
    assert_eq!(secret(), None);
}

#[test]
fn an_alias_must_be_representable_for_initiators() {
    let rig = Rig::new();
    let path = format!("/v1/targets/{TARGET}");
    let longest = "ü".repeat(127) + "n";
    let refused = [format!("{longest}n"), "a\0b".to_owned()];
    for alias in &refused {
        let answer = rig.post("/v1/targets", json!({"name": TARGET, "alias": alias}));
        assert_eq!(answer.refused(422, "field_invalid")["field"], "alias");
    }
    rig.post("/v1/targets", json!({"name": TARGET, "alias": longest})).json(201);
    for alias in &refused {
        for query in ["", "?dry_run=true"] {
            let answer = rig.patch(&format!("{path}{query}"), json!({"alias": alias}));
            assert_eq!(answer.refused(422, "field_invalid")["field"], "alias");
        }
    }
    assert_eq!(rig.get(&path).json(200)["alias"], json!(longest));
    let other = "n".repeat(255);
    assert_eq!(rig.patch(&path, json!({"alias": other})).json(200)["alias"], json!(other));
}

#[test]
fn a_target_with_maps_is_deleted_only_by_force() {
    let rig = Rig::new();
    rig.post("/v1/volumes", json!({"name": "a", "size": MIB, "target": TARGET})).json(201);
    rig.delete(&format!("/v1/targets/{TARGET}?force=true")).empty(204);
    assert_eq!(rig.get("/v1/volumes/a").json(200)["maps"], json!([]));
}

#[test]
fn secrets_are_kept_and_never_shown() {
    let rig = Rig::new();
    let chap = json!({"user": "target", "secret": "opensesame123"});
    let answer = rig.post("/v1/targets", json!({"name": TARGET, "chap": chap}));
    assert_eq!(answer.json(201)["chap_user"], "target");
    for text in [answer.text, rig.get("/v1/targets").text, rig.get(&format!("/v1/targets/{TARGET}")).text] {
        assert!(!text.contains("opensesame"), "{text}");
    }
    let kept = rig.control(|control| async move {
        Ok(control.access().target(TARGET).unwrap().chap.as_ref().map(|chap| chap.secret.clone()))
    });
    assert_eq!(kept.as_deref(), Some("opensesame123"));

    let name = "iqn.2026-11.example:u";
    let with = |user: &str, secret: &str| {
        rig.post("/v1/targets", json!({"name": name, "chap": {"user": user, "secret": secret}}))
    };
    // The second has 22 bytes, but only 11 characters.
    for short in ["too short", "äöüäöüäöüäö"] {
        let problem = with("u", short).refused(422, "field_invalid");
        assert_eq!(problem["field"], "chap.secret");
        assert!(!problem.to_string().contains(short), "{problem}");
    }
    assert_eq!(with("", "long enough for anybody").refused(422, "field_invalid")["field"], "chap.user");
}
