//! Sets, announces and removes floating portal addresses on this machine's network devices.
//!
//! A dedicated thread does one task at a time: it waits for other processes (`ip`), which neither the cores
//! nor the control thread may do. It needs CAP_NET_ADMIN, and CAP_NET_RAW for announcements to neighbors. A
//! node without them still serves volumes, and leaves the addresses to other nodes.

mod announce;
mod ip;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use node::floating::{AddressOn, AddressWork, DeviceTrouble, Devices};
use rt::sync::{Sender, oneshot};

/// A task, the time when it was handed over, and the channel for its result.
///
/// An address is held for its lifetime from that time on, however long earlier tasks take.
type QueuedWork = (AddressWork, Instant, Sender<Result<(), DeviceTrouble>>);

/// Access to this machine's network devices.
pub fn devices() -> std::io::Result<Devices> {
    let (give, given) = mpsc::channel::<QueuedWork>();
    // The thread ends when all senders are gone.
    std::thread::Builder::new().name("addresses".into()).spawn(move || {
        for (work, handed_over, answer) in given {
            answer.send(carry_out(&work, handed_over));
        }
    })?;
    Ok(Devices::new(move |work| {
        let (answer, answered) = oneshot();
        let is_given = give.send((work, Instant::now(), answer)).is_ok();
        Box::pin(async move {
            let gone = Err(DeviceTrouble::ThreadGone);
            if is_given { answered.await.unwrap_or(gone) } else { gone }
        })
    }))
}

/// Removes the addresses of a dead node, all at once, and waits for that at most `limit`.
///
/// Addresses that are not removed by then may be a moment later; those that cannot be removed expire in the
/// kernel.
pub fn take_off_all(addresses: &[AddressOn], limit: Duration) {
    let (at_work, nobody) = mpsc::channel::<()>();
    for on in addresses {
        let (on, at_work) = (on.clone(), at_work.clone());
        let take_off = move || {
            if let Err(trouble) = ip::take_off(&on) {
                eprintln!("ursa: the floating IP {} stays for a few seconds: {trouble}", on.address);
            }
            drop(at_work);
        };
        if let Err(error) = std::thread::Builder::new().name("addresses".into()).spawn(take_off) {
            eprintln!("ursa: a floating IP stays for a few seconds: {error}");
        }
    }
    drop(at_work);
    // No thread sends anything: the channel closes when the last one has ended.
    if nobody.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("ursa: floating IPs not removed after {limit:?}; they may stay for a few seconds");
    }
}

fn carry_out(work: &AddressWork, handed_over: Instant) -> Result<(), DeviceTrouble> {
    match work {
        AddressWork::PutOn { on, lasts, announce } => {
            let device = ip::put_on(on, handed_over + *lasts)?;
            if *announce && let Err(error) = announce::announce(&device, on.address) {
                // Neighbors find the new device when their cache entries expire.
                tracing::warn!(
                    address = %on.address, device, %error,
                    "cannot announce the floating IP; neighbours may take up to a minute to find it (requires CAP_NET_RAW)"
                );
            }
            Ok(())
        }
        AddressWork::TakeOff(on) => ip::take_off(on),
    }
}
