//! One connection's way through its login, on core 0.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::SendBatch;
use proto::iscsi::target::{
    Authorization, Chap, CloseReason, Credentials, Login, LoginEvent, LoginOutcome, LoginRequest, LoginStatus,
};
use proto::scsi::{InitiatorPort, ItNexus, NexusId, RelativePort};
use rt::{DetachedStream, Stream};

use super::registry::SessionName;
use crate::access::{ChapSecret, Denied};
use crate::control::Control;
use crate::events::code::{INITIATOR_DENIED, SESSION_OPENED};
use crate::events::{Event, tell};
use crate::session::{Birth, Peer, Seat, Session};
use crate::shard::Shard;

/// How long the session that a login replaces gets to end. Its commands may be at a disk; after this the initiator is
/// asked to come again.
const REINSTATEMENT_DEADLINE: Duration = Duration::from_secs(10);

/// Takes a connection through its login and hands it to its session.
pub(super) async fn log_in(stream: DetachedStream, peer: SocketAddr) {
    let stream = stream.attach();
    let deadline = Shard::current().config().login_deadline;
    match rt::timeout(deadline, negotiate(&stream, peer)).await {
        Ok(Some((admitted, outcome))) => hand_over(stream, admitted, outcome).await,
        Ok(None) => {}
        Err(_) => tracing::info!(%peer, "a login was not finished in time"),
    }
}

/// A place in the registry that is given back unless its session has begun: the connection may break, or the deadline of
/// the login pass, while the final response is being sent.
struct Place {
    tsih: u16,
    nexus: NexusId,
}

impl Place {
    /// The session may begin now, unless another login of the same names has taken its place.
    fn begin(&self) -> bool {
        Control::current().registry().begin(self.tsih, self.nexus)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        Control::current().registry().give_up(self.tsih, self.nexus);
    }
}

/// What was decided about a login.
enum Admitted {
    /// It makes a session, there; the registry has its place.
    New(rt::CoreId, Birth, Place),
    /// It adds a connection to a session.
    Joins(Seat),
}

async fn negotiate(stream: &Stream, peer: SocketAddr) -> Option<(Admitted, LoginOutcome)> {
    let mut login = Login::new(rt::now() + Shard::current().config().login_deadline);
    let mut batch = SendBatch::new();
    let mut request = None;
    loop {
        let mut done = None;
        let mut failed = false;
        while let Some(event) = login.poll_event() {
            match event {
                LoginEvent::Authorize(asked) => {
                    login.authorize(authorize(&asked, peer, stream.local_address().ip()));
                    request = Some(asked);
                }
                LoginEvent::Finish => {
                    match admit(request.take(), peer, login.proven().and_then(secret)).await {
                        Ok(admitted) => {
                            let outcome = login.accept(admitted.tsih());
                            done = Some((admitted, outcome));
                        }
                        Err(status) => {
                            tracing::info!(%peer, ?status, "login refused");
                            Control::current().count_refused_login(status);
                            login.refuse(status);
                            failed = true;
                        }
                    }
                }
                LoginEvent::Failed(status, reason) => {
                    tracing::info!(%peer, ?status, reason, "login refused");
                    if let (LoginStatus::AuthenticationFailure, Some(asked)) = (status, &request) {
                        let target = asked.target.as_deref().unwrap_or("discovery");
                        let text =
                            format!("{} at {peer} was not let in to {target}: {reason}", asked.initiator);
                        tell(Event::new(INITIATOR_DENIED, &asked.initiator, text).because("authentication"));
                    }
                    Control::current().count_refused_login(status);
                    failed = true;
                }
            }
        }
        login.poll_transmit(&mut batch);
        if !batch.is_empty() {
            batch = match stream.send(batch).await {
                Ok(batch) => batch,
                Err(error) => {
                    tracing::debug!(%peer, %error, "the connection ended in its login");
                    return None;
                }
            };
        }
        if done.is_some() || failed {
            return done;
        }
        match stream.receive().await {
            Ok(bytes) if !bytes.is_empty() => login.handle_bytes(&bytes),
            // A port scan, or a load balancer's probe.
            _ => return None,
        }
    }
}

impl Admitted {
    fn tsih(&self) -> u16 {
        match self {
            Admitted::New(_, birth, _) => birth.tsih,
            Admitted::Joins(seat) => seat.tsih(),
        }
    }
}

fn credentials(chap: &ChapSecret) -> Credentials {
    Credentials { name: chap.user.clone(), secret: chap.secret.clone().into_bytes() }
}

/// Our own secret again, which was text.
fn secret(credentials: &Credentials) -> Option<ChapSecret> {
    let secret = String::from_utf8(credentials.secret.clone()).ok()?;
    Some(ChapSecret { user: credentials.name.clone(), secret })
}

/// A challenge that any of `secrets` answers; `None` if there are none.
fn chap(secrets: &[ChapSecret], target: Option<&ChapSecret>) -> Option<Chap> {
    (!secrets.is_empty()).then(|| Chap {
        initiator: secrets.iter().map(credentials).collect(),
        target: target.map(credentials),
        challenge: rt::secret_bytes(),
        identifier: rt::secret_bytes::<1>()[0],
    })
}

