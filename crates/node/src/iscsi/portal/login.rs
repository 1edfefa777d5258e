//! The login of one connection, on core 0.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::SendBatch;
use proto::iscsi::chap::challenge;
use proto::iscsi::target_role::{
    Authorization, Chap, CloseReason, Credentials, Login, LoginEvent, LoginOutcome, LoginRequest, LoginStatus,
};
use proto::scsi::{InitiatorPort, ItNexus, NexusId, RelativePort};
use rt::{DetachedStream, Stream};

use super::registry::SessionName;
use super::room::LoginProgress;
use crate::attach::access::{Barred, ChapSecret, Claim, Denied};
use crate::control::Control;
use crate::events::code::{
    CONNECTION_ADDED, CONNECTION_REPLACED, INITIATOR_DENIED, JOIN_REFUSED, SESSION_OPENED,
};
use crate::events::{Event, tell};
use crate::iscsi::session::{ConnectionSlot, NoConnectionSlot, Peer, Session, SessionParameters};
use crate::shard::Shard;

/// How long a session that a login replaces may take to end. Its commands may be at a disk; after this time
/// the login is refused, and the initiator retries.
const REINSTATEMENT_DEADLINE: Duration = Duration::from_secs(10);

/// Runs a connection's login and passes the connection to its session.
///
/// Calls `show` with what the connection has shown of itself.
pub(super) async fn log_in(stream: DetachedStream, peer: SocketAddr, show: impl Fn(LoginProgress)) {
    let stream = stream.attach();
    let deadline = Shard::current().config().login_deadline;
    match rt::timeout(deadline, negotiate(&stream, peer, show)).await {
        Ok(Some((admitted, outcome))) => hand_over(stream, peer, admitted, outcome).await,
        Ok(None) => {}
        Err(_) => tracing::info!(%peer, "login not completed in time"),
    }
}

/// A place in the registry, released on drop unless its session has begun: the connection may break, or the
/// login's deadline pass, while the final response is being sent.
struct Place {
    tsih: u16,
    nexus: NexusId,
}

impl Place {
    /// Lets the session begin, unless another login of the same names has taken its place.
    fn begin(&self) -> bool {
        Control::current().registry().begin(self.tsih, self.nexus)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        Control::current().registry().give_up(self.tsih, self.nexus);
    }
}

/// The decision about a login.
enum Admitted {
    /// It creates a session, on that core; its place is in the registry.
    New(New),
    /// It adds a connection to a session, or replaces one.
    Joins(ConnectionSlot, SessionName),
}

/// A session that a login creates.
struct New {
    core: rt::CoreId,
    parameters: SessionParameters,
    place: Place,
    /// It has ended an earlier session of the same names.
    reinstates: bool,
}

async fn negotiate(
    stream: &Stream,
    peer: SocketAddr,
    show: impl Fn(LoginProgress),
) -> Option<(Admitted, LoginOutcome)> {
    let mut login = Login::new(rt::now() + Shard::current().config().login_deadline);
    let mut batch = SendBatch::new();
    let mut request = None;
    loop {
        let mut done = None;
        let mut failed = false;
        while let Some(event) = login.poll_event() {
            match event {
                LoginEvent::Authorize(asked) => {
                    let authorization = authorize(&asked, peer, stream.local_address().ip());
                    // A discovery login cannot match a host group yet.
                    let is_host =
                        asked.target.is_some() && matches!(authorization, Authorization::Allow { .. });
                    show(if is_host { LoginProgress::Host } else { LoginProgress::Request });
                    login.authorize(authorization);
                    request = Some(asked);
                }
                LoginEvent::Finish => {
                    let claim = Claim { address: peer.ip(), proven: login.proven().and_then(secret) };
                    match admit(request.take(), peer, claim).await {
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
                            format!("login of {} at {peer} to {target} refused: {reason}", asked.initiator);
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
                    tracing::debug!(%peer, %error, "the connection ended during login");
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
            Admitted::New(new) => new.parameters.tsih,
            Admitted::Joins(slot, _) => slot.tsih(),
        }
    }
}

fn credentials(chap: &ChapSecret) -> Credentials {
    Credentials { name: chap.user.clone(), secret: chap.secret.clone().into_bytes() }
}

/// The secret as text, which it was originally.
fn secret(credentials: &Credentials) -> Option<ChapSecret> {
    let secret = String::from_utf8(credentials.secret.clone()).ok()?;
    Some(ChapSecret { user: credentials.name.clone(), secret })
}

/// A challenge that any of `secrets` answers; `None` if there are none.
fn chap(secrets: &[ChapSecret], target: Option<&ChapSecret>) -> Option<Chap> {
    (!secrets.is_empty()).then(|| Chap {
        initiator: secrets.iter().map(credentials).collect(),
        target: target.map(credentials),
        challenge: challenge(rt::secret_bytes()).to_vec(),
        identifier: rt::secret_bytes::<1>()[0],
    })
}

/// Whether, and on which conditions, the initiator that connected to `local` may log in.
fn authorize(request: &LoginRequest, peer: SocketAddr, local: IpAddr) -> Authorization {
    let shard = Shard::current();
    if shard.is_draining() {
        return Authorization::Deny(LoginStatus::ServiceUnavailable);
    }
    // The initiator retries, and uses its other paths meanwhile.
    if shard
        .copies()
        .and_then(|copies| copies.reconciler())
        .is_some_and(|reconciler| reconciler.refuses_logins())
    {
        return Authorization::Deny(LoginStatus::ServiceUnavailable);
    }
    // A floating address has the same group on every node.
    let floating = shard.floating_group(local.to_canonical());
    let portal_group = floating.unwrap_or_else(|| shard.portal_group());
    // Discovery shows each initiator only the targets that it may log in to.
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
                Denied::NoSuchTarget => ("no_such_target", "target not found"),
                Denied::NotMapped => ("not_mapped", "no LUN is mapped to it"),
            };
            let text = format!("login of {} at {peer} to {target} refused: {why}", request.initiator);
            tell(Event::new(INITIATOR_DENIED, &request.initiator, text).because(cause));
            Authorization::Deny(match denied {
                Denied::NoSuchTarget => LoginStatus::NotFound,
                Denied::NotMapped => LoginStatus::AuthorizationFailure,
            })
        }
    }
}

