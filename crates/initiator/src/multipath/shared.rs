//! State that the commands and the tasks of all paths share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::Instant;
use rt::sync::{Notify, Semaphore};

use super::access::{View, eligible};
use super::event::{Event, Events, What};
use super::path::{Link, Path, PathState, PathStatus};
use super::policy::{Load, Selector};
use super::suspect::{Doubt, Place};
use super::{Capacity, MultipathOptions};
use crate::command::{AccessState, PortGroup, UnitName};

pub(super) struct Shared {
    pub(super) unit: UnitName,
    pub(super) options: MultipathOptions,
    pub(super) capacity: Cell<Capacity>,
    /// By index; none is ever removed.
    pub(super) paths: RefCell<Vec<Rc<Path>>>,
    pub(super) table: RefCell<Table>,
    pub(super) doubt: RefCell<Doubt>,
    /// Notified when a path becomes usable, or something is no longer in doubt.
    pub(super) changed: Notify,
    /// Since when no path has been usable.
    pub(super) out_since: Cell<Option<Instant>>,
    pub(super) events: RefCell<Events>,
    pub(super) events_bell: Notify,
    /// The key with which every path must be registered.
    pub(super) key: Cell<Option<u64>>,
    /// Lets one path at a time check whether the unit knows the key, and register.
    pub(super) registering: Semaphore,
    /// Commands that were sent again after they may have been under way on a lost path.
    pub(super) repeated: Cell<u64>,
}

/// What a command needs to find its path: small, and in one place.
pub(super) struct Table {
    pub(super) selector: Selector,
    /// By path.
    pub(super) loads: Vec<Load>,
    /// By path.
    pub(super) links: Vec<Option<Rc<Link>>>,
}

impl Shared {
    pub(super) fn new(unit: UnitName, capacity: Capacity, options: MultipathOptions) -> Shared {
        let table = Table { selector: Selector::new(options.policy), loads: Vec::new(), links: Vec::new() };
        Shared {
            unit,
            options,
            capacity: Cell::new(capacity),
            paths: RefCell::default(),
            table: RefCell::new(table),
            doubt: RefCell::default(),
            changed: Notify::new(),
            out_since: Cell::new(Some(rt::now())),
            events: RefCell::default(),
            events_bell: Notify::new(),
            key: Cell::new(None),
            registering: Semaphore::new(1),
            repeated: Cell::new(0),
        }
    }

    pub(super) fn add_path(&self, path: Rc<Path>) {
        self.paths.borrow_mut().push(path);
        let mut table = self.table.borrow_mut();
        table.loads.push(Load::default());
        table.links.push(None);
    }

    pub(super) fn tell(&self, what: What) {
        tracing::info!(unit = %self.unit, "{what}");
        self.events.borrow_mut().add(Event { at: rt::now(), what });
        self.events_bell.notify();
    }

    /// Whether this is the current session of the path.
    fn is_current(&self, path: &Path, link: &Rc<Link>) -> bool {
        self.table.borrow().links[path.index].as_ref().is_some_and(|current| Rc::ptr_eq(current, link))
    }

    /// A command has found that the session of a path has ended.
    pub(super) fn suspect(&self, index: usize, link: &Rc<Link>) {
        let path = Rc::clone(&self.paths.borrow()[index]);
        if self.is_current(&path, link) && path.state.get() == PathState::Up {
            let leaving = link.session.ended().is_none();
            self.set_state(&path, if leaving { PathState::Leaving } else { PathState::Connecting });
        }
    }

    /// A command has found that the unit behind a path must be asked for its name.
    pub(super) fn want_check(&self, index: usize, link: &Rc<Link>) {
        let path = Rc::clone(&self.paths.borrow()[index]);
        if self.is_current(&path, link) && path.state.get() == PathState::Up {
            path.check_wanted.set(true);
            self.set_state(&path, PathState::Checking);
            link.session.nudge();
        }
    }

    pub(super) fn set_state(&self, path: &Path, state: PathState) {
        path.state.set(state);
        self.look_again();
    }

    /// Applies the port groups that a unit reports to all paths.
    pub(super) fn set_access(&self, groups: &[PortGroup]) {
        let paths = self.paths.borrow().clone();
        for path in paths {
            let link = self.table.borrow().links[path.index].clone();
            let id = link.and_then(|link| link.port_group.get());
            let Some(group) = groups.iter().find(|group| Some(group.id) == id) else { continue };
            self.set_path_access(&path, group.state);
        }
        self.look_again();
    }

    pub(super) fn set_path_access(&self, path: &Path, state: AccessState) {
        if path.access.replace(state) != state {
            self.tell(What::Access(path.name.clone(), state));
        }
    }

    /// Recomputes which paths commands may use, after a path has changed.
    pub(super) fn look_again(&self) {
        let view = |path: &Rc<Path>, link: &Option<Rc<Link>>| View {
            up: path.state.get() == PathState::Up && link.is_some(),
            access: path.access.get(),
            silent: link.as_ref().is_some_and(|link| link.session.is_silent()),
        };
        let mut table = self.table.borrow_mut();
        let views: Vec<View> =
            self.paths.borrow().iter().zip(&table.links).map(|(path, link)| view(path, link)).collect();
        let eligible = eligible(&views);
        for (load, eligible) in table.loads.iter_mut().zip(&eligible) {
            load.eligible = *eligible;
        }
        drop(table);
        let any = eligible.contains(&true);
        match (any, self.out_since.get()) {
            (true, Some(_)) => {
                self.out_since.set(None);
                self.tell(What::Resumed);
            }
            (false, None) => {
                self.out_since.set(Some(rt::now()));
                self.tell(What::NoPath);
            }
            _ => {}
        }
        if any {
            self.changed.notify();
        }
    }

    /// Removes the place from those in doubt.
    pub(super) fn release(&self, place: Place) {
        self.doubt.borrow_mut().remove(place);
        self.changed.notify();
    }

    pub(super) fn status(&self) -> Vec<PathStatus> {
        let table = self.table.borrow();
        let status = |path: &Rc<Path>| PathStatus {
            name: path.name.clone(),
            state: path.state.get(),
            access: path.access.get(),
            in_use: table.loads[path.index].eligible,
            outstanding: table.loads[path.index].outstanding,
            commands: table.loads[path.index].commands,
            losses: path.losses.get(),
            last_error: path.last_error.borrow().clone(),
        };
        self.paths.borrow().iter().map(status).collect()
    }
}
