//! The life of a path: log in, ask the unit for its name, serve commands, and start again when the path is
//! lost.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use proto::iscsi::FLOATING_GROUP_MIN;

use super::backoff::Backoff;
use super::event::What;
use super::outcome::{Done, Fate, Verdict, judge};
use super::path::{Link, Path, PathState};
use super::shared::Shared;
use crate::command::{AccessState, Identity};
use crate::error::told;
use crate::{Capacity, Error, Lun, Options, Session};

/// How often a unit is asked for its access state over a path that commands may not use: while it is in
/// transition, and otherwise.
const TRANSITION_POLL: Duration = Duration::from_secs(1);
const ACCESS_POLL: Duration = Duration::from_secs(5);

/// How often a path that does not lead to the unit is checked again.
const REFUSED_POLL: Duration = Duration::from_secs(10);

/// The vendor whose targets act on the access states that they report (Ursa's do: `docs/why/paths.md`).
///
/// When such a node reports that the unit is unavailable through another node, no command that the other node
/// received can take effect any more.
const FENCING_VENDOR: &str = "URSA";

/// How often other nodes are asked whether they have continued without a lost one.
const FENCE_POLL: Duration = Duration::from_millis(100);

/// At most this many units of a target are asked for their names, to find ours.
const LUNS_MAX: usize = 256;

/// How often a query is repeated when the unit reports unit attentions or is busy.
const ASKED_MAX: usize = 8;

/// How long to pause when the unit is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Why a session is not a path to the unit.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error(transparent)]
    Error(#[from] Error),
    #[error("no LUN of this target has the name {0}")]
    NoSuchUnit(crate::command::UnitName),
    #[error("block size differs from that of the other paths")]
    BlockSize,
}

/// Maintains a path as long as it is polled.
pub(super) async fn keep(shared: Rc<Shared>, path: Rc<Path>) {
    let mut backoff = Backoff::default();
    let mut former: Option<Rc<Link>> = None;
    let mut lost = rt::now();
    loop {
        rt::sleep(backoff.next(rt::random())).await;
        if let Some(former) = former.as_ref().filter(|former| !former.is_settled()) {
            rt::sleep_until(lost + former.time2wait()).await;
            settle_elsewhere(&shared, &path, former).await;
        }
        let session = match log_in(&shared, &path, &path.name.portal).await {
            Ok(session) => session,
            Err(error) => {
                *path.last_error.borrow_mut() = Some(told(&error));
                path.tried.set(true);
                shared.changed.notify();
                continue;
            }
        };
        let former_link = former.take().inspect(|former| replace_by(former, &session));
        let link = Rc::new(Link::new(session, path.lun.get()));
        let link = use_link(&shared, &path, link, former_link).await;
        lost = rt::now();
        backoff.lived(lost.since(link.began));
        former = Some(link);
    }
}

/// Logs in to the path's target with the path's ISID.
async fn log_in(shared: &Shared, path: &Path, portal: &SocketAddr) -> Result<Session, Error> {
    let options = Options { isid: Some(path.isid), ..shared.options.login.clone() };
    Session::connect(*portal, &path.name.target, &options).await
}

/// Uses a session until it ends. `former` is the path's previous link. Returns the session's last link.
async fn use_link(
    shared: &Rc<Shared>,
    path: &Rc<Path>,
    link: Rc<Link>,
    former: Option<Rc<Link>>,
) -> Rc<Link> {
    path.state.set(PathState::Checking);
    let mut link = link;
    let mut unfit = check(shared, path, &mut link).await;
    if unfit.is_ok() {
        if let Some(former) = former.filter(|former| former.is_replaced() && serves(path.access.get())) {
            former.settle();
        }
        // There is no await between the end of `enroll` and the link's entry in the table.
        unfit = shared.enroll(path, &link).await.map_err(Unfit::Error);
    }
    path.tried.set(true);
    shared.changed.notify();
    if unfit.is_ok() {
        shared.table.borrow_mut().links[path.index] = Some(Rc::clone(&link));
        shared.tell(What::Up(path.name.clone()));
        shared.set_state(path, PathState::Up);
        unfit = attend(shared, path, &link).await;
        shared.table.borrow_mut().links[path.index] = None;
        path.losses.set(path.losses.get() + 1);
    }
    let Err(unfit) = unfit else { return link };
    *path.last_error.borrow_mut() = Some(told(&unfit));
    match link.session.ended() {
        Some(_) => {
            shared.tell(What::Lost(path.name.clone(), told(&unfit)));
            shared.set_state(path, PathState::Connecting);
            watch_quiesce(shared, &link);
            watch_others(shared, &link);
        }
        None => {
            shared.tell(What::Refused(path.name.clone(), told(&unfit)));
            shared.set_state(path, PathState::Refused);
            // Commands sent over it before have completed, or will when the session ends.
            let _ = link.session.logout().await;
            watch_quiesce(shared, &link);
            watch_others(shared, &link);
            rt::sleep(REFUSED_POLL).await;
            shared.set_state(path, PathState::Connecting);
        }
    }
    link
}

