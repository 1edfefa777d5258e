use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use initiator::load::{Access, Config, LoadError, Pulse, Until, run, run_shown};
use initiator::multipath::What;
use initiator::{Lun, MultipathOptions};

use crate::ram_target::{NAME, RamTarget};
use crate::{real, simulated};

fn config(portal: SocketAddr) -> Config {
    Config {
        portals: vec![portal],
        target: NAME.into(),
        lun: Lun(0),
        depth: 8,
        request_bytes: 4096,
        read_percent: 50,
        access: Access::Random,
        until: Until::Requests(2000),
        span_bytes: Some(1 << 20),
        verify: true,
        waits_for_space: false,
        seed: 1,
        options: MultipathOptions { sessions: 2, ..MultipathOptions::default() },
    }
}

#[test]
fn all_kinds_of_load() {
    for (access, verify, request_bytes, read_percent) in [
        (Access::Random, true, 4096, 50),
        (Access::Random, false, 512, 100),
        (Access::Sequential, true, 16384, 30),
        (Access::Sequential, false, 65536, 0),
    ] {
        let report = simulated(7, RamTarget::default(), move |portal| async move {
            let config =
                Config { access, verify, request_bytes, read_percent, span_bytes: None, ..config(portal) };
            run(&config, || None).await.unwrap()
        });
        assert_eq!(report.requests(), 2000);
        assert_eq!(report.reads.bytes + report.writes.bytes, 2000 * u64::from(request_bytes));
        assert_eq!(report.reads.requests == 0, read_percent == 0);
        assert!(report.elapsed > Duration::ZERO && report.client_cpu.is_none());
    }
}

#[test]
fn a_seed_is_a_run() {
    let run_once = || {
        simulated(9, RamTarget::default(), |portal| async move {
            let report = run(&config(portal), || None).await.unwrap();
            (report.elapsed, report.reads.requests)
        })
    };
    assert_eq!(run_once(), run_once());
}

#[test]
fn a_time_is_kept() {
    let report = simulated(7, RamTarget::default(), |portal| async move {
        let until = Until::Time(Duration::from_millis(50));
        run(&Config { until, ..config(portal) }, || None).await.unwrap()
    });
    assert!(report.elapsed >= Duration::from_millis(50) && report.elapsed < Duration::from_secs(1));
    assert!(report.requests() > 0);
}

#[test]
fn misplaced_writes_are_found() {
    let target = RamTarget { misplace_write: Some(500), ..RamTarget::default() };
    let error =
        simulated(7, target, |portal| async move { run(&config(portal), || None).await.unwrap_err() });
    assert!(matches!(error, LoadError::WrongData(_)), "{error}");
}

/// The load has no reads: only the final read can find the lost write.
#[test]
fn a_write_that_was_lost_is_found_at_the_end() {
    let target = RamTarget { misplace_write: Some(500), ..RamTarget::default() };
    let error = simulated(7, target, |portal| async move {
        run(&Config { read_percent: 0, ..config(portal) }, || None).await.unwrap_err()
    });
    assert!(matches!(error, LoadError::WrongData(_)), "{error}");
}

/// There are 16 workers, and one write of each finds no space once. They read until they send it again.
#[test]
fn a_write_without_space_is_sent_again_and_reads_continue() {
    simulated(7, RamTarget { without_space: 500..516, ..RamTarget::default() }, |portal| async move {
        let pulse = Arc::new(Pulse::default());
        let until = Until::Time(Duration::from_secs(1));
        let config = Config { until, waits_for_space: true, read_percent: 0, ..config(portal) };
        let report = run_shown(&config, || None, Some(Arc::clone(&pulse))).await.unwrap();
        assert_eq!((pulse.refused(), pulse.answers()), (16, report.requests()));
        assert!(report.reads.requests > 0 && report.writes.requests > 516, "{report:?}");
        // The network delays some packets by a third of a second.
        let stall = pulse.take_stall().request;
        assert!(stall < Duration::from_millis(500), "every answer came at once: {stall:?}");
    });
}

#[test]
fn a_write_without_space_is_an_error_of_a_run_that_does_not_wait_and_at_the_end_of_one_that_does() {
    for waits_for_space in [false, true] {
        let target = RamTarget { without_space: 500..u64::MAX, ..RamTarget::default() };
        let error = simulated(7, target, move |portal| async move {
            let until = Until::Time(Duration::from_secs(1));
            run(&Config { until, waits_for_space, ..config(portal) }, || None).await.unwrap_err()
        });
        assert!(matches!(&error, LoadError::Command(failure) if failure.is_out_of_space()), "{error}");
    }
}

#[test]
fn a_pulse_shows_a_run_and_ends_it() {
    simulated(7, RamTarget::default(), |portal| async move {
        let pulse = Arc::new(Pulse::default());
        let config = Config { until: Until::Time(Duration::from_secs(3600)), ..config(portal) };
        let running = {
            let pulse = Arc::clone(&pulse);
            rt::spawn(async move { run_shown(&config, || None, Some(pulse)).await })
        };
        rt::sleep(Duration::from_millis(200)).await;
        pulse.stop();
        let report = running.await.unwrap();
        assert!(report.elapsed < Duration::from_secs(1), "{report:?}");
        assert_eq!(pulse.answers(), report.requests());
        let stall = pulse.take_stall();
        assert!(stall.request > Duration::ZERO && stall.request <= report.elapsed, "{stall:?}");
        let ups = pulse.take_events().iter().filter(|event| matches!(event.what, What::Up(_))).count();
        assert_eq!(ups, 2, "one a session");
    });
}

#[test]
fn impossible_wishes_are_refused() {
    simulated(7, RamTarget::default(), |portal| async move {
        for config in [
            Config { request_bytes: 1000, ..config(portal) },
            Config { span_bytes: Some(4096), ..config(portal) },
        ] {
            assert!(matches!(run(&config, || None).await, Err(LoadError::Config(_))));
        }
    });
}

#[test]
fn load_on_io_uring() {
    let report =
        real(RamTarget::default(), |portal| async move { run(&config(portal), || None).await.unwrap() });
    assert_eq!(report.requests(), 2000);
}
