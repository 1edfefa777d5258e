//! Compares the files for Prometheus and Grafana in `deploy/` with the metrics that nodes write, and with the
//! runbooks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ::node::events::condition::Condition;
use serde_json::Value;

use super::*;

const PREFIXES: [&str; 2] = ["ursa_", "process_"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All names of series that a node can have.
fn written_names() -> BTreeSet<String> {
    let text = written(|text| {
        let snapshot = degraded();
        record::write(text, &snapshot);
        record::audit(text, true);
        volumes::write(text, &snapshot);
        copies::write(text, &snapshot);
        scrubs::write(text, &snapshot);
        schedules::write(text, &snapshot);
        targets::write(text, &snapshot);
        pools::write(text, &snapshot.pools);
        pools::maps(text, snapshot.map_memory);
        cores::write(text, &[CoreStats::default()]);
        process::write(text, &Process::current(), std::time::SystemTime::now());
        cluster::write(text, &Members { nodes: vec![member(1, true)], answers: true });
    });
    let mut names = BTreeSet::from(["ursa_build_info".to_owned()]);
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "histogram" => names.extend(["bucket", "sum", "count"].map(|suffix| format!("{name}_{suffix}"))),
            _ => assert!(names.insert(name.to_owned()), "{name} comes twice"),
        }
    }
    names
}

/// The names in an expression that begin like ours.
fn used_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

fn rules() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("deploy/prometheus/ursa-alerts.yml")).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let rules: Vec<Value> =
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
    assert!(rules.len() > 10);
    rules
}

fn dashboards() -> Vec<(PathBuf, Value)> {
    let directory = fs::read_dir(repository().join("deploy/grafana")).unwrap();
    let paths = directory
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"));
    paths
        .map(|path| (path.clone(), serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()))
        .collect()
}

/// All strings under one of these keys, at any depth.
fn texts<'a>(value: &'a Value, keys: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if keys.contains(&key.as_str()) => found.push(text),
                    value => texts(value, keys, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, keys, found)),
        _ => {}
    }
}

#[test]
fn rules_use_what_nodes_write() {
    let written = written_names();
    for rule in rules() {
        let used = used_names(rule["expr"].as_str().unwrap());
        let unknown: Vec<_> = used.difference(&written).collect();
        assert!(unknown.is_empty(), "{}: no node writes {unknown:?}", rule["alert"]);
    }
}

#[test]
fn dashboards_use_what_nodes_write() {
    let (written, dashboards) = (written_names(), dashboards());
    assert_eq!(dashboards.len(), 3);
    let mut uids = BTreeSet::new();
    for (path, dashboard) in &dashboards {
        let mut expressions = Vec::new();
        texts(dashboard, &["expr", "query"], &mut expressions);
        let used: BTreeSet<String> = expressions.iter().flat_map(|text| used_names(text)).collect();
        assert!(used.len() > 5, "{}: {used:?}", path.display());
        let unknown: Vec<_> = used.difference(&written).collect();
        assert!(unknown.is_empty(), "{}: no node writes {unknown:?}", path.display());
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{}", path.display());
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{}: two panels have one id", path.display());
    }
}

/// The page has the full names; a name may be abbreviated to its end after a full one.
#[test]
fn the_page_of_metrics_names_what_nodes_write() {
    let written = written_names();
    let page = read("docs/use/monitoring.md");
    let rows = page.lines().filter(|line| line.starts_with("| `ursa_"));
    let mut named = 0;
    for row in rows {
        let cell = row.trim_start_matches("| ").split(" | ").next().unwrap();
        let mut first = "";
        for name in cell.split('`').skip(1).step_by(2) {
            let is_family = |full: &str| {
                written.contains(full)
                    || ["bucket", "sum"].iter().all(|end| written.contains(&format!("{full}_{end}")))
            };
            let known = match name.strip_prefix('_') {
                None => {
                    first = name;
                    is_family(name)
                }
                Some(end) => {
                    first.match_indices('_').any(|(at, _)| is_family(&format!("{}_{end}", &first[..at])))
                }
            };
            assert!(known, "monitoring.md: no node writes {name} (behind {first})");
            named += 1;
        }
    }
    assert!(named > 50, "only {named} names were found");
    for path in ["docs/use/cluster.md", "docs/use/pools.md", "docs/use/alerts.md"] {
        let text = read(path);
        let names = text.split('`').skip(1).step_by(2).filter(|name| name.starts_with("ursa_"));
        for name in names {
            let name = name.split('{').next().unwrap();
            assert!(written.contains(name), "{path}: no node writes {name}");
        }
    }
}

