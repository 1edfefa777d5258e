//! Checks the output of nodes, and the files in `deploy/`, with `promtool` (Debian's package `prometheus`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::node::{Node, free_address};

/// Runs `promtool` with these arguments and this input; `None` if it is not installed. It must succeed.
#[track_caller]
fn promtool(arguments: &[&str], directory: &Path, input: &str) -> Option<String> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(directory);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        eprintln!("NOT CHECKED: there is no promtool here (apt install prometheus).");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
    Some(said)
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

#[test]
fn promtool_finds_no_fault_with_metrics() {
    let node = Node::start(&["--volume", "demo=64M,ram"]);
    node.ok(&["node", "init", "--listen", &free_address().to_string()]);
    node.ok(&["volume", "create", "db", "--size", "64M", "--copies", "1"]);
    let metrics = api::Client::new(&format!("http://{}", node.api)).metrics().unwrap();
    for line in [
        r#"ursa_node_up{node="1",name=""#,
        r#"ursa_copy_state{volume="db",node="1",state="in_sync"} 1"#,
        r#"ursa_volume_serving{volume="demo",id=""#,
        "ursa_cluster_record_up 1",
        "process_cpu_seconds_total ",
    ] {
        assert!(metrics.lines().any(|other| other.starts_with(line)), "{line} is not in\n{metrics}");
    }
    // It also succeeds if it has remarks.
    if let Some(said) = promtool(&["check", "metrics"], Path::new("/"), &metrics) {
        assert_eq!(said, "", "promtool check metrics");
    }
}

#[test]
fn alerts_fire_where_they_should() {
    let directory = deploy().join("prometheus");
    promtool(&["check", "rules", "ursa-alerts.yml"], &directory, "");
    promtool(&["test", "rules", "ursa-alerts-test.yml"], &directory, "");
}

/// Prometheus accepts the expressions of dashboards: they are checked as if they were rules.
#[test]
fn dashboards_ask_what_prometheus_understands() {
    let mut expressions = Vec::new();
    for entry in std::fs::read_dir(deploy().join("grafana")).unwrap() {
        let dashboard: Value =
            serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        expressions.extend(targets.map(|target| target["expr"].as_str().unwrap().to_owned()));
    }
    assert!(expressions.len() > 30);
    let rule = |(at, expression): (usize, &String)| {
        let filled = expression.replace("$__rate_interval", "1m");
        assert!(!filled.contains("$__"), "{expression}");
        json!({"record": format!("ursa:panel{at}"), "expr": filled})
    };
    let rules: Vec<Value> = expressions.iter().enumerate().map(rule).collect();
    let directory = TempDir::new().unwrap();
    // JSON is YAML.
    let file = json!({"groups": [{"name": "panels", "rules": rules}]}).to_string();
    std::fs::write(directory.path().join("rules.yml"), file).unwrap();
    promtool(&["check", "rules", "rules.yml"], directory.path(), "");
}
