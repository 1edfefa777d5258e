//! Credentials as files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use link::{ClusterAuthority, ClusterId, CredentialsError, NodeCredentials};
use replica::NodeId;

use crate::node::{CLUSTER, authority};

const NODE: NodeId = NodeId(7);

#[test]
fn credentials_are_files_for_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    authority.save(directory.path()).unwrap();
    authority.issue(NODE).unwrap().save(directory.path()).unwrap();
    // Once more over the existing files.
    authority.issue(NODE).unwrap().save(directory.path()).unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(entry.path()).unwrap().starts_with("-----BEGIN "));
    }
    names.sort();
    assert_eq!(names, ["authority-key.pem", "authority.pem", "node-key.pem", "node.pem"]);
    let loaded = NodeCredentials::load(directory.path(), CLUSTER, NODE).unwrap();
    assert_eq!((loaded.node(), loaded.cluster()), (NODE, CLUSTER));
    assert_eq!(loaded.authority(), authority.certificate());
    let loaded = ClusterAuthority::load(directory.path(), CLUSTER).unwrap();
    assert_eq!(loaded.certificate(), authority.certificate());
    assert_eq!(loaded.key_pem(), authority.key_pem());
    // What it signs matches what it signed before.
    loaded.issue(NodeId(8)).unwrap();
    assert!(!format!("{loaded:?} {:?}", loaded.issue(NODE)).contains("PRIVATE"));
}

#[test]
fn credentials_that_do_not_match_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let load = || NodeCredentials::load(path, CLUSTER, NODE);
    let absent = load().unwrap_err();
    assert!(matches!(&absent, CredentialsError::File(_)));
    assert!(absent.to_string().contains("node-key.pem: it is missing"), "{absent}");
    let authority = authority();
    authority.save(path).unwrap();
    authority.issue(NODE).unwrap().save(path).unwrap();
    assert!(load().is_ok());
    let other_node = NodeCredentials::load(path, CLUSTER, NodeId(8)).unwrap_err();
    assert!(matches!(other_node, CredentialsError::Mismatch(_)), "{other_node}");
    let other_cluster = NodeCredentials::load(path, ClusterId([2; 16]), NODE).unwrap_err();
    assert!(matches!(other_cluster, CredentialsError::Mismatch(_)), "{other_cluster}");

    // Another key; another authority; no certificate at all.
    let certificate = fs::read(path.join("node.pem")).unwrap();
    authority.issue(NODE).unwrap().save(path).unwrap();
    fs::write(path.join("node.pem"), certificate).unwrap();
    assert!(matches!(load(), Err(CredentialsError::Mismatch(_))));
    authority.issue(NODE).unwrap().save(path).unwrap();
    ClusterAuthority::create(CLUSTER).unwrap().save(path).unwrap();
    assert!(matches!(load(), Err(CredentialsError::Mismatch(_))));
    fs::write(path.join("authority.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let damaged = load().unwrap_err();
    assert!(damaged.to_string().contains("certificate of the cluster CA is not valid"), "{damaged}");

    authority.save(path).unwrap();
    let other = ClusterAuthority::create(CLUSTER).unwrap();
    fs::write(path.join("authority-key.pem"), other.key_pem()).unwrap();
    assert!(matches!(ClusterAuthority::load(path, CLUSTER), Err(CredentialsError::Mismatch(_))));
}
