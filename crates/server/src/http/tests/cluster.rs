use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use axum::body::Body;
use axum::http::Request;
use axum::http::header::AUTHORIZATION;
use node::floating::Devices;
use serde_json::json;
use terms::clock::unix_now;

use super::forwarding::{free_address, wait};
use super::rig::{MIB, Rig};

/// Until it listens for others.
#[test]
fn no_node_can_join_a_node_that_is_alone() {
    let rig = Rig::new();
    let nodes = rig.get("/v1/nodes").json(200);
    let [node] = nodes["items"].as_array().unwrap().as_slice() else { panic!("{nodes}") };
    assert_eq!((&node["id"], &node["here"], &node["up"]), (&json!(1), &json!(true), &json!(true)));
    let problem = rig.post("/v1/cluster/tokens", json!({})).refused(409, "not_listening");
    assert!(problem["hint"].as_str().unwrap().contains("ursa node init"), "{problem}");
    rig.post("/v1/cluster/force-new?dry_run=true", json!({})).refused(409, "cluster_works");
    let problem = rig.post("/v1/cluster/leave?dry_run=true", json!({})).refused(409, "takes_part");
    assert!(problem["detail"].as_str().unwrap().contains("only node"), "{problem}");
    rig.post("/v1/volumes/nothing/verify", json!({})).refused(404, "volume_not_found");
}

/// The node has had it before the other one joined.
#[test]
fn a_volume_of_a_node_alone_gets_a_copy_on_one_that_joins() {
    let (first, second) = (Rig::new(), Rig::new());
    let volume = first.post("/v1/volumes", json!({"name": "db", "size": 4 * MIB})).json(201);
    assert_eq!((&volume["copies"][0]["node"], &volume["serving"]), (&json!(1), &json!(true)), "{volume}");
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    join(&first, &second);
    wait("the nodes hear each other", || {
        let nodes = first.get("/v1/nodes").json(200);
        let nodes = nodes["items"].as_array().unwrap();
        nodes.len() == 2 && nodes.iter().all(|node| node["up"] == true)
    });
    first.post("/v1/volumes/db/copies", json!({"node": 2})).json(202);
    wait("both copies are in sync", || {
        let volume = first.get("/v1/volumes/db").json(200);
        let copies = volume["copies"].as_array().unwrap();
        copies.len() == 2 && copies.iter().all(|copy| copy["state"] == "in_sync")
    });
}

#[test]
fn an_invalid_cluster_is_refused_and_leaves_nothing() {
    let rig = Rig::new();
    for listen in [json!([]), json!(["server1"]), json!(["0.0.0.0"]), json!(["[::]:3270"])] {
        let problem = rig.post("/v1/cluster", json!({"listen": listen})).refused(422, "field_invalid");
        assert_eq!(problem["field"], "listen");
    }
    // An address for documentation (RFC 5737), which no machine has.
    let problem = rig.post("/v1/cluster", json!({"listen": ["192.0.2.1:3270"]})).refused(422, "listen");
    assert_eq!(problem["field"], "listen");
    let nodes = rig.get("/v1/nodes").json(200);
    assert_eq!(nodes["items"][0]["addresses"], json!([]), "{nodes}");
    let join = json!({"token": "nonsense", "listen": ["127.0.0.1:0"]});
    assert_eq!(rig.post("/v1/cluster/join", join).refused(422, "token_invalid")["field"], "token");
}

const SHARED: &str = "iqn.2026-11.io.ursa:shared";

fn make_volume(rig: &Rig, name: &str, target: &str, lun: u16) {
    let new = json!({"name": name, "size": MIB, "kind": "ram", "target": target, "lun": lun});
    rig.post("/v1/volumes", new).json(201);
}

fn make_host(rig: &Rig, name: &str, initiator: &str) {
    let initiators = [format!("iqn.2026-11.io.ursa:{initiator}")];
    rig.post("/v1/hosts", json!({"name": name, "initiators": initiators})).json(201);
}