/// Watches a path that is up, until its session ends or no longer leads to the unit.
async fn attend(shared: &Rc<Shared>, path: &Rc<Path>, link: &Rc<Link>) -> Result<(), Unfit> {
    loop {
        let polled = match path.access.get() {
            AccessState::ActiveOptimized
            | AccessState::ActiveNonOptimized
            | AccessState::LogicalBlockDependent => {
                link.session.changed().await;
                false
            }
            AccessState::Transitioning => rt::timeout(TRANSITION_POLL, link.session.changed()).await.is_err(),
            _ => rt::timeout(ACCESS_POLL, link.session.changed()).await.is_err(),
        };
        if let Some(ended) = link.session.ended() {
            return Err(Unfit::Error(Error::Ended(ended)));
        }
        if link.session.is_leaving() {
            shared.set_state(path, PathState::Leaving);
            return Err(Unfit::Error(Error::Ended(link.session.closed().await)));
        }
        let told = !link.session.take_sense().is_empty();
        if path.check_wanted.take() || told || polled {
            let mut same = Rc::clone(link);
            check(shared, path, &mut same).await?;
            // The check has just dealt with what set this.
            path.check_wanted.set(false);
            path.state.set(PathState::Up);
        }
        shared.look_again();
    }
}

/// Asks the unit for its name, its access state and its capacity. A new link may turn out to need another
/// LUN.
async fn check(shared: &Rc<Shared>, path: &Rc<Path>, link: &mut Rc<Link>) -> Result<(), Unfit> {
    let (lun, identity) = find(shared, &link.session, link.lun).await?;
    if lun != link.lun {
        // Commands use the link's LUN, so only a link that is not in use yet can get another one.
        let session = Rc::get_mut(link).ok_or_else(|| Unfit::NoSuchUnit(shared.unit.clone()))?;
        session.lun = lun;
        path.lun.set(lun);
    }
    link.port_group.set(identity.port_group);
    link.fences.set(identity.vendor.as_deref() == Some(FENCING_VENDOR));
    let session = &link.session;
    match persistently(|| session.target_port_groups(lun)).await {
        Ok(groups) => {
            let own = groups.iter().find(|group| Some(group.id) == identity.port_group);
            let state = own.map_or(AccessState::ActiveOptimized, |group| group.state);
            shared.set_path_access(path, state);
            shared.set_access(&groups);
        }
        // A target without port groups: all paths are equal.
        Err(error) if error.is_illegal_request() => {
            shared.set_path_access(path, AccessState::ActiveOptimized);
        }
        Err(error) => return Err(error.into()),
    }
    match persistently(|| session.read_capacity(lun)).await {
        Ok(capacity) => resize(shared, capacity),
        // In some access states the unit does not report its capacity.
        Err(Error::Status { .. }) if path.access.get() > AccessState::LogicalBlockDependent => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The unit's LUN and identity: at the LUN where it was last found, or at any other.
async fn find(shared: &Shared, session: &Session, hint: Lun) -> Result<(Lun, Identity), Unfit> {
    if let Some(identity) = identity(session, hint).await?.filter(|identity| identity.unit == shared.unit) {
        return Ok((hint, identity));
    }
    for lun in session.report_luns().await?.into_iter().take(LUNS_MAX) {
        if let Some(identity) = identity(session, lun).await?.filter(|it| it.unit == shared.unit) {
            return Ok((lun, identity));
        }
    }
    Err(Unfit::NoSuchUnit(shared.unit.clone()))
}

/// The identity of the unit at this LUN; `None` if there is no such unit.
async fn identity(session: &Session, lun: Lun) -> Result<Option<Identity>, Error> {
    match persistently(|| session.identify(lun)).await {
        Ok(identity) => Ok(Some(identity)),
        Err(Error::BadAnswer(_)) => Ok(None),
        Err(error) if error.is_illegal_request() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Repeats a query as long as the unit reports unit attentions or is busy.
pub(super) async fn persistently<T, F: Future<Output = Result<T, Error>>>(
    ask: impl Fn() -> F,
) -> Result<T, Error> {
    let mut attempt = 1;
    loop {
        let result = ask().await;
        let verdict = result.as_ref().err().map(judge);
        match verdict {
            Some(Verdict::Again { done: Done::Nothing, path, pause })
                if path != Fate::Lost && attempt < ASKED_MAX =>
            {
                attempt += 1;
                if pause {
                    rt::sleep(BUSY_PAUSE).await;
                }
            }
            _ => return result,
        }
    }
}

fn resize(shared: &Shared, capacity: Capacity) -> Result<(), Unfit> {
    let known = shared.capacity.get();
    if known.block_size != capacity.block_size {
        return Err(Unfit::BlockSize);
    }
    if known != capacity {
        shared.capacity.set(capacity);
        shared.tell(What::Resized(capacity));
    }
    Ok(())
}

/// Notes that a login has replaced the former session, if it is at the same target port.
///
/// Then the target has ended the former session, with all its commands, before it answered the login (RFC
/// 7143 6.3.5). A portal with a floating IP may meanwhile be at another target port.
///
/// A node of a cluster that was lost meanwhile may have written to its own disk only. While it does not serve
/// the unit it is unknown whether that write will be completed: [`watch_others`] asks.
fn replace_by(former: &Link, session: &Session) {
    let (before, now) = (former.session.portal_group(), session.portal_group());
    if before == now && !floats(now) {
        former.replace();
        if !former.fences.get() {
            former.settle();
        }
    }
}

/// Whether a node that reports this state serves the unit.
fn serves(state: AccessState) -> bool {
    matches!(state, AccessState::ActiveOptimized | AccessState::ActiveNonOptimized)
}

/// Whether this is one of Ursa's portal groups that move from node to node.
fn floats(group: Option<u16>) -> bool {
    group.is_some_and(|group| group >= FLOATING_GROUP_MIN)
}

/// Replaces the path's lost session by a login through another portal of the same target port that can be
/// reached. If the node behind that portal then serves the unit, no command of the lost session can be under
/// way any more.
async fn settle_elsewhere(shared: &Shared, path: &Path, former: &Link) {
    let Some(group) = former.session.portal_group().filter(|group| !floats(Some(*group))) else { return };
    // A node that has joined a cluster may have got another portal group, because another node has the one by
    // which sessions from before know it. Their target port group is the one that the node reports.
    let is_there = |link: &Link| {
        let is_same_node = !former.fences.get() || link.port_group.get() == former.port_group.get();
        link.session.portal_group() == Some(group) && is_same_node
    };
    let mut behind: Vec<(SocketAddr, Rc<Link>)> = Vec::new();
    for (other, link) in shared.paths.borrow().iter().zip(&shared.table.borrow().links) {
        let Some(link) = link.as_ref().filter(|link| is_there(link)) else { continue };
        let portal = other.name.portal;
        let is_new = portal != path.name.portal && behind.iter().all(|(known, _)| *known != portal);
        if other.name.target == path.name.target && is_new {
            behind.push((portal, Rc::clone(link)));
        }
    }
    for (portal, link) in behind {
        if let Ok(session) = log_in(shared, path, &portal).await {
            replace_by(former, &session);
            // The session was only needed to replace the former one.
            let _ = session.logout().await;
        }
        if former.is_replaced() {
            if serves_itself(&link).await {
                former.settle();
            }
            return;
        }
    }
}

/// Asks nodes whether a lost session is settled.
///
/// It asks the other nodes that serve the unit whether they have continued without the node of the lost
/// session. Once the session has been replaced, it also asks that node itself whether it serves the unit. If
/// either is so, no command of the session can take effect any more.
fn watch_others(shared: &Rc<Shared>, link: &Rc<Link>) {
    let Some(group) = link.port_group.get().filter(|_| link.fences.get()) else { return };
    let (shared, link) = (Rc::clone(shared), Rc::clone(link));
    rt::spawn(async move {
        let until = rt::now() + shared.options.quiesce;
        while !link.is_settled() && rt::now() < until {
            let links: Vec<_> = shared.table.borrow().links.iter().flatten().cloned().collect();
            let is_itself = |other: &Link| other.port_group.get() == Some(group);
            let asked =
                links.iter().filter(|other| other.fences.get() && (link.is_replaced() || !is_itself(other)));
            // One positive answer is enough; other nodes may be slow to answer.
            let ask = async |other: &Link| {
                let is_so = match is_itself(other) {
                    true => serves_itself(other).await,
                    false => goes_on_without(other, group).await,
                };
                if is_so {
                    link.settle();
                }
            };
            rt::join_all(asked.map(|other| ask(other))).await;
            let _ = rt::timeout(FENCE_POLL, link.settled()).await;
        }
    })
    .detach();
}

/// Whether the node behind this link reports that it serves, and that the one with that port group does not.
async fn goes_on_without(link: &Link, group: u16) -> bool {
    let (own, other) = states(link, group).await;
    own.is_some_and(serves) && other == Some(AccessState::Unavailable)
}

/// Whether the node behind this link reports that it serves.
async fn serves_itself(link: &Link) -> bool {
    let Some(group) = link.port_group.get() else { return false };
    states(link, group).await.0.is_some_and(serves)
}

/// The states that the node behind this link reports for its own port group and for another one.
async fn states(link: &Link, other: u16) -> (Option<AccessState>, Option<AccessState>) {
    let asked = persistently(|| link.session.target_port_groups(link.lun));
    let Ok(Ok(groups)) = rt::timeout(FENCE_POLL * 5, asked).await else { return (None, None) };
    let of = |id: u16| groups.iter().find(|group| group.id == id).map(|group| group.state);
    (link.port_group.get().and_then(of), of(other))
}

/// Settles the session after `quiesce`, if no node has done so before.
fn watch_quiesce(shared: &Shared, link: &Rc<Link>) {
    let (link, quiesce) = (Rc::clone(link), shared.options.quiesce);
    rt::spawn(async move {
        if rt::timeout(quiesce, link.settled()).await.is_err() {
            link.settle();
        }
    })
    .detach();
}