/// Whether, and how, the initiator may log in that has come to `local`.
fn authorize(request: &LoginRequest, peer: SocketAddr, local: IpAddr) -> Authorization {
    let shard = Shard::current();
    if shard.is_draining() {
        return Authorization::Deny(LoginStatus::ServiceUnavailable);
    }
    // An initiator tries again, and its other paths meanwhile.
    if shard.copies().and_then(|copies| copies.keeper()).is_some_and(|keeper| keeper.refuses_logins()) {
        return Authorization::Deny(LoginStatus::ServiceUnavailable);
    }
    // A floating address has the same one wherever it is.
    let floating = shard.floating_group(local.to_canonical());
    let portal_group = floating.unwrap_or_else(|| shard.port_numbers().portal_group());
    // Discovery shows each initiator no more than what it may log in to.
    let Some(target) = &request.target else {
        let secrets = match shard.config().discovery_chap {
            true => shard.access().secrets_of(&request.initiator, peer.ip()),
            false => Vec::new(),
        };
        return Authorization::Allow { chap: chap(&secrets, None), portal_group, alias: None };
    };
    match shard.access().admit(target, &request.initiator, peer.ip()) {
        Ok(admission) => {
            let chap = chap(&admission.chap, admission.target_chap.as_ref());
            Authorization::Allow { chap, portal_group, alias: admission.alias }
        }
        Err(denied) => {
            tracing::warn!(%peer, initiator = request.initiator, target, ?denied, "initiator denied");
            let (cause, why) = match denied {
                Denied::NoSuchTarget => ("no_such_target", "there is no such target"),
                Denied::NotMapped => ("not_mapped", "nothing there is mapped for it"),
            };
            let text = format!("{} at {peer} was not let in to {target}: {why}", request.initiator);
            tell(Event::new(INITIATOR_DENIED, &request.initiator, text).because(cause));
            Authorization::Deny(match denied {
                Denied::NoSuchTarget => LoginStatus::NotFound,
                Denied::NotMapped => LoginStatus::AuthorizationFailure,
            })
        }
    }
}

/// Finds or makes the session's place.
async fn admit(
    request: Option<LoginRequest>,
    peer: SocketAddr,
    proven: Option<ChapSecret>,
) -> Result<Admitted, LoginStatus> {
    let request = request.ok_or(LoginStatus::TargetError)?;
    let control = Control::current();
    let registry = control.registry();
    let initiator: std::sync::Arc<str> = request.initiator.as_str().into();
    let name =
        SessionName { initiator: initiator.clone(), isid: request.isid, target: request.target.clone() };
    if request.tsih != 0 {
        let place = registry.begun(request.tsih).await.filter(|place| place.name == name);
        let place = place.ok_or(LoginStatus::SessionDoesNotExist)?;
        let (tsih, cid) = (request.tsih, request.cid);
        let seat = rt::call(place.core, move || async move {
            Shard::current().session(tsih).ok_or(LoginStatus::SessionDoesNotExist)?.join(cid).await
        });
        return Ok(Admitted::Joins(seat.await?));
    }
    // RFC 7143 6.3.5: a login with the names of a living session replaces it. Two logins of the same names at once take turns.
    while let Some((old, place)) = registry.named(&name).filter(|_| request.target.is_some()) {
        if registry.supersede(&name) {
            continue;
        }
        rt::send(place.core, move || {
            if let Some(session) = Shard::current().session(old) {
                session.end(CloseReason::Reinstated);
            }
        });
        let gone = rt::timeout(REINSTATEMENT_DEADLINE, registry.gone(old)).await;
        gone.map_err(|_| LoginStatus::ServiceUnavailable)?;
    }
    let added = registry.add(name);
    let (tsih, nexus, core, again) = added.ok_or(LoginStatus::OutOfResources)?;
    let initiator = InitiatorPort { name: initiator, isid: request.isid };
    let (access, numbers) = (Shard::current().access(), Shard::current().port_numbers());
    let target = request.target.as_deref().and_then(|target| access.target(target));
    // A session for discovery has no port.
    let port = target.map_or(RelativePort(0), |target| numbers.port(target.port));
    let peer = Peer {
        name: ItNexus { initiator, port },
        alias: request.alias,
        target: request.target,
        address: peer,
        proven,
    };
    Ok(Admitted::New(core, Birth { tsih, nexus, peer, again }, Place { tsih, nexus }))
}

/// Moves the connection to its session's core.
async fn hand_over(stream: Stream, admitted: Admitted, outcome: LoginOutcome) {
    let stream = stream.detach().await;
    match admitted {
        Admitted::New(core, birth, place) => {
            if !place.begin() {
                return tracing::info!(tsih = birth.tsih, "another login has taken the place of this one");
            }
            tracing::info!(
                tsih = birth.tsih,
                initiator = %birth.peer.name.initiator,
                target = birth.peer.target,
                address = %birth.peer.address,
                %core,
                "session began"
            );
            if let Some(target) = &birth.peer.target {
                let (initiator, address) = (&birth.peer.name.initiator.name, birth.peer.address);
                let text = format!("{initiator} has logged in to {target} from {address}");
                tell(Event::new(SESSION_OPENED, &**initiator, text));
            }
            rt::send(core, move || Session::begin(birth).add_leading_connection(stream.attach(), outcome));
        }
        Admitted::Joins(seat) => seat.take(stream, outcome),
    }
}