#[test]
fn a_joining_node_is_merged_or_all_collisions_are_listed() {
    let (first, second) = (Rig::new(), Rig::new());
    make_volume(&first, "db", SHARED, 0);
    make_host(&first, "web", "a");
    make_host(&first, "equal", "c");
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    make_volume(&second, "db", SHARED, 0);
    make_volume(&second, "mail", "iqn.2026-11.io.ursa:mail", 3);
    make_host(&second, "web", "b");
    make_host(&second, "equal", "c");

    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join =
        || second.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]}));
    let detail = join().refused(409, "join_collision")["detail"].as_str().unwrap().to_owned();
    for said in ["host group \"web\"", &format!("LUN 0 of target {SHARED}"), "ursa volume rename db"] {
        assert!(detail.contains(said), "{said} is missing: {detail}");
    }
    assert!(!detail.contains("mail") && !detail.contains("equal"), "{detail}");
    assert_eq!(second.get("/v1/nodes").json(200)["items"].as_array().unwrap().len(), 1);
    assert_eq!(first.names("/v1/targets"), [SHARED]);
    assert_eq!(first.names("/v1/hosts"), ["any", "equal", "local", "web"]);

    // One after the other is put right, without deleting a volume. The token stays valid.
    second.patch("/v1/volumes/db", json!({"name": "db2"})).json(200);
    let problem = join().refused(409, "join_collision");
    assert!(!problem["detail"].as_str().unwrap().contains("ursa volume rename"), "{problem}");
    second.put("/v1/hosts/web", json!({"initiators": ["iqn.2026-11.io.ursa:a"]})).json(200);
    second.post(&format!("/v1/targets/{SHARED}/maps"), json!({"volume": "db2", "lun": 1})).json(201);
    second.delete(&format!("/v1/targets/{SHARED}/maps/0")).empty(204);
    join().empty(204);

    wait("both nodes have all volumes", || {
        [&first, &second].iter().all(|rig| rig.names("/v1/volumes") == ["db", "db2", "mail"])
    });
    for rig in [&first, &second] {
        assert_eq!(rig.names("/v1/targets"), ["iqn.2026-11.io.ursa:mail", SHARED]);
        assert_eq!(rig.names("/v1/hosts"), ["any", "equal", "local", "web"]);
        let maps = rig.get(&format!("/v1/targets/{SHARED}")).json(200)["maps"].clone();
        let maps: Vec<_> = maps.as_array().unwrap().iter().map(|map| (&map["lun"], &map["volume"])).collect();
        assert_eq!(maps, [(&json!(0), &json!("db")), (&json!(1), &json!("db2"))]);
    }
    // The token has been used up.
    let third = Rig::new();
    let join = json!({"token": made["token"], "listen": [free_address()]});
    third.post("/v1/cluster/join", join).refused(409, "join_refused");
}

