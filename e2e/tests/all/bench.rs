//! `ursa bench` against a real node, and against files.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use e2e::program::{self, Finished};
use e2e::{Kind, Node, VolumeSpec, node};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

fn bench(arguments: &[&str]) -> Finished {
    program::run(Command::new(node::binary()).arg("bench").args(arguments), LIMIT)
}

/// Reads a record from its file.
fn record(path: &Path) -> Value {
    let json = fs::read_to_string(path).expect("the record was written");
    serde_json::from_str(&json).expect("a record is JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_volume_is_measured_with_the_letters_of_diskspd() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("measured", 64 * MIB).kind(Kind::Ram));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let json = dir.path().join("result.json");
    let (url, file) = (export.url(0), json.to_str().expect("our own path"));
    let letters = ["run", "-b4K", "-t2", "-o", "8", "-w30", "-r", "-d2", "-W0.5", "-Sh"];
    let page = dir.path().join("result.html");
    let page = page.to_str().expect("our own path");
    let options = ["--precondition", "random", "--verify", "--json", file, "--html", page, &url];
    let text = bench(&[&letters[..], &options].concat()).expect_ok();
    assert!(text.contains("4K random 70/30, 2 x 8"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("Server") && line.contains("ursa")), "{text}");

    let record = record(&json);
    let run = &record["runs"][0];
    assert_eq!(run["letters"], "-b4K -t2 -o8 -w30 -r -Sh -z0 -W0.5 -d2 --verify");
    assert_eq!(run["complete"], true);
    assert_eq!(run["check"]["unchecked"], 0, "all of the volume was filled");
    let [reads, writes] = ["reads", "writes"].map(|name| number(&run[name]["requests"]));
    assert!(reads > 100.0 && (0.2..0.4).contains(&(writes / (reads + writes))), "{reads} {writes}");
    let iops = number(&run["total"]["iops"]);
    assert!((iops * 2.0 / (reads + writes) - 1.0).abs() < 0.01, "rates and requests agree");
    assert!(number(&run["reads"]["latency"]["p50_us"]) <= number(&run["reads"]["latency"]["p99_us"]));
    assert_eq!(run["cpu"]["servers"][0]["pid"], node.pid());
    assert!(number(&run["cpu"]["servers"][0]["us_per_request"]) > 0.0);
    let html = fs::read_to_string(page).expect("the page was written");
    assert!(html.matches("<svg").count() == 4 && html.contains(&url) && !html.contains("src="));
    assert_eq!(bench(&["report", file]).expect_ok(), text, "a record says what its report said");
    assert!(run["subjects"][0]["identity"].as_str().is_some_and(|identity| !identity.is_empty()));
}

#[test]
fn data_is_not_destroyed_by_accident() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("precious", 16 * MIB));
    let url = &export.url(0);
    let write = ["run", "-b64K", "-w100", "-d0.2", "-W0"];
    bench(&[&write[..], &[url]].concat()).expect_ok();
    let refused = bench(&[&write[..], &[url]].concat());
    assert_eq!(refused.status.and_then(|status| status.code()), Some(1));
    assert!(
        refused.output.contains("holds data") && refused.output.contains("--overwrite"),
        "{}",
        refused.output
    );
    bench(&["run", "-b64K", "-d0.2", "-W0", url]).expect_ok();
    bench(&[&write[..], &["--overwrite", url]].concat()).expect_ok();

    let dir = TempDir::new().expect("a temporary directory can be made");
    let path = dir.path().join("file");
    let mut file = File::create(&path).expect("a file can be made");
    file.set_len(8 * MIB)
        .and_then(|()| file.write_all(b"a letter to grandmother"))
        .expect("it can be written");
    drop(file);
    let path = path.to_str().expect("our own path");
    assert!(bench(&[&write[..], &[path]].concat()).output.contains("holds data (first found at byte 0)"));
    assert!(fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"a letter to grandmother")));
}