/// Panels do not overlap, and have a title and a unit; all their variables and data sources exist.
#[test]
fn dashboards_are_whole() {
    for (path, dashboard) in dashboards() {
        let place = |panel: &Value| format!("{}, panel {}", path.display(), panel["id"]);
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let mut names: Vec<&str> = variables.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"datasource"), "{}", path.display());
        // Grafana's own variable.
        names.push("__rate_interval");
        let panels = dashboard["panels"].as_array().unwrap();
        let mut taken = BTreeSet::new();
        for panel in panels {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= GRID_WIDTH, "{}: too wide, or nothing", place(panel));
            let cells = (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column)));
            cells.for_each(|cell| assert!(taken.insert(cell), "{}: overlaps another", place(panel)));
            assert!(!panel["title"].as_str().unwrap().is_empty(), "{}: no title", place(panel));
            if panel["type"] == "row" {
                continue;
            }
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            let words = [&panel["description"], unit].map(|text| text.as_str().unwrap_or_default());
            assert!(words.iter().all(|text| !text.is_empty()), "{}: {words:?}", place(panel));
            let targets = panel["targets"].as_array().unwrap();
            let letters: BTreeSet<_> =
                targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
            assert!(!targets.is_empty() && letters.len() == targets.len(), "{}: {letters:?}", place(panel));
            for of in targets.iter().chain([panel]) {
                assert_eq!(of["datasource"]["uid"], "${datasource}", "{}", place(panel));
            }
            let asked = targets.iter().flat_map(|target| variables_of(target["expr"].as_str().unwrap()));
            asked.for_each(|name| assert!(names.contains(&name), "{}: no variable {name}", place(panel)));
        }
    }
}

/// The number of columns of a dashboard.
const GRID_WIDTH: u64 = 24;

/// The names after `$` in an expression.
fn variables_of(expression: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    expression
        .split('$')
        .skip(1)
        .map(move |rest| rest.split(|letter: char| !is_of_name(letter)).next().unwrap_or_default())
}

#[test]
fn every_alert_has_a_runbook_and_a_test() {
    let (page, tests) = (read("docs/use/alerts.md"), read("deploy/prometheus/ursa-alerts-test.yml"));
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let mut alerts = BTreeSet::new();
    for rule in rules() {
        let alert = rule["alert"].as_str().unwrap().to_owned();
        let annotation = |name: &str| rule["annotations"][name].as_str().unwrap_or_default().to_owned();
        assert!(!annotation("summary").is_empty() && !annotation("description").is_empty(), "{alert}");
        let url = format!(
            "https://github.com/ursa-storage/ursa/blob/main/docs/use/alerts.md#{}",
            alert.to_lowercase()
        );
        assert_eq!(annotation("runbook_url"), url);
        let severity = rule["labels"]["severity"].as_str().unwrap();
        // The alert for findings without an alert of their own has the finding's severity.
        let of_finding = alert == "UrsaFinding" && severity == "{{ $labels.severity }}";
        assert!(of_finding || ["critical", "warning", "info"].contains(&severity), "{alert}: {severity}");
        // One test in which the alert fires, and one in which it does not.
        let (fires, silent) = expectations(&tests, &alert);
        assert!(fires && silent, "{alert}: a test where it fires: {fires}, one where it does not: {silent}");
        assert!(alerts.insert(alert.clone()), "{alert} comes twice");
    }
    let alerts: BTreeSet<&str> = alerts.iter().map(String::as_str).collect();
    assert_eq!(sections, alerts, "the sections of docs/use/alerts.md and the alerts");
}

