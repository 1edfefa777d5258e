//! What is judged how, case by case. The console goes through the same table (`console/src/words/cases.test.ts`), so that the two never judge differently.
//!
//! A case says what is other than in `well`; what it gives of a node, a volume, and so on stands in place of what their sample has. `about` is part of both causes, in whatever case.

use api::List;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Observed;
use super::health::{self, Finding, Health};

const TABLE: &str = include_str!("cases.json");

/// The table: its samples, what is observed when all is well, and one case.
struct Case<'a> {
    samples: &'a Value,
    well: &'a Value,
    case: &'a Value,
}

impl Case<'_> {
    fn observed(&self) -> Observed {
        let volumes = self.given("volumes").as_array().unwrap().iter();
        let nodes = self.given("nodes");
        Observed {
            node: read(over(&self.samples["node"], self.given("node"))),
            nodes: (!nodes.is_null()).then(|| self.all(nodes, "cluster_node")),
            problems: List {
                items: read(self.given("problems").clone()),
                missing: read(self.given("silent").clone()),
            },
            pools: self.all(self.given("pools"), "pool"),
            volumes: volumes.map(|volume| read(self.volume(volume))).collect(),
            targets: Vec::new(),
            sessions: 0,
            missing: read(self.given("missing").clone()),
            asked_at: 1000,
        }
    }

    fn given(&self, what: &str) -> &Value {
        self.case.get(what).unwrap_or(&self.well[what])
    }

    fn all<T: DeserializeOwned>(&self, given: &Value, sample: &str) -> Vec<T> {
        let given = given.as_array().unwrap().iter();
        given.map(|given| read(over(&self.samples[sample], given))).collect()
    }

    fn volume(&self, given: &Value) -> Value {
        let mut volume = over(&self.samples["volume"], given);
        for copy in volume["copies"].as_array_mut().unwrap() {
            let sync = copy.get("sync").map(|sync| over(&self.samples["sync"], sync));
            *copy = over(&self.samples["copy"], copy);
            if let Some(sync) = sync {
                copy["sync"] = sync;
            }
        }
        volume
    }
}

/// The sample, with what is given in place of what it has.
fn over(sample: &Value, given: &Value) -> Value {
    let mut whole = sample.as_object().unwrap().clone();
    whole.extend(given.as_object().unwrap().clone());
    Value::Object(whole)
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Lost => "lost",
    }
}

#[test]
fn each_case_is_judged_as_the_table_says() {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let cases = table["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let name = &case["name"];
        let observed = Case { samples: &table["samples"], well: &table["well"], case }.observed();
        let found = health::findings(&observed);
        assert_eq!(word(health::worst(&found)), case["health"], "{name}: {found:#?}");
        let mut left: Vec<&Finding> = found.iter().collect();
        for expected in case["findings"].as_array().unwrap() {
            let about = expected["about"].as_str().unwrap().to_lowercase();
            let is_it = |finding: &&Finding| {
                expected["health"] == word(finding.health) && finding.cause.to_lowercase().contains(&about)
            };
            let Some(at) = left.iter().position(is_it) else { panic!("{name}: no {expected} in {found:#?}") };
            left.remove(at);
        }
        assert!(left.is_empty(), "{name}: {left:#?}");
    }
}