/// It is the only node that its own cluster has ever had. It listens at the same address.
#[test]
fn a_node_joins_from_a_cluster_of_its_own_with_all_that_it_has() {
    const OLD: &str = "iqn.2026-11.io.ursa:old";
    const MAIL: &str = "iqn.2026-11.io.ursa:mail";
    // Their devices accept every request.
    let devices = || Devices::new(|_| Box::pin(std::future::ready(Ok(()))));
    let [first, second] = [(); 2].map(|()| Rig::with(|_| {}, |config| config.devices = devices()));
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    make_volume(&first, "db", SHARED, 0);
    make_volume(&second, "old", OLD, 0);
    let listen = free_address();
    second.post("/v1/cluster", json!({"listen": [listen]})).json(201);
    make_volume(&second, "db", MAIL, 0);
    make_host(&second, "web", "a");
    let floating = |rig: &Rig| rig.get("/v1/floating-ips").json(200)["items"].as_array().unwrap().clone();
    for address in ["127.9.9.9/8", "127.9.9.8/8"] {
        second.post("/v1/floating-ips", json!({"address": address})).json(201);
    }
    first.post("/v1/floating-ips", json!({"address": "127.9.9.8/8"})).json(201);
    wait("it has both", || floating(&second).iter().all(|one| one["state"] == "held"));
    for rig in [&first, &second] {
        let user = json!({"name": "alice", "role": "admin", "password": "correct horse battery"});
        rig.post("/v1/users", user).json(201);
    }
    let token = second.post("/v1/tokens", json!({"name": "backup", "role": "viewer"})).json(201);

    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join = || second.post("/v1/cluster/join", json!({"token": made["token"], "listen": [listen]}));
    let nodes = |rig: &Rig| rig.get("/v1/nodes").json(200)["items"].as_array().unwrap().clone();
    let detail = join().refused(409, "join_collision")["detail"].as_str().unwrap().to_owned();
    for said in ["ursa volume rename db", "ursa user rename alice", "ursa floating-ip remove 127.9.9.8"] {
        assert!(detail.contains(said), "{said} is missing: {detail}");
    }
    assert!(!detail.contains("127.9.9.9") && !detail.contains("backup"), "{detail}");
    assert_eq!((nodes(&first).len(), nodes(&second).len()), (1, 1), "nothing has changed");
    assert_eq!((first.names("/v1/users").len(), floating(&first).len()), (1, 1), "nothing has changed");
    second.patch("/v1/volumes/db", json!({"name": "mail"})).json(200);
    let renamed = second.patch("/v1/users/alice", json!({"name": "eva"})).json(200);
    assert_eq!((&renamed["name"], &renamed["role"]), (&json!("eva"), &json!("admin")));
    second.delete("/v1/floating-ips/127.9.9.8").empty(204);
    // The address is released in a moment.
    wait("it joins", || join().status == 204);

    wait("both nodes have all volumes", || {
        [&first, &second].iter().all(|rig| rig.names("/v1/volumes") == ["db", "mail", "old"])
    });
    for rig in [&first, &second] {
        assert_eq!(rig.names("/v1/targets"), [MAIL, OLD, SHARED]);
        assert_eq!(rig.names("/v1/hosts"), ["any", "local", "web"]);
        assert_eq!(nodes(rig).len(), 2);
        assert_eq!(rig.names("/v1/users"), ["alice", "eva"]);
        let bearer = format!("Bearer {}", token["secret"].as_str().unwrap());
        let request = Request::get("/v1/volumes").header(AUTHORIZATION, bearer);
        rig.send(request.body(Body::empty()).unwrap()).json(200);
    }
    // It stays where it was. The other one has had its portal group.
    wait("it holds its floating IP again", || {
        let all = floating(&first);
        all.iter().any(|one| one["address"] == "127.9.9.9/8" && one["holder"] == 2)
    });
    let all = floating(&first);
    let groups: Vec<_> =
        all.iter().map(|one| (&one["address"], &one["portal_group"], &one["nodes"])).collect();
    let expected = [
        (&json!("127.9.9.8/8"), &json!(65280), &json!([])),
        (&json!("127.9.9.9/8"), &json!(65281), &json!([2])),
    ];
    assert_eq!(groups, expected);
    wait("an event says so", || first.get("/v1/events").text.contains("portal_group_changed"));
    let here = nodes(&second).into_iter().find(|node| node["here"] == true).unwrap();
    assert_eq!(here["id"], 2);
    wait("the nodes hear each other", || nodes(&first).iter().all(|node| node["up"] == true));
    wait("its volumes are served", || {
        ["mail", "old"]
            .iter()
            .all(|name| second.get(&format!("/v1/volumes/{name}")).json(200)["serving"] == true)
    });
    assert_eq!(places(&second).len(), 2, "nothing is deleted");
    second
        .post("/v1/cluster/join", json!({"token": made["token"], "listen": [listen]}))
        .refused(409, "cluster_already");
}

/// Nobody can join it until the node listens for others.
#[test]
fn a_node_is_in_a_cluster_from_its_first_start() {
    let (first, second) = (Rig::new(), Rig::new());
    let nodes = |rig: &Rig| rig.get("/v1/nodes").json(200)["items"].as_array().unwrap().clone();
    for rig in [&first, &second] {
        assert_eq!(nodes(rig).len(), 1);
        rig.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).refused(409, "not_listening");
    }
    make_volume(&second, "mail", SHARED, 0);
    let listen = json!({"listen": [free_address()]});
    first.post("/v1/cluster", listen.clone()).json(201);
    first.post("/v1/cluster", listen).refused(409, "cluster_already");
    join(&first, &second);
    wait("both nodes have the volume", || {
        [&first, &second].iter().all(|rig| rig.names("/v1/volumes") == ["mail"])
    });
    wait("the nodes hear each other", || {
        let nodes = nodes(&first);
        nodes.len() == 2 && nodes.iter().all(|node| node["up"] == true)
    });
}

