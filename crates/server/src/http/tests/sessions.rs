use base::{BlockCount, BlockSize, Lba};
use initiator::{Lun, Options, Session};
use serde_json::json;

use super::rig::{MIB, Rig};

const TARGET: &str = "iqn.2026-11.io.ursa:db";
const INITIATOR: &str = "iqn.2026-01.org.ursa:initiator";

#[test]
fn a_session_is_shown_counted_and_ended() {
    let rig = Rig::new();
    assert_eq!(rig.get("/v1/sessions").json(200), json!({"items": []}));
    rig.post("/v1/volumes", json!({"name": "db", "size": MIB, "kind": "ram"})).json(201);
    let portal = rig.state.portals[0];
    rig.client(move || async move {
        let session = Session::connect(portal, TARGET, &Options::default()).await.unwrap();
        session.make_ready(Lun(0)).await.unwrap();
        session.read(Lun(0), Lba(0), BlockCount(8), BlockSize::B512).await.unwrap();
        // Beyond the end.
        session.read(Lun(0), Lba(1 << 20), BlockCount(1), BlockSize::B512).await.unwrap_err();
        // The session stays logged in.
        rt::spawn(async move {
            let _session = session;
            std::future::pending::<()>().await;
        })
        .detach();
    });
    let list = rig.get("/v1/sessions").json(200);
    let [session] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!((&session["initiator"], &session["target"]), (&json!(INITIATOR), &json!(TARGET)));
    assert_eq!(session["isid"].as_str().unwrap().len(), 12);
    assert!(session["addresses"][0].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(session["commands"].as_u64().unwrap() >= 3);
    assert!(session["bytes_sent"].as_u64().unwrap() > 4096);

    let refused = rig.client(move || async move {
        Session::connect(portal, "iqn.2026-11.io.ursa:nothing", &Options::default()).await.is_err()
    });
    assert!(refused);
    let metrics = rig.get("/metrics").text;
    let lines: Vec<&str> = metrics.lines().collect();
    for line in [
        r#"ursa_sessions{target="iqn.2026-11.io.ursa:db"} 1"#,
        r#"ursa_volume_operation_duration_seconds_count{volume="db",operation="read"} 1"#,
        r#"ursa_volume_bytes_total{volume="db",operation="read"} 4096"#,
        // LOGICAL BLOCK ADDRESS OUT OF RANGE.
        r#"ursa_volume_errors_total{volume="db",sense_key="illegal_request",code="21/00"} 1"#,
        r#"ursa_logins_refused_total{status="0203"} 1"#,
    ] {
        assert!(lines.contains(&line), "{line} is not in {metrics}");
    }

    let tsih = session["tsih"].as_u64().unwrap();
    rig.delete(&format!("/v1/sessions/{}?dry_run=true", tsih ^ 0x8000)).refused(404, "session_not_found");
    rig.delete(&format!("/v1/sessions/{tsih}?dry_run=true&node=2")).refused(404, "node_not_found");
    let would = rig.delete(&format!("/v1/sessions/{tsih}?dry_run=true")).json(200);
    let first = would["would"][0].as_str().unwrap();
    let whose = format!("session {tsih} of {INITIATOR} from 127.0.0.1:");
    assert!(first.starts_with(&whose) && first.contains(&format!("with target {TARGET}")), "{would}");
    assert_eq!(would["would"][1], "no command is in progress");
    assert_eq!(rig.get("/v1/sessions").json(200)["items"].as_array().unwrap().len(), 1);
    rig.delete(&format!("/v1/sessions/{tsih}")).empty(204);
    rig.delete(&format!("/v1/sessions/{}", tsih ^ 0x8000)).refused(404, "session_not_found");
    // The session ends when the initiator has logged out, or soon after without that.
    for _ in 0..200 {
        if rig.get("/v1/sessions").json(200) == json!({"items": []}) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the session is still there");
}
