//! Finds a unit: which portals of which targets may lead to it, and what its name is.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Notify;

use super::{Search, UnitSelector};
use crate::command::UnitName;
use crate::{Capacity, Error, Lun, Options, Session, discover};

/// Once one portal has reported its targets, the others get this much time.
const OPEN_GRACE: Duration = Duration::from_secs(1);

/// Concurrent logins while the unit is searched.
const PLACES_AT_A_TIME: usize = 16;

/// At most this many targets are searched for a unit: the most that a node has.
const TARGETS_MAX: usize = 65_536;

/// A portal of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) target: String,
    pub(super) portal: SocketAddr,
}

/// The places that portals reported, and the errors of those that failed.
pub(super) struct Found {
    pub(super) places: BTreeSet<Place>,
    pub(super) failed: Vec<(SocketAddr, Error)>,
}

/// The unit that was found.
pub(super) struct Unit {
    pub(super) name: UnitName,
    pub(super) lun: Lun,
    pub(super) capacity: Capacity,
}

/// Asks all portals for their targets. Once one has answered, the others get [`OPEN_GRACE`].
pub(super) async fn places(search: &Search, login: &Options) -> Found {
    let mut places = BTreeSet::new();
    let mut failed = Vec::new();
    if let Some(target) = &search.target {
        let place = |portal: &SocketAddr| Place { target: target.clone(), portal: *portal };
        places.extend(search.portals.iter().map(place));
        if !search.discover {
            return Found { places, failed };
        }
    }
    let ask = |portal: &SocketAddr| {
        let (portal, login) = (*portal, login.clone());
        async move { discover(portal, &login).await }
    };
    let answers = gather(search.portals.iter().map(ask), OPEN_GRACE).await;
    for (portal, answer) in search.portals.iter().copied().zip(answers) {
        let records = match answer {
            Some(Ok(records)) => records,
            Some(Err(error)) => {
                failed.push((portal, error));
                continue;
            }
            None => {
                failed.push((portal, Error::NoLogin { portal }));
                continue;
            }
        };
        let wanted = |name: &str| search.target.as_deref().is_none_or(|target| target == name);
        for record in records.into_iter().filter(|record| wanted(&record.name)).take(TARGETS_MAX) {
            places.insert(Place { target: record.name.clone(), portal });
            if search.discover {
                let portals = record.addresses.iter().filter_map(|address| parse_address(address));
                places.extend(portals.map(|portal| Place { target: record.name.clone(), portal }));
            }
        }
    }
    Found { places, failed }
}

/// Looks for the unit at several places at a time, until it is found. Also returns the errors of other
/// places.
pub(super) async fn unit(
    places: &BTreeSet<Place>,
    wanted: &UnitSelector,
    login: &Options,
) -> (Option<Unit>, Vec<(SocketAddr, Error)>) {
    let mut failed = Vec::new();
    let places: Vec<&Place> = places.iter().collect();
    for some in places.chunks(PLACES_AT_A_TIME) {
        let look = |place: &&Place| {
            let (place, wanted, login) = ((*place).clone(), wanted.clone(), login.clone());
            async move { unit_at(&place, &wanted, &login).await }
        };
        // It does not matter which one is found first: it is the same unit.
        let answers = gather(some.iter().map(look), Duration::ZERO).await;
        let mut found = None;
        for (place, answer) in some.iter().zip(answers) {
            match answer {
                Some(Ok(Some(unit))) => found = found.or(Some(unit)),
                Some(Err(error)) => failed.push((place.portal, error)),
                Some(Ok(None)) | None => {}
            }
        }
        if found.is_some() {
            return (found, failed);
        }
    }
    (None, failed)
}

/// The result of a future; `None` if it was given up.
type Outcome<T> = Option<Result<T, Error>>;

/// Runs all futures concurrently. Once one has succeeded, the others get the time `grace`.
async fn gather<T: 'static, F: Future<Output = Result<T, Error>> + 'static>(
    futures: impl IntoIterator<Item = F>,
    grace: Duration,
) -> Vec<Outcome<T>> {
    let results: Rc<RefCell<Vec<Outcome<T>>>> = Rc::default();
    let bell = Rc::new(Notify::new());
    let mut tasks = Vec::new();
    for (index, future) in futures.into_iter().enumerate() {
        results.borrow_mut().push(None);
        let (results, bell) = (Rc::clone(&results), Rc::clone(&bell));
        tasks.push(rt::spawn(async move {
            let result = future.await;
            results.borrow_mut()[index] = Some(result);
            bell.notify();
        }));
    }
    let until = async |enough: fn(&[Outcome<T>]) -> bool| {
        while !enough(&results.borrow()) {
            bell.notified().await;
        }
    };
    until(|results| results.iter().all(Option::is_some) || results.iter().flatten().any(Result::is_ok)).await;
    let _ = rt::timeout(grace, until(|results| results.iter().all(Option::is_some))).await;
    drop(tasks);
    results.take()
}

/// Looks for the unit at one place.
async fn unit_at(place: &Place, wanted: &UnitSelector, login: &Options) -> Result<Option<Unit>, Error> {
    let session = Session::connect(place.portal, &place.target, login).await?;
    let luns = match wanted {
        UnitSelector::Lun(lun) => vec![*lun],
        UnitSelector::Name(_) => session.report_luns().await?,
    };
    let mut found = None;
    for lun in luns {
        let Ok(identity) = session.identify(lun).await else { continue };
        if !matches!(wanted, UnitSelector::Name(name) if *name != identity.unit) {
            match session.make_ready(lun).await {
                Err(error) if !error.needs_help() => return Err(error),
                _ => {}
            }
            let capacity = session.read_capacity(lun).await?;
            found = Some(Unit { name: identity.unit, lun, capacity });
            break;
        }
    }
    // All queries are done.
    let _ = session.logout().await;
    Ok(found)
}

/// Parses a TargetAddress (RFC 7143 13.8): "address:port,group".
///
/// The address may be in brackets; port and group are optional. Host names are ignored: to use them, the
/// caller resolves them first.
fn parse_address(text: &str) -> Option<SocketAddr> {
    const PORT: u16 = 3260;
    let address = text.rsplit_once(',').map_or(text, |(address, _)| address);
    address.parse().ok().or_else(|| {
        let ip = address.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(SocketAddr::new(ip, PORT))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("10.0.0.1:3260,1", Some("10.0.0.1:3260")),
            ("10.0.0.1:860", Some("10.0.0.1:860")),
            ("10.0.0.1,2", Some("10.0.0.1:3260")),
            ("[fe80::1]:3260,1", Some("[fe80::1]:3260")),
            ("[fe80::1],1", Some("[fe80::1]:3260")),
            ("storage.example.org:3260,1", None),
            ("", None),
        ] {
            assert_eq!(parse_address(text), expected.map(|text| text.parse().unwrap()), "{text}");
        }
    }
}