/// They are missing at its next start. Until then it takes part in the cluster: it must not begin another
/// life.
#[test]
fn a_node_whose_files_were_deleted_does_not_join_again_before_it_is_restarted() {
    let (first, second) = (Rig::new(), Rig::new());
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    join(&first, &second);
    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    fs::remove_dir_all(second.dir().join("cluster")).unwrap();
    second
        .post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]}))
        .refused(409, "cluster_already");
    assert_eq!(first.get("/v1/nodes").json(200)["items"].as_array().unwrap().len(), 2, "nobody was asked");
}

#[test]
fn a_node_whose_cluster_has_had_another_one_stays_there() {
    let rigs = [Rig::new(), Rig::new(), Rig::new(), Rig::new()];
    let [first, second, third, fourth] = &rigs;
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    second.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    join(second, third);
    wait("it has read the record", || {
        third.get("/v1/nodes").json(200)["items"].as_array().unwrap().len() == 2
    });
    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join =
        |rig: &Rig| rig.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]}));
    for rig in [second, third] {
        let problem = join(rig).refused(409, "cluster_already");
        assert!(problem["detail"].as_str().unwrap().contains("other nodes"), "{problem}");
    }
    second.delete("/v1/nodes/2").empty(204);
    join(second).refused(409, "cluster_already");
    // The token is still valid.
    join(fourth).empty(204);
}

/// The directories of the places that a node has had in clusters, by name.
fn places(rig: &Rig) -> Vec<PathBuf> {
    let entries = fs::read_dir(rig.dir().join("cluster")).unwrap();
    let mut places: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    places.sort();
    places
}

#[test]
fn a_token_with_which_no_node_has_joined_stays_valid() {
    let (first, second) = (Rig::new(), Rig::new());
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join =
        || second.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]}));
    let (key, aside) = (places(&first).remove(0).join("authority-key.pem"), first.dir().join("aside.pem"));
    fs::rename(&key, &aside).unwrap();
    make_host(&second, "web", "a");
    let problem = join().refused(409, "join_refused");
    assert!(problem["detail"].as_str().unwrap().contains("CA key"), "{problem}");
    assert_eq!(first.names("/v1/hosts"), ["any", "local"], "nothing is merged");
    fs::rename(&aside, &key).unwrap();
    join().empty(204);
}

/// A node may crash when it has the record's file and has not noted its place in the cluster.
#[test]
fn an_attempt_that_was_interrupted_does_not_keep_a_node_from_the_next_one() {
    const LEFT: &str = "cluster/0123456789abcdef0123456789abcdef-2";
    let interrupted = |dir: &Path| {
        fs::create_dir_all(dir.join(LEFT)).unwrap();
        fs::write(dir.join(LEFT).join("record.sqlite"), "left").unwrap();
    };
    let (first, second) = (Rig::prepared(interrupted), Rig::prepared(interrupted));
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join = json!({"token": made["token"], "listen": [free_address()]});
    second.post("/v1/cluster/join", join).empty(204);
    for rig in [&first, &second] {
        let left = fs::read(rig.dir().join(LEFT).join("record.sqlite")).unwrap();
        assert_eq!(left, b"left", "nothing is deleted");
    }
    let numbers = |rig: &Rig| {
        let mut others = places(rig);
        others.retain(|place| *place != rig.dir().join(LEFT));
        let number = |place: PathBuf| {
            place.file_name().unwrap().to_str().unwrap().split_once('-').unwrap().1.to_owned()
        };
        let mut numbers: Vec<String> = others.into_iter().map(number).collect();
        numbers.sort();
        numbers
    };
    assert_eq!(numbers(&first), ["1"]);
    assert_eq!(numbers(&second), ["1", "2"], "each place has its own");
}