/// The conditions that alerts report. Findings and events report them, too, and all have the severity of the
/// same table.
const CONDITIONS: &[(&str, &[Condition])] = &[
    ("UrsaNodeDown", &[Condition::NodeDown]),
    ("UrsaVolumeUnavailable", &[Condition::VolumeUnavailable]),
    ("UrsaSplitBrain", &[Condition::SplitBrain]),
    ("UrsaCopiesMismatch", &[Condition::CopiesMismatch]),
    ("UrsaScrubUnrepaired", &[Condition::ScrubUnrepaired]),
    ("UrsaScrubOverdue", &[Condition::ScrubOverdue]),
    ("UrsaVolumeAlone", &[Condition::ContinuedAlone]),
    ("UrsaVolumeDegraded", &[Condition::CopyOutOfSync, Condition::ResyncRunning]),
    ("UrsaResyncStalled", &[Condition::ResyncWaiting]),
    ("UrsaResyncPaused", &[Condition::ResyncPaused]),
    ("UrsaNodeUnreachable", &[Condition::NodeDown]),
    ("UrsaLinkLost", &[Condition::NodeCutOff]),
    ("UrsaNoQuorum", &[Condition::NoQuorum, Condition::RecordLost]),
    ("UrsaNodeRecordStalled", &[Condition::RecordStalled]),
    ("UrsaMaintenanceForgotten", &[Condition::NodeMaintenance]),
    ("UrsaDiskFailed", &[Condition::DiskFailed]),
    ("UrsaPoolUnusable", &[Condition::PoolClosed, Condition::PoolReadOnly]),
    ("UrsaPoolNearlyFull", &[Condition::PoolNearlyFull]),
    ("UrsaPoolFilling", &[Condition::LogPoolFilling]),
    ("UrsaPoolFull", &[Condition::LogPoolNearlyFull]),
    ("UrsaSnapshotSpace", &[Condition::SnapshotSpace]),
    ("UrsaPoolOvercommitted", &[Condition::PoolOvercommitted]),
    ("UrsaRecordDown", &[Condition::RecordLatched]),
    ("UrsaRecordCopyFailed", &[Condition::RecordFault]),
    ("UrsaAuditDown", &[Condition::AuditUnavailable]),
    ("UrsaChangeStuck", &[Condition::ChangeStuck]),
];

/// Alerts about what only Prometheus sees: rates, sums over nodes, and how long something lasts.
const ALERTS_ONLY: &[&str] = &[
    "UrsaVolumeErrors",
    "UrsaVolumeSlow",
    "UrsaHostsGone",
    "UrsaLastCopy",
    "UrsaNodeWithoutRecord",
    "UrsaFinding",
    "UrsaCoresSaturated",
    "UrsaInitiatorsDenied",
    "UrsaFilesNearLimit",
    "UrsaVersionsDiffer",
];

#[test]
fn alerts_have_the_severities_of_findings_and_events() {
    let severities: BTreeMap<String, String> = rules()
        .iter()
        .map(|rule| {
            [&rule["alert"], &rule["labels"]["severity"]].map(|text| text.as_str().unwrap().to_owned())
        })
        .map(|[alert, severity]| (alert, severity))
        .collect();
    for (alert, conditions) in CONDITIONS {
        for condition in *conditions {
            let expected = format!("{:?}", condition.severity()).to_lowercase();
            assert_eq!(severities[*alert], expected, "{alert}: {condition:?}");
        }
    }
    let sorted: BTreeSet<&str> =
        { CONDITIONS.iter() }.map(|(alert, _)| *alert).chain(ALERTS_ONLY.iter().copied()).collect();
    assert_eq!(sorted.len(), CONDITIONS.len() + ALERTS_ONLY.len(), "an alert is in both tables");
    assert_eq!(severities.keys().map(String::as_str).collect::<BTreeSet<_>>(), sorted);
}

/// Whether promtool's tests expect the alert to fire, and expect it not to.
fn expectations(tests: &str, alert: &str) -> (bool, bool) {
    let tests: Value = serde_saphyr::from_str(tests).unwrap();
    let cases = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let (mut fires, mut silent) = (false, false);
    for case in cases.filter(|case| case["alertname"] == alert) {
        match case["exp_alerts"].as_array() {
            Some(expected) if !expected.is_empty() => fires = true,
            _ => silent = true,
        }
    }
    (fires, silent)
}
