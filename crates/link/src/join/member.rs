//! The member's side of joining.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::message::{ABOUT_MAX, JoinAnswer, JoinRequest, JoinWireError, Rejection, send_verdict};
use crate::wire::{Wire, WireError};

/// How long the user may take to decide: a change of the cluster's record, perhaps after an election.
const DECISION: Duration = Duration::from_secs(30);

/// Decides which nodes may join; provided by the user. An error is why a node may not, for the user on the
/// joining side.
pub(crate) type Admission =
    Rc<dyn Fn(JoinRequest) -> Pin<Box<dyn Future<Output = Result<JoinAnswer, Vec<u8>>>>>>;

/// Serves a node that wants to join over this connection, on which TLS is done. The handshake's deadline
/// applies to the other side's messages, not to the user.
pub(crate) async fn serve(
    wire: &mut Wire,
    handshake: Duration,
    admission: Admission,
) -> Result<JoinAnswered, JoinWireError> {
    let late = |_| WireError::Io(std::io::ErrorKind::TimedOut.into());
    let request = rt::timeout(handshake, JoinRequest::receive(wire)).await.map_err(late)??;
    let decided = rt::timeout(DECISION, admission(request)).await;
    let verdict = match decided {
        Ok(Ok(answer)) if answer.about.len() <= ABOUT_MAX => Ok(answer),
        Ok(Err(why)) if why.len() <= ABOUT_MAX => Err(Rejection::User(why)),
        Ok(_) => Err(Rejection::TooLong),
        Err(rt::Elapsed) => Err(Rejection::Late),
    };
    rt::timeout(handshake, send_verdict(wire, &verdict)).await.map_err(late)??;
    Ok(match verdict {
        Ok(answer) => JoinAnswered::Joined(answer.node),
        Err(rejection) => JoinAnswered::Refused(rejection),
    })
}

/// The result.
pub(crate) enum JoinAnswered {
    Joined(replica::NodeId),
    Refused(Rejection),
}