/// A cluster that was forced from an older record gives numbers again.
#[test]
fn a_number_that_a_node_has_had_before_does_not_keep_it_out() {
    let (first, second) = (Rig::new(), Rig::new());
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    let founder = places(&first).remove(0);
    let (cluster, _) = founder.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
    let place = second.dir().join("cluster").join(format!("{cluster}-2"));
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("record.sqlite"), "old").unwrap();
    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join = json!({"token": made["token"], "listen": [free_address()]});
    second.post("/v1/cluster/join", join).empty(204);
    let kept = fs::read(place.with_extension("left-1").join("record.sqlite")).unwrap();
    assert_eq!(kept, b"old", "nothing is deleted");
    assert!(place.join("node.pem").exists());
}

fn portal_group(rig: &Rig) -> u16 {
    rig.control(|control| async move { Ok(control.portal_group()) })
}

/// The portal group of each node, as this one reads it in the cluster's record.
fn portal_groups(rig: &Rig) -> Vec<(u16, u16)> {
    rig.control(|control| async move {
        let nodes = control.nodes().await;
        nodes.map(|nodes| nodes.iter().map(|node| (node.entry.id, node.entry.portal_group)).collect())
    })
}

fn join(member: &Rig, node: &Rig) {
    let made = member.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join = json!({"token": made["token"], "listen": [free_address()]});
    node.post("/v1/cluster/join", join).empty(204);
}

/// Hosts remember it.
#[test]
fn nodes_keep_their_portal_groups_in_a_cluster() {
    let (first, second) = (Rig::new(), Rig::new());
    let known = [portal_group(&first), portal_group(&second)];
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    join(&first, &second);
    assert_eq!([portal_group(&first), portal_group(&second)], known);
    let all = vec![(1, known[0]), (2, known[1])];
    for rig in [&first, &second] {
        wait("the record has both", || portal_groups(rig) == all);
    }
}

/// Machines that were installed with one image have one identity.
#[test]
fn clones_that_join_get_other_portal_groups() {
    let mut image = Rig::new();
    image.stop();
    // Only one of the clones could open it.
    fs::remove_file(image.path("default.pool")).unwrap();
    let clone = || {
        Rig::with(
            |_| {},
            |config| {
                fs::copy(image.path("record"), config.data_dir.join("record")).unwrap();
                // Each is alone in the same cluster.
                let place = places(&image).remove(0);
                let copied = config.data_dir.join("cluster").join(place.file_name().unwrap());
                fs::create_dir_all(&copied).unwrap();
                for file in fs::read_dir(&place).unwrap().map(|file| file.unwrap().path()) {
                    fs::copy(&file, copied.join(file.file_name().unwrap())).unwrap();
                }
            },
        )
    };
    let (first, second, third) = (clone(), clone(), clone());
    let known = portal_group(&first);
    assert_eq!([portal_group(&second), portal_group(&third)], [known; 2]);
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    join(&first, &second);
    // The first one need not have heard the second one yet.
    join(&first, &third);
    let changed = [portal_group(&second), portal_group(&third)];
    assert!(changed[0] != changed[1] && !changed.contains(&known), "{known}, {changed:?}");
    assert_eq!(portal_group(&first), known);
    let all = vec![(1, known), (2, changed[0]), (3, changed[1])];
    for rig in [&first, &second, &third] {
        wait("the record has all", || portal_groups(rig) == all);
    }
    for rig in [&second, &third] {
        wait("it says so", || rig.get("/v1/events").text.contains("portal_group_changed"));
    }
}

/// The record would have one mark for both.
#[test]
fn a_node_with_a_clone_of_a_pool_joins_when_it_has_given_that_up() {
    let (first, second) = (Rig::new(), Rig::new());
    first.post("/v1/cluster", json!({"listen": [free_address()]})).json(201);
    let clone = second.path("clone");
    fs::copy(first.path("default.pool"), &clone).unwrap();
    let import = json!({"paths": [clone], "force": true, "name": "cloned"});
    second.post("/v1/pools/import", import).json(201);
    let made = first.post("/v1/cluster/tokens", json!({"valid_seconds": 600})).json(201);
    let join =
        || second.post("/v1/cluster/join", json!({"token": made["token"], "listen": [free_address()]}));
    let problem = join().refused(409, "join_collision");
    assert!(problem["detail"].as_str().unwrap().contains("ursa pool export cloned"), "{problem}");
    second.post("/v1/pools/cloned/export", json!({})).empty(204);
    join().empty(204);
}

