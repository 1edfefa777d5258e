//! A full pool, as the Linux kernel's initiator and multipath see it: ENOSPC, and no path is lost.

use e2e::Guest;

use crate::full_pool::FullPool;
use crate::guest::script;

#[test]
fn linux_gets_enospc_and_keeps_its_paths() {
    let mut pool = FullPool::new();
    let Some(guest) = Guest::start("full-pool") else { return };
    let step = |pool: &FullPool, step: &str| {
        guest.run(&pool.vm, &format!("STEP={step}"), script!("full-pool")).expect_ok();
    };
    guest.run(&pool.vm, "", script!("attach")).expect_ok();
    step(&pool, "before");
    pool.fill();
    step(&pool, "full");
    pool.add_disk();
    step(&pool, "after");
}
