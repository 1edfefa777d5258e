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
fn a_target_with_maps_goes_by_force() {
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
    let problem = with("u", "too short").refused(422, "field_invalid");
    assert_eq!(problem["field"], "chap.secret");
    assert!(!problem.to_string().contains("too short"), "{problem}");
    assert_eq!(with("", "long enough for anybody").refused(422, "field_invalid")["field"], "chap.user");
}
