//! `ursa top` against a real node, and in a terminal.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::node::{Node, ursa};

/// The sequences by which a program enters and leaves the terminal's alternate screen.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn one_frame_as_text_or_json() {
    let node = Node::start(&["--volume", "demo=64M,ram", "--name", "n1"]);
    let text = node.ok(&["top", "--once"]);
    assert!(
        text.starts_with("n1, ursa ") && text.contains("\nVOLUME   IOPS*") && text.contains("\ndemo     "),
        "{text}"
    );
    let text = node.ok(&["top", "cores", "--once"]);
    assert!(text.contains("\nCORE*") && text.contains("\n0  "), "{text}");
    assert!(node.ok(&["top", "paths", "--once"]).ends_with("\nNo sessions.\n"));
    let frame = node.json(&["top", "--once"]);
    assert_eq!((&frame["node"], &frame["volumes"][0]["volume"]), (&json!("n1"), &json!("demo")));
    assert!(frame["seconds"].as_f64().unwrap() >= 1.0);
    assert!(node.refused(1, &["top"]).contains("--once"), "standard output is no terminal here");
    assert!(node.refused(2, &["top", "--interval", "0"]).contains("--interval"));
}

/// `ursa top` in a terminal created by script(1); its process id is in a file.
fn in_terminal(node: &Node) -> Child {
    let pid = node.directory.path().join("pid");
    let program = ursa(&[]);
    let program = program.get_program().to_str().unwrap();
    let line = format!("stty rows 24 cols 100; echo $$ > {}; exec {program} top", pid.display());
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).env("URSA_API", format!("http://{}", node.api));
    command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Reads until the output contains this text, or to its end.
fn until(child: &mut Child, wanted: &str) -> String {
    let stdout = child.stdout.as_mut().unwrap();
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    let end = Instant::now() + LIMIT;
    loop {
        let length = stdout.read(&mut piece).unwrap();
        seen.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&seen).into_owned();
        if length == 0 || text.contains(wanted) || Instant::now() > end {
            return text;
        }
    }
}

#[test]
fn q_leaves_and_gives_the_terminal_back() {
    let node = Node::start(&["--volume", "demo=64M,ram"]);
    let mut child = in_terminal(&node);
    let shown = until(&mut child, "q quit");
    assert!(shown.contains(TAKEN) && shown.contains("demo"), "{shown:?}");
    child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let shown = until(&mut child, GIVEN_BACK);
    assert!(shown.contains(GIVEN_BACK), "{shown:?}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_leaves_and_gives_the_terminal_back() {
    let node = Node::start(&[]);
    let mut child = in_terminal(&node);
    until(&mut child, "q quit");
    let pid = std::fs::read_to_string(node.directory.path().join("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let shown = until(&mut child, GIVEN_BACK);
    assert!(shown.contains(GIVEN_BACK), "{shown:?}");
    // The process exits on its own.
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
}