#[test]
fn a_secret_opens_a_volume() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("closed", 16 * MIB).chap("bench", "twelve-or-more"));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let [right, wrong] = ["twelve-or-more\n", "something-else"].map(|secret| {
        let path = dir.path().join(secret.trim());
        fs::write(&path, secret).expect("a file can be written");
        path.to_str().expect("our own path").to_owned()
    });
    let url = format!("iscsi://{}/{}/{}", export.portals[0], export.target, export.lun);
    let with = |secret: &str| {
        bench(&["run", "-d0.2", "-W0", "--chap-user", "bench", "--chap-secret-file", secret, &url])
    };
    with(&right).expect_ok();
    let refused = with(&wrong);
    assert!(!refused.status.is_some_and(|status| status.success()) && refused.output.contains("cannot use "));
    let url = format!("iscsi://bench%twelve-or-more@{}/{}/{}", export.portals[0], export.target, export.lun);
    assert!(bench(&["run", &url]).output.contains("--chap-secret-file"));
}

/// If the target is lost during a run, the record has what was measured until then, and what was lost.
#[test]
fn a_target_that_dies_is_reported() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("dying", 64 * MIB).kind(Kind::Ram));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let json = dir.path().join("result.json");
    let (url, file) = (export.url(0), json.to_str().expect("our own path").to_owned());
    let began = Instant::now();
    let running = thread::spawn(move || {
        bench(&["run", "-b4K", "-t2", "-o8", "-w50", "-r", "-d60", "-W0", "--verify", "--json", &file, &url])
    });
    thread::sleep(Duration::from_secs(3));
    node.kill();
    let finished = running.join().expect("running it does not panic");
    assert!(began.elapsed() < Duration::from_secs(15), "it did not hang");
    assert_eq!(finished.status.and_then(|status| status.code()), Some(1));
    assert!(finished.output.contains("LOST: iscsi://"), "{}", finished.output);
    assert!(finished.output.contains("Unanswered:"), "{}", finished.output);
    let run = &record(&json)["runs"][0];
    assert_eq!(run["complete"], false);
    assert!((0.5..4.0).contains(&number(&run["seconds"])), "{}", run["seconds"]);
    assert!(number(&run["total"]["requests"]) > 100.0);
    let unanswered = number(&run["unanswered_reads"]) + number(&run["unanswered_writes"]);
    assert!((1.0..=16.0).contains(&unanswered), "{unanswered}");
}

/// A target that is stopped, not ended: its connections stay open, but get no answers.
#[test]
fn a_target_that_falls_silent_is_reported() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("silent", 64 * MIB).kind(Kind::Ram));
    let url = export.url(0);
    let running = thread::spawn(move || bench(&["run", "-b4K", "-o4", "-r", "-d60", "--timeout", "2", &url]));
    thread::sleep(Duration::from_secs(2));
    let frozen = node.freeze();
    let began = Instant::now();
    let finished = running.join().expect("running it does not panic");
    drop(frozen);
    assert!(began.elapsed() < Duration::from_secs(10), "it did not hang");
    assert!(finished.output.contains("no answer within 2 seconds"), "{}", finished.output);
    assert!(finished.output.contains("Unanswered: 4 reads"), "{}", finished.output);
}

#[test]
fn a_file_is_created_filled_and_verified() {
    let dir = TempDir::new_in(".").expect("a temporary directory can be made");
    let path = dir.path().join("file");
    let path = path.to_str().expect("our own path");
    let text =
        bench(&["run", "-b4K", "-o16", "-w20", "-r", "-c16M", "-d1", "-W0", "--verify", path]).expect_ok();
    assert!(text.contains(" reads checked, 0 could not be"), "{text}");
    // With a rate, there are exactly as many requests as were due.
    let json = dir.path().join("result.json");
    let arguments = ["run", "-b4K", "-o16", "-r", "-d2", "-W1", "--rate", "500", "--json"];
    bench(&[&arguments[..], &[json.to_str().expect("our own path"), path]].concat()).expect_ok();
    let run = &record(&json)["runs"][0];
    assert_eq!(run["open_loop"]["never_begun"], 0);
    assert!((980.0..=1020.0).contains(&number(&run["total"]["requests"])), "{}", run["total"]["requests"]);
}