/// Finds the session to join, or reserves a place for a new one.
async fn admit(
    request: Option<LoginRequest>,
    peer: SocketAddr,
    claim: Claim,
) -> Result<Admitted, LoginStatus> {
    let request = request.ok_or(LoginStatus::TargetError)?;
    let initiator: std::sync::Arc<str> = request.initiator.as_str().into();
    let name =
        SessionName { initiator: initiator.clone(), isid: request.isid, target: request.target.clone() };
    if request.tsih != 0 {
        return join(&request, name, peer, claim).await;
    }
    let reinstates = reinstate(&name, peer, &claim).await?;
    let control = Control::current();
    let added = control.registry().add(name, claim.clone(), || u16::from_le_bytes(rt::secret_bytes()));
    let (tsih, nexus, core, again) = added.ok_or(LoginStatus::OutOfResources)?;
    let initiator = InitiatorPort::Iscsi { name: initiator, isid: request.isid };
    let (access, node) = (Shard::current().access(), Shard::current().number());
    let target = request.target.as_deref().and_then(|target| access.target(target));
    // A discovery session has no port.
    let port = target.map_or(RelativePort(0), |target| node.port(target.port));
    let peer = Peer {
        name: ItNexus { initiator, port },
        alias: request.alias,
        target: request.target,
        address: peer,
        claim,
    };
    let (parameters, place) = (SessionParameters { tsih, nexus, peer, again }, Place { tsih, nexus });
    Ok(Admitted::New(New { core, parameters, place, reinstates }))
}

/// Reserves a slot in the session with the login's TSIH, for a further connection or to replace one with its
/// number.
async fn join(
    request: &LoginRequest,
    name: SessionName,
    peer: SocketAddr,
    claim: Claim,
) -> Result<Admitted, LoginStatus> {
    let (tsih, cid) = (request.tsih, request.cid);
    let control = Control::current();
    let place = control.registry().begun(tsih).await.filter(|place| place.name == name);
    let Some(place) = place else {
        tell_refused(&name, peer, Refused::NoSuchSession);
        return Err(LoginStatus::SessionDoesNotExist);
    };
    let nexus = place.nexus;
    let slot = rt::call(place.core, move || async move {
        let session = Shard::current().session(tsih).filter(|session| session.nexus() == nexus);
        let gone = NoConnectionSlot::Status(LoginStatus::SessionDoesNotExist);
        session.ok_or(gone)?.join(cid, &claim).await
    });
    match slot.await {
        Ok(slot) => Ok(Admitted::Joins(slot, name)),
        Err(NoConnectionSlot::Status(status)) => Err(status),
        Err(NoConnectionSlot::Barred(barred)) => Err(refuse(&name, peer, barred)),
    }
}

