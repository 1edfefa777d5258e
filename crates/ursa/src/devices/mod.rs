//! Floating portal addresses on this machine's network devices: `ip` puts them on and takes them off, and
//! neighbours are told.
//!
//! A thread of its own does it, one thing after the other: it waits for other processes, which neither the
//! cores nor the control thread may. It needs the right CAP_NET_ADMIN, and CAP_NET_RAW to tell neighbours; a
//! node without them serves, and leaves addresses to others.

mod announce;
mod ip;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use node::floating::{AddressOn, AddressWork, Devices};
use rt::sync::{Sender, oneshot};

/// What is to be done, since when, and who waits for it: an address stays for so long from when it was handed
/// over, however long other work takes before it.
type Given = (AddressWork, Instant, Sender<Result<(), String>>);

/// The way to this machine's network devices.
///
/// # Errors
/// The thread could not be started.
pub fn devices() -> std::io::Result<Devices> {
    let (give, given) = mpsc::channel::<Given>();
    // It ends when nobody can give it anything any more.
    std::thread::Builder::new().name("addresses".into()).spawn(move || {
        for (work, handed_over, answer) in given {
            answer.send(carry_out(&work, handed_over));
        }
    })?;
    Ok(Devices::new(move |work| {
        let (answer, answered) = oneshot();
        let is_given = give.send((work, Instant::now(), answer)).is_ok();
        Box::pin(async move {
            let gone =
                || Err("the thread that manages network devices has ended; restart the node".to_owned());
            if is_given { answered.await.unwrap_or_else(|_| gone()) } else { gone() }
        })
    }))
}

/// Takes addresses off whose node is dead, all at once, and waits for that no longer than this. What is not
/// off by then may be a moment later; what cannot be taken off, its kernel takes off.
pub fn take_off_all(addresses: &[AddressOn], limit: Duration) {
    let (at_work, nobody) = mpsc::channel::<()>();
    for on in addresses {
        let (on, at_work) = (on.clone(), at_work.clone());
        let take_off = move || {
            if let Err(trouble) = ip::take_off(&on) {
                eprintln!("ursa: the floating IP {} stays for some seconds: {trouble}", on.address);
            }
            drop(at_work);
        };
        if let Err(error) = std::thread::Builder::new().name("addresses".into()).spawn(take_off) {
            eprintln!("ursa: a floating IP stays for some seconds: {error}");
        }
    }
    drop(at_work);
    // Nobody sends anything: it ends when the last of them has.
    if nobody.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("ursa: floating IPs not removed after {limit:?}; they may stay for some seconds");
    }
}

fn carry_out(work: &AddressWork, handed_over: Instant) -> Result<(), String> {
    match work {
        AddressWork::PutOn { on, lasts, announce } => {
            let device = ip::put_on(on, handed_over + *lasts)?;
            if *announce && let Err(error) = announce::announce(&device, on.address) {
                // They find it out when what they know has grown old.
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
