//! The links that run on one core.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Instant;
use rt::CoreId;

use crate::link::{Bounds, End, Identity, Link};
use crate::mesh::Mesh;
use crate::wire::DetachedWire;
use crate::{Handler, LinkName};

/// A core's state of its links; [`rt::local`] finds it.
pub(crate) struct Endpoint {
    handler: Rc<dyn Handler>,
    bounds: Bounds,
    links: RefCell<BTreeMap<LinkName, Rc<Link>>>,
    /// Whether no link comes up any more.
    closed: Cell<bool>,
}

impl Endpoint {
    /// Prepares this core for links.
    pub(crate) fn install(handler: Rc<dyn Handler>, bounds: Bounds) {
        rt::set_local(Rc::new(Endpoint {
            handler,
            bounds,
            links: RefCell::default(),
            closed: Cell::new(false),
        }));
    }

    pub(crate) fn current() -> Rc<Endpoint> {
        rt::local().expect("every core is installed before any link is made")
    }

    /// The user's handler.
    pub(crate) fn handler(&self) -> &dyn Handler {
        &*self.handler
    }

    /// When the link of this name last received anything; `None` if it is not up, or not on this core.
    pub(crate) fn heard(&self, name: LinkName) -> Option<Instant> {
        self.links.borrow().get(&name).map(|link| link.heard())
    }

    /// Brings up a link on this connection, after ending an old one of the same name.
    pub(crate) fn bring_up(self: &Rc<Endpoint>, identity: Identity, wire: DetachedWire) {
        let DetachedWire { stream, tls, incoming } = wire;
        if self.closed.get() {
            return;
        }
        let name = identity.name;
        let old = self.links.borrow_mut().remove(&name);
        if let Some(old) = old {
            self.bring_down(&old, End::Replaced);
        }
        let link = Link::new(identity, self.bounds, stream.attach(), tls);
        self.links.borrow_mut().insert(name, Rc::clone(&link));
        tracing::info!(
            incarnation = identity.peer_incarnation.0,
            cores = identity.peer_cores,
            version = identity.negotiated.version,
            "{name} is up"
        );
        self.handler.up(Rc::clone(&link));
        let endpoint = Rc::clone(self);
        rt::spawn(async move {
            Rc::clone(&link).run(Rc::clone(&endpoint.handler), incoming).await;
            endpoint.remove(&link);
        })
        .detach();
    }

    /// Ends the link of this name if it still has this number.
    pub(crate) fn retire(&self, name: LinkName, serial: u64, end: End) {
        let link = self.links.borrow().get(&name).filter(|link| link.serial() == serial).cloned();
        if let Some(link) = link {
            link.end_with(end);
            self.remove(&link);
        }
    }

    /// Ends all links for good.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let links = self.links.take();
        links.values().for_each(|link| self.bring_down(link, End::Removed));
    }

    /// A link has ended: notifies its user and core 0.
    fn remove(&self, link: &Rc<Link>) {
        let name = link.name();
        {
            let mut links = self.links.borrow_mut();
            if links.get(&name).is_some_and(|known| Rc::ptr_eq(known, link)) {
                links.remove(&name);
            }
        }
        self.bring_down(link, End::Removed);
    }

    fn bring_down(&self, link: &Rc<Link>, end: End) {
        if link.is_down() {
            return;
        }
        link.end_with(end);
        link.tell(&*self.handler);
        let (name, serial) = (link.name(), link.serial());
        rt::send(CoreId(0), move || {
            if let Some(mesh) = rt::local::<Mesh>() {
                mesh.ended(name, serial);
            }
        });
    }
}
