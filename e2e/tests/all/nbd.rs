//! Snapshots over NBD, read by QEMU and by the tools of libnbd.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use e2e::node::binary;
use e2e::program::{self, Finished};
use e2e::{Kind, Node, VolumeSpec, pattern};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::first_copy::written_while;
use crate::set_back::{BLOCKS, put};
use crate::snapshots::{numbers, with_log_volume};

/// For a program that reads all of a small volume, while a node may have to start.
const LIMIT: Duration = Duration::from_secs(120);
/// From the start until clients can connect, and from a signal to the end.
const SERVES_LIMIT: Duration = Duration::from_secs(30);

/// `ursa snapshot serve`. Dropping it kills it.
struct Served {
    process: Child,
    /// What it has printed for programs.
    told: Value,
    log: PathBuf,
}

impl Served {
    /// Through this node, with a log in the directory.
    #[track_caller]
    fn start(node: &Node, dir: &Path, arguments: &[&str]) -> Served {
        let log = dir.join("serve.log");
        let output = File::options().create(true).append(true).open(&log).expect("a log can be made");
        let mut command = Command::new(binary());
        command.args(["snapshot", "serve", "-o", "json"]).args(arguments);
        command.env("URSA_API", format!("http://{}", node.api()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(output);
        let mut process = command.spawn().expect("the binary was built");
        let stdout = process.stdout.take().expect("it was asked for");
        let mut served = Served { process, told: Value::Null, log };
        // It prints one line when clients can connect.
        let (said, line) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = said.send(line);
        });
        let line = line.recv_timeout(SERVES_LIMIT).unwrap_or_default();
        served.told = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}\n{}", served.log()));
        served
    }

    fn uri(&self) -> &str {
        self.told["uri"].as_str().expect("a text")
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for its end, which must be a success.
    #[track_caller]
    fn wait(mut self) {
        let status = program::wait(&mut self.process, SERVES_LIMIT);
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", self.log());
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    fn stop(self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("it runs");
        self.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn tool(name: &str, arguments: &[&str]) -> Finished {
    program::run(Command::new(name).args(arguments), LIMIT)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

/// Offset and length, neighbours together.
fn joined(ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in ranges {
        match joined.last_mut() {
            Some((last, before)) if *last + *before == offset => *before += len,
            _ => joined.push((offset, len)),
        }
    }
    joined
}

/// What `ursa snapshot diff` names.
fn changed(node: &Node, from: &str, to: &str) -> Vec<(u64, u64)> {
    let pages = node.ursa(&["snapshot", "diff", from, to, "-o", "json"]).expect_ok();
    let mut ranges = Vec::new();
    for page in pages.lines().map(json) {
        for range in page["ranges"].as_array().expect("a list") {
            let number = |field: &str| range[field].as_u64().expect("a number");
            ranges.push((number("offset"), number("len")));
        }
    }
    joined(ranges)
}

/// The extents of a map that `qemu-img` prints for which this holds.
fn extents(map: &str, is_wanted: impl Fn(&Value) -> bool) -> Vec<(u64, u64)> {
    let map = json(map);
    let number = |extent: &Value, field: &str| extent[field].as_u64().expect("a number");
    let wanted = map.as_array().expect("a list").iter().filter(|extent| is_wanted(extent));
    joined(wanted.map(|extent| (number(extent, "start"), number(extent, "length"))))
}

/// A backup through a node without a copy, while a host writes, and while that node restarts: QEMU and libnbd
/// read what an export has, and learn what has changed.
#[test]
fn a_snapshot_is_read_over_nbd_while_a_host_writes() {
    let mut nodes = with_log_volume();
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = |name: &str| dir.path().join(name).to_str().expect("a text").to_owned();
    let (full, image, socket) = (path("full"), path("image"), path("socket"));
    put(&nodes[0], BLOCKS, 1);
    put(&nodes[0], 2000..2010, 1);
    nodes[0].ursa(&["snapshot", "create", "demo", "--name", "first"]).expect_ok();
    // Here and there, so that there are several ranges.
    for block in [70, 72, 500, 2003, 9000, 16_383] {
        put(&nodes[0], block..block + 1, 2);
    }
    nodes[0].ursa(&["snapshot", "create", "demo", "--name", "second"]).expect_ok();
    let arguments = ["demo@second", "--since", "demo@first", "--socket", &socket];
    let ranges = changed(&nodes[1], "demo@first", "demo@second");
    assert_eq!(ranges.len(), 6, "{ranges:?}");
    nodes[1].ursa(&["snapshot", "export", "demo@second", &full]).expect_ok();
    nodes[1].ursa(&["snapshot", "import", &full, "--to", &image]).expect_ok();
    let read = |path: &str| fs::read(path).expect("it was written");
    let expected = read(&image);

    let served = Served::start(&nodes[2], dir.path(), &arguments);
    assert!(served.told["export"] == "demo@second" && served.told["bitmap"] == "first", "{}", served.told);
    let options = |of: &str| {
        format!("{of}driver=nbd,{of}server.type=unix,{of}server.path={socket},{of}export=demo@second")
    };
    written_while(&nodes[0], || {
        tool("nbdcopy", &[served.uri(), &path("nbdcopy")]).expect_ok();
        tool("qemu-img", &["convert", "-O", "raw", served.uri(), &path("convert")]).expect_ok();
        tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", served.uri(), &image]).expect_ok();
    });
    assert!(read(&path("nbdcopy")) == expected && read(&path("convert")) == expected);
    assert!(numbers(Path::new(&path("nbdcopy"))).iter().all(|number| *number == 1));
    let listed = tool("nbdinfo", &["--list", served.uri()]).expect_ok();
    for context in ["demo@second", "base:allocation", "qemu:dirty-bitmap:first"] {
        assert!(listed.contains(context), "{context} is missing: {listed}");
    }

    // Exactly what has data, and exactly what has changed.
    let map = tool("qemu-img", &["map", "--output", "json", "--image-opts", &options("")]).expect_ok();
    let data = extents(&map, |extent| extent["data"] == true);
    assert_eq!(data.iter().map(|(_, len)| len).sum::<u64>(), (64 + 10 + 5) * 4096, "{map}");
    let bitmap = format!("{},x-dirty-bitmap=qemu:dirty-bitmap:first", options(""));
    let map = tool("qemu-img", &["map", "--output", "json", "--image-opts", &bitmap]).expect_ok();
    // QEMU shows what is dirty as a hole.
    assert_eq!(extents(&map, |extent| extent["data"] == false), ranges);

    // Only the changes, onto what there was before.
    let before = path("before");
    let first = Served::start(&nodes[1], dir.path(), &["demo@first", "--listen", "127.0.0.1:0", "--once"]);
    assert!(first.told["bitmap"].is_null());
    tool("nbdcopy", &[first.uri(), &before]).expect_ok();
    first.wait();
    assert!(read(&before) != expected);
    for (offset, len) in &ranges {
        let part = |file: &str| format!("driver=raw,offset={offset},size={len},{file}");
        let target = part(&format!("file.driver=file,file.filename={before}"));
        let source = part(&options("file."));
        let copy = ["convert", "-n", "--image-opts", "--target-image-opts", &source, &target];
        tool("qemu-img", &copy).expect_ok();
    }
    assert!(read(&before) == expected, "what was before and the changes make the same");

    // Clients wait while the node restarts.
    nodes[2].kill();
    let copied = thread::scope(|scope| {
        let copy = scope.spawn(|| tool("nbdcopy", &[served.uri(), &path("late")]));
        thread::sleep(Duration::from_secs(2));
        nodes[2].restart();
        copy.join().expect("it ends")
    });
    assert!(copied.ok(), "{copied}\n{}", served.log());
    assert!(read(&path("late")) == expected);
    served.stop();
    assert!(!Path::new(&socket).exists(), "nothing is left behind");
}

/// A directory with certificates of an authority, for a server and for a client, as QEMU and libnbd name
/// them; and one with that of the authority only.
fn certificates(dir: &Path) -> (PathBuf, PathBuf) {
    let (all, few) = (dir.join("all"), dir.join("few"));
    for dir in [&all, &few] {
        fs::create_dir(dir).expect("a directory can be made");
    }
    let named = |mut params: CertificateParams, name: &str| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let authority = || {
        let mut params = named(CertificateParams::default(), "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let key = || KeyPair::generate().expect("a key can be made");
    let authority_key = key();
    let signed = authority().self_signed(&authority_key).expect("it can be signed").pem();
    for dir in [&all, &few] {
        fs::write(dir.join("ca-cert.pem"), &signed).expect("a file can be written");
    }
    let issuer = Issuer::new(authority(), authority_key);
    for name in ["server", "client"] {
        let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let params = named(params.expect("these are names"), name);
        let key = key();
        let certificate = params.signed_by(&key, &issuer).expect("it can be signed");
        for (what, pem) in [("cert", certificate.pem()), ("key", key.serialize_pem())] {
            fs::write(all.join(format!("{name}-{what}.pem")), pem).expect("a file can be written");
        }
    }
    (all, few)
}

#[test]
fn a_snapshot_is_served_over_tls_to_clients_with_certificates() {
    const SIZE: usize = 16 << 20;
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("db", SIZE as u64).kind(Kind::Log));
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = |name: &str| dir.path().join(name).to_str().expect("a text").to_owned();
    let mut content = pattern::noise(5, SIZE);
    content[SIZE / 4..SIZE / 2].fill(0);
    fs::write(path("image"), &content).expect("a file can be written");
    let fill = ["convert", "-n", "-f", "raw", "-O", "raw", &path("image"), &export.url(0)];
    tool("qemu-img", &fill).expect_ok();
    node.ursa(&["snapshot", "create", "db", "--name", "a"]).expect_ok();

    let exposed = node.ursa(&["snapshot", "serve", "db@a", "--listen", "0.0.0.0:0"]);
    assert!(!exposed.ok() && exposed.output.contains("--tls-certificates"), "{}", exposed.output);

    let (all, few) = certificates(dir.path());
    let all = all.to_str().expect("a text");
    let arguments = ["db@a", "--listen", "127.0.0.1:0", "--tls-certificates", all];
    let served = Served::start(&node, dir.path(), &arguments);
    let uri = served.uri();
    assert!(uri.starts_with("nbds://127.0.0.1:"), "{uri}");
    let plain = tool("nbdinfo", &[&uri.replace("nbds:", "nbd:")]);
    assert!(!plain.ok() && !plain.output.contains("16777216"), "{plain}");
    let nobody = tool("nbdinfo", &[&format!("{uri}?tls-certificates={}", few.display())]);
    assert!(!nobody.ok() && !nobody.output.contains("16777216"), "{nobody}");
    tool("nbdcopy", &[&format!("{uri}?tls-certificates={all}"), &path("copy")]).expect_ok();
    assert!(fs::read(path("copy")).expect("it was written") == content);
    let port = uri.rsplit_once('/').and_then(|(uri, _)| uri.rsplit_once(':')).expect("a port").1;
    let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={all}");
    let remote = format!(
        "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host=127.0.0.1,file.server.port={port},\
         file.export=db@a,file.tls-creds=tls"
    );
    let local = format!("driver=raw,file.driver=file,file.filename={}", path("image"));
    tool("qemu-img", &["compare", "--object", &credentials, "--image-opts", &remote, &local]).expect_ok();
    served.stop();
}
