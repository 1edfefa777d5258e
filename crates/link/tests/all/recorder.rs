//! A user of links that records what its handler hears, and checks the order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use base::Chain;
use link::{Frame, Handler, Link, LinkName};
use replica::{Incarnation, NodeId};
use rt::CoreId;

/// A frame of this kind is answered with the same content and kind `ANSWER`.
pub const ASK: u8 = 1;
/// See [`ASK`].
pub const ANSWER: u8 = 2;
/// A frame of any other kind is only recorded.
pub const SAY: u8 = 3;

/// A call of a core's handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerCall {
    Up(LinkName, Incarnation),
    Down(LinkName),
    Died(NodeId, Incarnation),
    Frame { name: LinkName, channel: u64, kind: u8, head: Vec<u8>, payload: Vec<u8> },
}

/// All calls of a node's handlers, with their cores.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(CoreId, HandlerCall)>>>);

impl Log {
    pub fn all(&self) -> Vec<(CoreId, HandlerCall)> {
        self.0.lock().unwrap().clone()
    }

    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub fn count(&self, wanted: impl Fn(&HandlerCall) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, told)| wanted(told)).count()
    }

    /// The links that are up now.
    pub fn up(&self) -> Vec<(LinkName, CoreId, Incarnation)> {
        let mut up = BTreeMap::new();
        for (core, told) in self.0.lock().unwrap().iter() {
            match told {
                HandlerCall::Up(name, incarnation) => {
                    assert_eq!(up.insert(*name, (*core, *incarnation)), None)
                }
                HandlerCall::Down(name) => assert_eq!(up.remove(name).unwrap().0, *core),
                HandlerCall::Died(..) | HandlerCall::Frame { .. } => {}
            }
        }
        up.into_iter().map(|(name, (core, incarnation))| (name, core, incarnation)).collect()
    }
}

/// The user on one core; [`rt::local`] finds it.
pub struct Recorder {
    log: Log,
    links: RefCell<BTreeMap<LinkName, Rc<Link>>>,
}

impl Recorder {
    /// The function that [`link::Links::start`] expects.
    pub fn install(log: &Log) -> impl Fn() -> Rc<dyn Handler> + Send + Clone + 'static {
        let log = log.clone();
        move || {
            let recorder = Rc::new(Recorder { log: log.clone(), links: RefCell::default() });
            rt::set_local(Rc::clone(&recorder));
            recorder
        }
    }

    fn tell(&self, told: HandlerCall) {
        self.log.0.lock().unwrap().push((rt::core(), told));
    }
}

/// A link of this core.
pub fn link(name: LinkName) -> Option<Rc<Link>> {
    rt::local::<Recorder>().unwrap().links.borrow().get(&name).cloned()
}

/// Builds a frame.
pub fn frame(channel: u64, kind: u8, head: &[u8], payload: Vec<u8>) -> Frame {
    Frame { channel, kind, head: head.to_vec(), payload: Chain::copy_of(&payload) }
}

impl Handler for Recorder {
    fn up(&self, link: Rc<Link>) {
        let previous = self.links.borrow_mut().insert(link.name(), Rc::clone(&link));
        assert!(previous.is_none(), "{} is up twice", link.name());
        self.tell(HandlerCall::Up(link.name(), link.peer_incarnation()));
    }

    fn down(&self, name: LinkName) {
        assert!(self.links.borrow_mut().remove(&name).is_some(), "{name} is down twice");
        self.tell(HandlerCall::Down(name));
    }

    fn died(&self, node: NodeId, incarnation: Incarnation) {
        self.tell(HandlerCall::Died(node, incarnation));
    }

    fn frame(&self, link: &Rc<Link>, frame: Frame) {
        let current = self.links.borrow().get(&link.name()).cloned();
        assert!(current.is_some_and(|current| Rc::ptr_eq(&current, link)), "a frame of a link that is down");
        assert!(frame.payload.parts().len() <= 1);
        assert!(frame.payload.parts().iter().all(|part| part.as_ptr().addr() % base::ALIGNMENT == 0));
        self.tell(HandlerCall::Frame {
            name: link.name(),
            channel: frame.channel,
            kind: frame.kind,
            head: frame.head.clone(),
            payload: frame.payload.to_vec(),
        });
        if frame.kind == ASK {
            link.send(Frame { kind: ANSWER, ..frame });
        }
    }
}
