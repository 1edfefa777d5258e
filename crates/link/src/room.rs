//! Limits the connections that are still in the handshake.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use rt::sync::Semaphore;

/// A number of places, of which one address gets at most half: a stranger cannot keep the members out.
pub(crate) struct Room {
    all: Semaphore,
    each_max: usize,
    each: RefCell<BTreeMap<IpAddr, usize>>,
}

/// A connection's place. Dropping it frees the place.
pub(crate) struct Place {
    room: Rc<Room>,
    address: IpAddr,
}

impl Room {
    pub(crate) fn new(places: usize) -> Rc<Room> {
        let places = places.max(1);
        Rc::new(Room { all: Semaphore::new(places), each_max: places.div_ceil(2), each: RefCell::default() })
    }

    /// Waits for a place; returns `None` at once if this address has its half.
    pub(crate) async fn enter(self: &Rc<Room>, address: IpAddr) -> Option<Place> {
        if self.each.borrow().get(&address).is_some_and(|taken| *taken >= self.each_max) {
            return None;
        }
        self.all.acquire(1).await;
        *self.each.borrow_mut().entry(address).or_default() += 1;
        Some(Place { room: Rc::clone(self), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut each = self.room.each.borrow_mut();
        if let Some(taken) = each.get_mut(&self.address) {
            *taken -= 1;
            if *taken == 0 {
                each.remove(&self.address);
            }
        }
        drop(each);
        self.room.all.release(1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_address_gets_half() {
        let room = Room::new(4);
        let [stranger, member] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let enter = |address| match poll(room.enter(address)) {
            Poll::Ready(place) => place,
            Poll::Pending => panic!("there is room"),
        };
        let first = enter(stranger);
        let _second = enter(stranger);
        assert!(first.is_some() && enter(stranger).is_none());
        let _third = enter(member).unwrap();
        let _fourth = enter(member).unwrap();
        assert!(poll(room.enter(IpAddr::from([10, 0, 0, 3]))).is_pending());
        drop(first);
        assert!(enter(stranger).is_some());
        assert!(room.each.borrow().len() == 2);
    }
}
