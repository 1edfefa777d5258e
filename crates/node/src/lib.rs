//! A node: everything of it but its HTTP.
//!
//! The way of a command: [`portal`] accepts a connection and takes it through its login; [`session`] turns
//! bytes into commands; [`mod@unit`] carries a command out; [`volume`] brings its blocks to the slices. What
//! administrators do comes in through [`control`]. What a core has is its [`shard`].

pub mod access;
pub mod canary;
pub mod config;
pub mod control;
pub mod copies;
pub mod events;
pub mod floating;
mod histogram;
pub mod parts;
mod port_numbers;
mod portal;
mod record;
mod session;
mod shard;
mod unit;
mod volume;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use proto::iscsi::target::CloseReason;
use rt::CoreId;
use rt::sync::Sender;

pub use self::config::{Carried, Carry, Config, Show, Shown};
pub use self::control::{Control, DefaultPool, Handle, NotRunning, StartError, Wanted};
pub use self::histogram::{BUCKETS, Histogram, bucket_bound};
pub use self::port_numbers::{NodeNumber, PortNumbers};
#[doc(hidden)]
pub use self::record::fuzzing;
pub use self::record::{RecordDamage, RecordError, RecordFault, RecordMissing};
use self::shard::{Shard, on_all_cores};
pub use self::unit::{Operation, Paths, UnitStats, Way, naa};
pub use self::volume::VolumeId;

/// What a node tells when it serves: the addresses of its portals.
pub type Ready = Sender<Result<Vec<SocketAddr>, StartError>>;

/// The life of a core of a node: what every world runs. `start` is given to core 0, and only there.
pub async fn run(config: Arc<Config>, start: Option<(Wanted, Ready)>) {
    let shard = Shard::install(Arc::clone(&config));
    let Some((wanted, ready)) = start else {
        assert_ne!(rt::core(), CoreId(0), "core 0 has the control");
        return std::future::pending().await;
    };
    match serve(&shard, &config, wanted).await {
        Ok(portals) => {
            ready.send(Ok(portals));
            shard.stopping().notified().await;
        }
        Err(error) => ready.send(Err(error)),
    }
}

async fn serve(shard: &Rc<Shard>, config: &Config, wanted: Wanted) -> Result<Vec<SocketAddr>, StartError> {
    let control = Control::start(config).await?;
    shard.set_control(Rc::clone(&control));
    control.go_on_in_cluster().await;
    control.open_everything(wanted.pool).await?;
    control.finish_leaving().await;
    // Before anybody can log in: who comes early finds what will be there.
    control.make_volumes(wanted.volumes).await?;
    let listeners = control.listen(&config.portals).await?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(rt::Listener::local_address).collect();
    let portals = addresses.clone();
    on_all_cores(move || {
        let portals = portals.clone();
        async move { Shard::current().set_portals(portals) }
    })
    .await;
    let logins = Rc::default();
    for listener in listeners {
        rt::spawn(portal::serve(listener, Rc::clone(&logins))).detach();
    }
    Ok(addresses)
}

/// How long a stop waits for disks to make durable what they have. One that answers at all needs less.
const FLUSH_DEADLINE: Duration = Duration::from_secs(30);

/// Ends all sessions in an orderly way, makes everything durable, and stops the node. Runs on core 0.
async fn stop() {
    let shard = Shard::current();
    let deadline = shard.config().drain_deadline;
    if let Some(control) = shard.control() {
        // First, while all else is served: who comes by them would find a node that takes no logins any more.
        control.give_up_addresses().await;
    }
    on_all_cores(|| async {
        let shard = Shard::current();
        shard.drain();
        shard.sessions().iter().for_each(|session| session.end(CloseReason::Drained));
    })
    .await;
    if let Some(control) = shard.control() {
        let registry = control.registry();
        if rt::timeout(deadline, registry.emptied()).await.is_err() {
            tracing::warn!(
                sessions = registry.len(),
                "sessions did not log out in time and are disconnected"
            );
            // From here on nothing is answered any more: what was is made durable below.
            on_all_cores(|| async {
                Shard::current().sessions().iter().for_each(|session| session.end(CloseReason::Reset));
            })
            .await;
        }
    }
    let flushes = shard.units().into_iter().map(|unit| async move {
        let flushed = rt::timeout(FLUSH_DEADLINE, unit.volume().flush()).await;
        if !matches!(flushed, Ok(Ok(_))) {
            tracing::error!(volume = %unit.id(), "the volume could not be flushed during shutdown: unflushed writes may be lost");
        }
    });
    rt::join_all(flushes).await;
    // Nobody is served here any more: the others need not wait until they miss this node.
    if let Some(keeper) = shard.copies().and_then(|copies| copies.keeper()) {
        keeper.leave().await;
    }
    shard.stopping().notify();
}