/// Ends the session of these names, if there is one (RFC 7143 6.3.5), and returns whether there was.
///
/// Concurrent logins of the same names take turns. A login that may not act for the session leaves it alone,
/// whatever name it sends.
async fn reinstate(name: &SessionName, peer: SocketAddr, claim: &Claim) -> Result<bool, LoginStatus> {
    let control = Control::current();
    let registry = control.registry();
    let mut ended = false;
    while let Some((old, place)) = registry.named(name).filter(|_| name.target.is_some()) {
        let target = name.target.as_deref().unwrap_or_default();
        if !place.has_begun() {
            // The session's core does not know the session yet.
            let access = Shard::current().access();
            let entered = access.enters(target, &name.initiator, &place.claim);
            let acts = access.acts_for(&name.initiator, &entered, claim);
            acts.map_err(|barred| refuse(name, peer, barred))?;
            registry.supersede(name);
            continue;
        }
        let (nexus, claim) = (place.nexus, claim.clone());
        // Sent, not called: the message that creates the session may still be on its way to the session's
        // core, even if that is this one, and must arrive first.
        let (reply, answer) = rt::sync::oneshot();
        rt::send(place.core, move || {
            let session = Shard::current().session(old).filter(|session| session.nexus() == nexus);
            reply.send(session.map_or(Ok(()), |session| {
                session.admits(&claim)?;
                session.end(CloseReason::Reinstated);
                Ok(())
            }));
        });
        let ends = answer.await.map_err(|_| LoginStatus::ServiceUnavailable)?;
        ends.map_err(|barred| refuse(name, peer, barred))?;
        let gone = rt::timeout(REINSTATEMENT_DEADLINE, registry.gone(old)).await;
        gone.map_err(|_| LoginStatus::ServiceUnavailable)?;
        ended = true;
    }
    Ok(ended)
}

/// Why a login was refused access to an existing session.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// No session of these names has the login's TSIH.
    NoSuchSession,
    /// The login may not act for the session.
    Barred(Barred),
}

/// Reports that a login may not act for the session of these names. Returns the status for the login response
/// (RFC 7143 11.13.5).
fn refuse(name: &SessionName, peer: SocketAddr, barred: Barred) -> LoginStatus {
    tell_refused(name, peer, Refused::Barred(barred));
    match barred {
        Barred::Secret => LoginStatus::AuthenticationFailure,
        Barred::Address => LoginStatus::AuthorizationFailure,
    }
}

fn tell_refused(name: &SessionName, peer: SocketAddr, refused: Refused) {
    let (cause, why) = match refused {
        Refused::NoSuchSession => {
            ("no_such_session", "the initiator has no session with the TSIH in the login")
        }
        Refused::Barred(Barred::Secret) => {
            ("secret", "the login did not authenticate with the CHAP secret of that session")
        }
        Refused::Barred(Barred::Address) => {
            ("address", "a host group of that session does not allow this address")
        }
    };
    let SessionName { initiator, target, .. } = name;
    let target = target.as_deref().unwrap_or("discovery");
    tracing::warn!(%peer, %initiator, target, ?refused, "a login was refused access to an existing session");
    let text =
        format!("login as {initiator} from {peer} was refused access to a session with {target}: {why}");
    tell(Event::new(JOIN_REFUSED, &**initiator, text).because(cause));
}

/// Moves the connection to its session's core.
async fn hand_over(stream: Stream, peer: SocketAddr, admitted: Admitted, outcome: LoginOutcome) {
    let stream = stream.detach().await;
    match admitted {
        Admitted::New(New { core, parameters, place, reinstates }) => {
            if !place.begin() {
                return tracing::info!(tsih = parameters.tsih, "this login was superseded by another one");
            }
            tracing::info!(
                tsih = parameters.tsih,
                initiator = %parameters.peer.name.initiator,
                target = parameters.peer.target,
                address = %parameters.peer.address,
                %core,
                "session started"
            );
            if let Some(target) = &parameters.peer.target {
                let (initiator, address) = (parameters.peer.name.initiator.name(), parameters.peer.address);
                let event = |text| Event::new(SESSION_OPENED, &**initiator, text);
                tell(match reinstates {
                    false => event(format!("{initiator} logged in to {target} from {address}")),
                    true => event(format!(
                        "{initiator} logged in to {target} from {address}, replacing its previous session"
                    ))
                    .because("reinstated"),
                });
            }
            rt::send(core, move || {
                Session::begin(parameters).add_leading_connection(stream.attach(), outcome)
            });
        }
        Admitted::Joins(slot, name) => {
            let SessionName { initiator, target, .. } = name;
            let (target, cid) = (target.unwrap_or_default(), outcome.request.cid);
            let (code, did) = match slot.replaces() {
                true => (CONNECTION_REPLACED, "replaced"),
                false => (CONNECTION_ADDED, "added"),
            };
            let text = format!("{initiator} at {peer} {did} connection {cid} of its session with {target}");
            tell(Event::new(code, &*initiator, text));
            slot.take(stream, outcome);
        }
    }
}
