use serde_json::json;

use super::rig::{MIB, Rig};

const INITIATOR: &str = "iqn.1993-08.org.debian:01:abc";

#[test]
fn host_groups_come_change_and_go() {
    let rig = Rig::new();
    assert_eq!(rig.names("/v1/hosts"), ["any", "local"]);
    let new = json!({"name": "esx", "initiators": [INITIATOR], "addresses": ["10.1.0.0/16", "fd00::1"]});
    let host = rig.post("/v1/hosts", new.clone()).json(201);
    let expected = json!({
        "name": "esx", "initiators": [INITIATOR], "addresses": ["10.1.0.0/16", "fd00::1"],
        "chap_user": null, "built_in": false,
    });
    assert_eq!(host, expected);
    assert_eq!(rig.get("/v1/hosts/esx").json(200), expected);
    assert_eq!(rig.names("/v1/hosts"), ["any", "esx", "local"]);
    rig.post("/v1/hosts", new).refused(409, "host_exists");

    let host = rig.put("/v1/hosts/esx", json!({"addresses": ["10.2.3.4"]})).json(200);
    assert_eq!((&host["initiators"], &host["addresses"]), (&json!([]), &json!(["10.2.3.4"])));
    assert_eq!(rig.get("/v1/hosts/esx").json(200), host);

    rig.post("/v1/volumes", json!({"name": "a", "size": MIB, "host": "esx"})).json(201);
    rig.delete("/v1/hosts/esx").refused(409, "host_in_use");
    rig.delete("/v1/volumes/a?force=true").empty(204);
    rig.delete("/v1/hosts/esx").empty(204);
    rig.delete("/v1/hosts/esx").refused(404, "host_not_found");
    rig.get("/v1/hosts/esx").refused(404, "host_not_found");
    rig.put("/v1/hosts/esx", json!({})).refused(404, "host_not_found");
}

#[test]
fn invalid_host_groups_are_refused() {
    let rig = Rig::new();
    let create = |field: &str, value| rig.post("/v1/hosts", json!({"name": "h", field: value}));
    create("initiators", json!(["nonsense"])).refused(422, "name_invalid");
    for address in ["10.0.0.0/33", "10.0.0", "example.com", ""] {
        let problem = create("addresses", json!([address])).refused(422, "field_invalid");
        assert_eq!(problem["field"], "addresses");
    }
    create("name", json!("no name")).refused(422, "name_invalid");
    for name in ["any", "local"] {
        rig.post("/v1/hosts", json!({"name": name})).refused(409, "host_built_in");
        rig.put(&format!("/v1/hosts/{name}"), json!({})).refused(409, "host_built_in");
        rig.delete(&format!("/v1/hosts/{name}")).refused(409, "host_built_in");
        assert_eq!(rig.get(&format!("/v1/hosts/{name}")).json(200)["built_in"], true);
    }
}

#[test]
fn a_secret_stays_until_it_is_removed() {
    let rig = Rig::new();
    let secret = || {
        rig.control(|control| async move {
            let access = control.access();
            let host = access.hosts().find(|host| host.name.as_str() == "h").unwrap();
            Ok(host.chap.as_ref().map(|chap| chap.secret.clone()))
        })
    };
    let chap = json!({"user": "alice", "secret": "opensesame123"});
    let made = rig.post("/v1/hosts", json!({"name": "h", "chap": chap}));
    assert_eq!(made.json(201)["chap_user"], "alice");
    let changed = rig.put("/v1/hosts/h", json!({"addresses": ["10.0.0.1"]}));
    assert_eq!(changed.json(200)["chap_user"], "alice");
    for text in [made.text, changed.text, rig.get("/v1/hosts").text, rig.get("/v1/hosts/h").text] {
        assert!(!text.contains("opensesame"), "{text}");
    }
    assert_eq!(secret().as_deref(), Some("opensesame123"));
    rig.put("/v1/hosts/h", json!({"chap": {"user": "alice", "secret": "another secret"}})).json(200);
    assert_eq!(secret().as_deref(), Some("another secret"));
    rig.put("/v1/hosts/h", json!({"chap": {"user": "alice", "secret": "short"}}))
        .refused(422, "field_invalid");
    assert_eq!(rig.put("/v1/hosts/h", json!({"chap": null})).json(200)["chap_user"], json!(null));
    assert_eq!(secret(), None);
}

#[test]
fn host_settings_are_ready_to_paste() {
    let rig = Rig::new();
    let text = |query: &str| rig.get(&format!("/v1/host-setup?{query}")).json(200)["text"].clone();
    let linux = text("system=linux&target=iqn.2026-11.io.ursa:db&portals=10.1.1.5,10.1.2.5:3261");
    assert_eq!(
        linux,
        include_str!("../../../../terms/src/host_setup/two-ways.golden.sh"),
        "as the command line has it"
    );
    let esxi = text("system=esxi&target=iqn.2026-11.io.ursa:db&portals=10.1.1.5,10.1.2.5:3261&chap_user=web");
    assert_eq!(esxi, include_str!("../../../../terms/src/host_setup/esxi.golden.sh"));
    let proxmox = text("system=proxmox&target=iqn.2026-11.io.ursa:db&portals=10.1.1.5&naa=6abc");
    assert!(proxmox.as_str().unwrap().contains("wwn-0x6abc"), "{proxmox}");
    for query in [
        "",
        "system=linux&target=iqn.a",
        "system=amiga&target=iqn.a&portals=a",
        "system=linux&target=iqn.a&portals=",
        "system=linux&target=iqn.a&portals=a,,b",
        "system=linux&target=iqn.a%3Breboot&portals=a",
        "system=linux&target=iqn.a&portals=a%0Areboot",
        "system=linux&target=iqn.a&portals=a&chap_user=a%0Areboot",
        "system=linux&target=iqn.a&portals=a&colour=blue",
    ] {
        rig.get(&format!("/v1/host-setup?{query}")).refused(400, "query_invalid");
    }
    let many = vec!["a"; 65].join(",");
    let path = format!("/v1/host-setup?system=linux&target=iqn.a&portals={many}");
    rig.get(&path).refused(400, "query_invalid");
}
