//! A node, except its HTTP interface.
//!
//! The path of a command: [`iscsi::portal`] accepts a connection and runs its login; [`iscsi::session`] turns
//! bytes into commands; [`mod@attach`] executes a command; [`data`] passes its blocks to the slices. Changes
//! by administrators enter through [`control`]. Each core has a [`shard`] with its part of the state.

mod attach;
pub mod canary;
pub mod config;
pub mod control;
pub mod copies;
mod data;
pub mod events;
mod histogram;
mod iscsi;
pub mod member;
mod record;
mod shard;
#[cfg(test)]
mod single_node;
mod under_way;
#[cfg(test)]
mod version_1;
pub mod yielding;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use proto::iscsi::target_role::CloseReason;
use rt::CoreId;
use rt::sync::Sender;

pub use self::attach::access;
pub use self::attach::port_numbers::NodeNumber;
pub use self::attach::unit::{Operation, Paths, UnitStats, Way, naa};
pub use self::config::{Config, PeerAnswer, PeerRequests};
pub use self::control::{Control, DefaultPool, Handle, NotRunning, StartError, StartSpec};
pub use self::data::VolumeId;
pub use self::histogram::{BUCKETS, Histogram, bucket_bound};
pub use self::member::floating;
#[doc(hidden)]
pub use self::record::fuzzing;
pub use self::record::{RecordDamage, RecordError, RecordFault, RecordMissing};
pub use self::shard::NodePortals;
use self::shard::{Shard, on_all_cores};

/// The addresses of the node's portals, sent once it serves.
pub type Ready = Sender<Result<Vec<SocketAddr>, StartError>>;

/// Runs one core of a node, in every world. Only core 0 gets `start`.
pub async fn run(config: Arc<Config>, start: Option<(StartSpec, Ready)>) {
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

async fn serve(shard: &Rc<Shard>, config: &Config, wanted: StartSpec) -> Result<Vec<SocketAddr>, StartError> {
    let control = Control::start(config).await?;
    shard.set_control(Rc::clone(&control));
    control.show_portal_group().await;
    // Before pools, so that each volume is in the cluster's record from the beginning.
    control.begin_in_cluster().await?;
    control.open_everything(wanted.pool).await?;
    control.finish_leaving().await;
    // Before any host can log in, so that early hosts find all volumes.
    control.make_volumes(wanted.volumes).await?;
    let listeners = control.listen(&config.portals).await?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(rt::Listener::local_address).collect();
    let portals = addresses.clone();
    on_all_cores(move || async move { Shard::current().set_portals(portals) }).await;
    let logins = Rc::default();
    for listener in listeners {
        rt::spawn(iscsi::portal::serve(listener, Rc::clone(&logins))).detach();
    }
    Ok(addresses)
}

/// How long a stop waits for disks to flush. A disk that responds at all needs less.
const FLUSH_DEADLINE: Duration = Duration::from_secs(30);

/// How long a stop waits for checksums to be written. What is not written is computed when the volume is used
/// again.
const SETTLE_DEADLINE: Duration = Duration::from_secs(5);

/// Ends all sessions in an orderly way, flushes all volumes, and stops the node. Runs on core 0.
async fn stop() {
    let shard = Shard::current();
    let deadline = shard.config().drain_deadline;
    if let Some(control) = shard.control() {
        // First, while everything else is still served: a host that came through them later would find a node
        // that accepts no logins.
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
            // From here on no command is answered. What has been answered is flushed below.
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
    // This node no longer serves any host: tell the other nodes, so that they need not wait for a timeout.
    if let Some(reconciler) = shard.copies().and_then(|copies| copies.reconciler()) {
        reconciler.leave().await;
    }
    if let Some(control) = shard.control() {
        let _settled = rt::timeout(SETTLE_DEADLINE, control.settle_checksums(Duration::ZERO)).await;
    }
    shard.stopping().notify();
}
