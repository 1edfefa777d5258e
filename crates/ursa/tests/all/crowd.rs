//! A thousand volumes on a node: a volume a virtual machine is normal.

use std::time::{Duration, Instant};

use crate::node::Node;

const VOLUMES: usize = 1000;
/// The list is asked for so often, and the quickest counts: what else the machine does slows the others.
const LISTS: usize = 5;
/// So long the API may take for the list; a build for tests takes 23 to 33 ms.
const LIST_MAX: Duration = Duration::from_millis(200);

fn timed<T>(what: &str, act: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = act();
    let took = start.elapsed();
    println!("{what}: {took:.2?}");
    (result, took)
}

/// The times are printed (`--nocapture`); what is asserted is far from them, and that the thousandth volume costs little
/// more than the first. The API is to list all of them within 200 ms.
#[test]
fn a_thousand_volumes() {
    let node = Node::start(&[]);
    let client = api::Client::new(&format!("http://{}", node.api));
    let create = |from: usize, to: usize| {
        for number in from..to {
            client.create_volume(&api::VolumeCreate::new(format!("vm-{number:04}"), 4 << 20)).unwrap();
        }
    };
    let tenth = VOLUMES / 10;
    let cpu_of = |what: &str, act: &dyn Fn()| {
        let before = node.cpu();
        timed(what, act);
        node.cpu() - before
    };
    let first = cpu_of("the first hundred", &|| create(0, tenth));
    timed("the next eight hundred", || create(tenth, VOLUMES - tenth));
    let last = cpu_of("the last hundred", &|| create(VOLUMES - tenth, VOLUMES));
    println!("CPU of the first hundred: {first:?}, of the last: {last:?}");
    // Each copies all metadata and the whole record to the disk; looking at all volumes one by one would be a mistake.
    assert!(last < first * 3 + Duration::from_millis(200), "{first:?}, then {last:?}");

    let (list, took) = timed("list", || node.ok(&["volume", "list"]));
    assert_eq!(list.lines().count(), VOLUMES + 1);
    assert!(took < Duration::from_secs(10));
    let quickest = (0..LISTS)
        .map(|_| {
            let (volumes, took) = timed("list by the API", || client.volumes().unwrap().items);
            assert_eq!(volumes.len(), VOLUMES);
            took
        })
        .min()
        .unwrap();
    assert!(quickest < LIST_MAX, "the quickest of {LISTS} lists took {quickest:?}");

    println!("resident: {} MiB", node.resident_bytes() >> 20);
    let before = node.cpu();
    std::thread::sleep(Duration::from_secs(2));
    println!("CPU of two idle seconds: {:?}", node.cpu() - before);

    let directory = node.kill();
    let (node, took) = timed("start", || Node::start_in(directory, &[]));
    assert!(took < Duration::from_secs(30));
    assert_eq!(node.json(&["status"])["volumes"], VOLUMES);
    println!("resident after the start: {} MiB", node.resident_bytes() >> 20);
    let (_, took) = timed("stop", || node.stop());
    assert!(took < Duration::from_secs(30));
}
