//! Asking a portal for its targets.

use std::net::SocketAddr;

use proto::iscsi::target_role::TargetRecord;

use crate::{Error, Options, Session};

/// The targets that the portal shows to this initiator.
///
/// # Errors
/// As for [`Session::connect`], and [`Error::Ended`].
pub async fn discover(portal: SocketAddr, options: &Options) -> Result<Vec<TargetRecord>, Error> {
    let session = Session::log_in(portal, options.login(None), options).await?;
    let targets = session.targets().await?;
    // We have the answer; how the session ends does not matter.
    let _ = session.logout().await;
    Ok(targets)
}