/// Users on two volumes: databases and a log.
#[test]
fn a_mail_server_is_measured() {
    let mut node = Node::start();
    let volumes = ["databases", "log"].map(|name| VolumeSpec::new(name, 128 * MIB).kind(Kind::Ram));
    let [databases, log] = volumes.map(|spec| node.create(&spec).url(0));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let [json, page] = ["result.json", "result.html"].map(|name| dir.path().join(name));
    let [json_path, page_path] = [&json, &page].map(|path| path.to_str().expect("our own path"));
    let profile =
        ["mail", "--users", "2000", "--compress", "10", "-d5", "--verify", "--precondition", "random"];
    let results = ["--json", json_path, "--html", page_path, &databases, &log];
    let text = bench(&[&profile[..], &results].concat()).expect_ok();
    assert!(text.contains("Mail: 2,000 users, 131 tasks per user and day"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("Send    ")), "{text}");

    let record = record(&json);
    let (run, mail) = (&record["runs"][0], &record["analysis"]);
    assert_eq!((run["complete"].as_bool(), &run["check"]["unchecked"]), (Some(true), &Value::from(0)));
    assert!((90.0..93.0).contains(&number(&mail["due_rate"])), "{}", mail["due_rate"]);
    assert!(number(&mail["all"]["rate"]) > 50.0, "{}", mail["all"]["rate"]);
    assert_eq!(mail["tasks"][1]["name"], "send mail");
    assert_eq!(mail["volumes"][2]["target"], log.as_str());
    assert_eq!(mail["volumes"][2]["reads"]["requests"], 0);
    assert!(number(&mail["volumes"][0]["reads"]["requests"]) > 100.0);
    let html = fs::read_to_string(&page).expect("the page was written");
    assert!(html.matches("<svg").count() == 8 && html.contains("send mail"));
    assert_eq!(bench(&["report", json_path]).expect_ok(), text, "a record says what its report said");
    // Its database pages and logs without the rest would be another load.
    let again = bench(&["compare", json_path, json_path, "--rounds", "1", "--overwrite"]);
    assert!(!again.ok() && again.output.contains("omit --rounds"), "{}", again.output);
}

/// A disk without a target, and a volume on it.
#[test]
fn a_volume_is_compared_with_its_disk() {
    let mut node = Node::start();
    let url = node.create(&VolumeSpec::new("one", 64 * MIB)).url(0);
    let dir = TempDir::new_in(".").expect("a temporary directory can be made");
    let [json, raw] = ["result.json", "raw"].map(|name| dir.path().join(name));
    let [json_path, raw_path] = [&json, &raw].map(|path| path.to_str().expect("our own path"));
    let target = format!("1={url}");
    let pattern = ["copies", "-b4K", "-o4", "-r", "-w50", "-d0.5", "-W0.1", "--rounds", "2", "--verify"];
    let sides = ["--raw", raw_path, "--raw-size", "64M", "--target", &target, "--json", json_path];
    let text = bench(&[&pattern[..], &sides].concat()).expect_ok();
    assert!(text.lines().any(|line| line.starts_with("1 copy ")), "{text}");
    assert!(!raw.exists(), "what was made for it is gone");

    let record = record(&json);
    let sides = &record["analysis"]["sides"];
    assert_eq!((&sides[0]["name"], &sides[1]["name"]), (&Value::from("raw disk"), &Value::from("1 copy")));
    assert_eq!((&sides[0]["server_us"], &sides[0]["ratio"]), (&Value::Null, &Value::Null));
    assert!(number(&sides[1]["server_us"]) > 0.0);
    assert_eq!(sides[1]["ratio"]["rounds"], 2);
    let target = |run: usize| record["runs"][run]["subjects"][0]["target"].as_str().unwrap_or_default();
    assert_eq!([0, 1, 2, 3].map(target), [raw_path, raw_path, &url, &url]);
}
