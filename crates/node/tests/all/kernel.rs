//! The same node on the real kernel: threads, rings, files, loopback.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::{BlockSize, ByteLen};
use initiator::load::{self, Access, Until};
use initiator::{Lun, MultipathOptions};
use node::control::{DefaultPool, StartSpec, TargetSpec};
use node::{Config, Handle};
use rt::CoreId;
use rt::uring::Running;
use store::VolumeKind;

use crate::rig::{MIB, Shape, TARGET, map, new_volume};

fn cores(count: usize) -> rt::uring::Config {
    rt::uring::Config { processors: (0..count).collect(), pin: false, poll: Duration::from_micros(20) }
}

/// Runs `main` on a node of one core, and returns its result.
fn run_alone<T: Send + 'static, F: Future<Output = T> + 'static>(
    main: impl Fn() -> F + Send + Clone + 'static,
) -> T {
    let (result, results) = mpsc::channel();
    let running = Running::start(cores(1), move |_| {
        let (main, result) = (main.clone(), result.clone());
        async move { result.send(main().await).unwrap() }
    });
    running.unwrap().join();
    results.recv().unwrap()
}

/// A node of two cores with its data in `dir`; returns its threads and the portal.
fn start(dir: PathBuf) -> (Running, std::net::SocketAddr) {
    let portals = vec!["127.0.0.1:0".parse().unwrap()];
    let wanted = StartSpec {
        pool: Some(DefaultPool { path: dir.join("pool"), size: ByteLen(64 * MIB) }),
        ..StartSpec::default()
    };
    let config = Arc::new(Config { data_dir: dir, portals, ..Config::default() });
    let (ready, started) = rt::sync::oneshot();
    let start = Arc::new(std::sync::Mutex::new(Some((wanted, ready))));
    let running = Running::start(cores(2), move |core| {
        let start = (core == CoreId(0)).then(|| start.lock().unwrap().take()).flatten();
        node::run(Arc::clone(&config), start)
    });
    let portal = block_on(started).unwrap().expect("the node starts")[0];
    (running.unwrap(), portal)
}

/// Waits for a result from another thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

#[test]
fn sessions_on_two_cores_read_what_they_wrote_for_two_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let (running, portal) = start(dir.path().to_owned());
    let handle = Handle::new(running.handle());
    block_on(handle.call(|control| async move {
        control.create_target(TargetSpec { name: TARGET.into(), alias: None, chap: None }).await.unwrap();
        for (lun, kind) in [(0, VolumeKind::Thick), (1, VolumeKind::Ram)] {
            let name = ["thick", "ram"][usize::from(lun)];
            let shape = Shape { name, kind, block: BlockSize::B512, mib: 16, lun };
            control.create_volume(new_volume("default", shape)).await.unwrap();
            map(&control, name, lun).await.unwrap();
        }
    }))
    .unwrap();
    for (lun, request_bytes) in [(0, 4096), (0, 192 << 10), (1, 4096), (1, 192 << 10)] {
        let report = run_alone(move || async move {
            let config = load::Config {
                portals: vec![portal],
                target: TARGET.into(),
                lun: Lun(lun),
                depth: 4,
                request_bytes,
                read_percent: 50,
                access: Access::Random,
                until: Until::Time(Duration::from_millis(500)),
                span_bytes: None,
                verify: true,
                waits_for_space: false,
                seed: u64::from(request_bytes),
                options: MultipathOptions { sessions: 4, ..MultipathOptions::default() },
            };
            load::run(&config, || None).await.unwrap()
        });
        assert!(report.reads.requests > 10 && report.writes.requests > 10, "{report:?}");
    }
    let sessions = block_on(handle.call(|control| async move { control.sessions().await })).unwrap().unwrap();
    assert!(sessions.is_empty(), "they have logged out: {sessions:?}");
    block_on(handle.drain());
    running.join();
}
