//! How a core handles links to other nodes: the reconciler handles control links, the core's slices
//! replication links.

use std::rc::Rc;

use link::{Frame, Handler, Link, LinkName, Role};
use replica::{Incarnation, NodeId};

use super::super::Address;
use super::super::message::replication::{FETCH, LOCK, SLICE};
use super::super::message::{UNKNOWN, answer_unknown, unknown_in};
use super::{Copies, on_core, on_every_core};
use crate::data::core_of;

/// Handles the links to other nodes on a core.
pub struct LinkHandler;

impl Handler for LinkHandler {
    fn up(&self, link: Rc<Link>) {
        let LinkName { peer, role, number } = link.name();
        let copies = Copies::current();
        match role {
            Role::Control => {
                if let Some(reconciler) = copies.reconciler() {
                    reconciler.link_up(link);
                }
            }
            Role::Replication => {
                let of = link.peer_cores().max(rt::cores() as u16);
                copies.links.borrow_mut().insert((peer, number), link);
                on_every_core(move || Copies::current().link_up(peer, number, of));
            }
        }
    }

    fn down(&self, LinkName { peer, role, number }: LinkName) {
        let copies = Copies::current();
        let link = match role {
            Role::Control => copies.reconciler().and_then(|reconciler| reconciler.link_down(peer)),
            Role::Replication => {
                let link = copies.links.borrow_mut().remove(&(peer, number));
                on_every_core(move || Copies::current().link_down(peer, number));
                link
            }
        };
        if let Some(link) = link {
            let mut heard = copies.heard.borrow_mut();
            let last = heard.entry((peer, role)).or_insert(link.heard());
            *last = (*last).max(link.heard());
        }
    }

    fn died(&self, node: NodeId, incarnation: Incarnation) {
        if let Some(reconciler) = Copies::current().reconciler() {
            reconciler.handle_death(node, incarnation);
        }
    }

    fn frame(&self, link: &Rc<Link>, frame: Frame) {
        let LinkName { peer, role, .. } = link.name();
        match role {
            Role::Control => {
                if let Some(reconciler) = Copies::current().reconciler() {
                    reconciler.frame(link, frame);
                }
            }
            Role::Replication => {
                match frame.kind {
                    SLICE | LOCK | FETCH => {}
                    // The other node did not execute the frame; whatever waits for its effect sends it again.
                    UNKNOWN => {
                        let kind = unknown_in(&frame);
                        return tracing::warn!(
                            kind,
                            "{}: its version does not know a frame that this node sent",
                            link.name()
                        );
                    }
                    _ => return answer_unknown(link, &frame),
                }
                let Some(address) = Address::of_channel(frame.channel) else {
                    return link.close("it sent a frame for a slice that cannot exist");
                };
                let life = link.peer_incarnation();
                on_core(core_of(address.slice, rt::cores()), move || {
                    Copies::current().receive(peer, life, address, frame);
                });
            }
        }
    }
}