#[test]
fn a_cluster_of_one_has_volumes_with_one_copy() {
    let rig = Rig::with(|_| {}, |config| config.unix_now = || unix_now() - 100);
    let nodes = rig.post("/v1/cluster", json!({"listen": ["127.0.0.1:0"]})).json(201);
    let node = &nodes["items"][0];
    assert_eq!((&node["id"], &node["here"], &node["cores"]), (&json!(1), &json!(true), &json!(2)));
    assert!((100..160).contains(&node["uptime"].as_u64().unwrap()), "{node}");
    rig.post("/v1/cluster", json!({"listen": ["127.0.0.1:0"]})).refused(409, "cluster_already");
    let made = rig.post("/v1/cluster/tokens", json!({"valid_seconds": 60})).json(201);
    assert!(made["token"].as_str().is_some_and(|token| token.len() > 20), "{made}");
    for seconds in [0, 604_801] {
        let problem = rig.post("/v1/cluster/tokens", json!({"valid_seconds": seconds}));
        assert_eq!(problem.refused(422, "field_invalid")["field"], "valid_seconds");
    }

    let create = |more: serde_json::Value| {
        let mut new = json!({"name": "db", "size": 4 * MIB});
        new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rig.post("/v1/volumes", new)
    };
    create(json!({"copies": 2})).refused(409, "too_few_nodes");
    create(json!({"copies": 5})).refused(409, "too_few_nodes");
    create(json!({"nodes": [7]})).refused(409, "node_unavailable");
    create(json!({"copies": 1, "nodes": [1]})).refused(422, "field_invalid");
    let would = rig.post("/v1/volumes?dry_run=true", json!({"name": "db", "size": 4 * MIB, "copies": 1}));
    assert!(would.json(200)["would"].to_string().contains("ITS DATA IS LOST"), "{}", would.text);
    let volume = create(json!({"copies": 1})).json(201);
    // Every response with a volume has its failure tolerance.
    let renamed = rig.patch("/v1/volumes/db", json!({"name": "other"})).json(200);
    assert_eq!(renamed["losses"][0]["outcome"], "unavailable", "{renamed}");
    rig.patch("/v1/volumes/other", json!({"name": "db"})).json(200);
    let copy = json!({"node": 1, "node_name": "test", "slot": 0, "state": "in_sync", "here": true});
    assert_eq!(volume["copies"], json!([copy]));
    assert_eq!(volume["epoch"], 1);
    wait_until_served(&rig);
    let found = rig.post("/v1/volumes/db/verify", json!({})).json(200);
    assert_eq!(
        (&found["state"], &found["equal"], &found["nodes"]),
        (&json!("done"), &json!(true), &json!([1]))
    );
    assert_eq!((&found["total_bytes"], &found["checked_bytes"]), (&json!(4 * MIB), &json!(4 * MIB)));
    assert_eq!(rig.get("/v1/volumes/db/verify").json(200)["checked_bytes"], 4 * MIB);

    rig.delete("/v1/nodes/1").refused(422, "field_invalid");
    rig.delete("/v1/nodes/2").refused(404, "node_not_found");
    rig.delete("/v1/nodes/1?dry_run=true").refused(422, "field_invalid");
    rig.delete("/v1/nodes/2?dry_run=true").refused(404, "node_not_found");
    let fork = |query: &str, more| rig.put(&format!("/v1/volumes/db/split-brain{query}"), more);
    for query in ["", "?dry_run=true"] {
        fork(query, json!({"keep": 1, "discard_other": false})).refused(422, "loss_not_accepted");
        fork(query, json!({"keep": 1, "discard_other": true})).refused(409, "no_fork");
    }

    rig.post("/v1/cluster/force-new", json!({})).refused(409, "cluster_works");
    rig.post("/v1/cluster/force-new?dry_run=true", json!({})).refused(409, "cluster_works");
    // No other node could keep the volume served, which has never had another copy.
    let would = rig.put("/v1/nodes/1/maintenance?dry_run=true", json!({"on": true})).json(200);
    assert_eq!(
        would["would"],
        json!([
            "volume db has no other copy: it is unavailable while node 1 is down",
            "node 1 can then be stopped"
        ])
    );
    let would = rig.put("/v1/nodes/1/maintenance?dry_run=true", json!({"on": false})).json(200);
    assert_eq!(would["would"], json!(["no change: node 1 is not in maintenance"]));
    rig.put("/v1/nodes/2/maintenance", json!({"on": true})).refused(404, "node_not_found");
    rig.put("/v1/cluster/preferred", json!({"node": 2})).refused(404, "node_not_found");
    let shown = |field: &str| rig.get("/v1/nodes").json(200)["items"][0][field].clone();
    rig.put("/v1/cluster/preferred", json!({"node": 1})).empty(204);
    assert_eq!((shown("preferred"), shown("maintenance")), (json!(true), json!(false)));
    let schedule = |seconds| rig.put("/v1/cluster/verify-schedule", json!({"seconds": seconds}));
    let now = || rig.get("/v1/cluster/verify-schedule").json(200);
    assert_eq!(now(), json!({"seconds": 30 * 86_400}));
    schedule(Some(60)).refused(422, "field_invalid");
    schedule(Some(86_400)).empty(204);
    assert_eq!(now(), json!({"seconds": 86_400}));
    schedule(None).empty(204);
    assert_eq!(now(), json!({"seconds": null}));
    let limit = |bytes| rig.put("/v1/cluster/resync-limit", json!({"bytes_per_second": bytes}));
    limit(Some((1 << 20) - 1)).refused(422, "field_invalid");
    limit(Some(500 << 20)).empty(204);
    assert_eq!(rig.get("/v1/cluster/resync-limit").json(200), json!({"bytes_per_second": 500 << 20}));
    limit(None).empty(204);
    assert_eq!(rig.get("/v1/cluster/resync-limit").json(200), json!({"bytes_per_second": null}));
    rig.put("/v1/cluster/preferred", json!({"node": null})).empty(204);
    assert_eq!(shown("preferred"), json!(false));

    rig.post("/v1/volumes/db/copies", json!({"node": 1})).refused(409, "copy_exists");
    let problem = rig.post("/v1/volumes/db/copies", json!({"node": 7})).refused(409, "node_unavailable");
    assert_eq!(problem["candidates"][0]["rule"], "node_not_found", "{problem}");
    rig.post("/v1/volumes/db/copies", json!({"node": 7, "instead_of": 3})).refused(404, "copy_not_found");
    rig.post("/v1/volumes/nothing/copies", json!({"node": 1})).refused(404, "volume_not_found");
    let only = rig.delete("/v1/volumes/db/copies/1").refused(409, "only_in_sync");
    assert!(only["detail"].as_str().unwrap().contains("wait until another one is in sync"), "{only}");
    rig.delete("/v1/volumes/db/copies/2").refused(404, "copy_not_found");

    let grown = rig.patch("/v1/volumes/db", json!({"size": 6 * MIB})).json(200);
    assert_eq!((&grown["size"], &grown["epoch"]), (&json!(6 * MIB), &json!(2)));
    rig.patch("/v1/volumes/db", json!({"size": 4 * MIB})).refused(422, "would_shrink");
    let renamed = rig.patch("/v1/volumes/db", json!({"name": "mail"})).json(200);
    assert_eq!((&renamed["name"], &renamed["id"]), (&json!("mail"), &volume["id"]));
    rig.get("/v1/volumes/db").refused(404, "volume_not_found");
    create(json!({"copies": 1, "target": "iqn.2026-11.io.ursa:second"})).json(201);
    rig.patch("/v1/volumes/db", json!({"name": "mail"})).refused(409, "volume_exists");
}

/// A copy serves as soon as all cores know what the record says about it.
fn wait_until_served(rig: &Rig) {
    let end = Instant::now() + Duration::from_secs(10);
    while rig.get("/v1/volumes/db").json(200)["serving"] != true {
        assert!(Instant::now() < end, "it was never served");
        thread::sleep(Duration::from_millis(10));
    }
}
