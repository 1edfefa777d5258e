//! The state of the links with another node as this node sees it, for monitoring the networks between nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use base::Instant;
use link::Link;

/// The links of one role with another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// How many are up.
    pub up: usize,
    /// How many there should be. 0: none was up in this life of this node, so the number is unknown.
    pub of: usize,
    /// The addresses of the other ends of the links that are up: they show which networks the links use.
    pub addresses: BTreeSet<IpAddr>,
    /// How long all links that are up have been up: the time since the last of them came up.
    pub age: Option<Duration>,
    /// How long ago a link that is up, or was, last received anything; `None`: never in this life of this
    /// node.
    pub silence: Option<Duration>,
}

impl Linked {
    /// Whether all links are up that there should be.
    pub fn is_whole(&self) -> bool {
        self.of > 0 && self.up >= self.of
    }

    /// Counts a link that is up.
    pub(crate) fn add(&mut self, now: Instant, link: &Link) {
        self.up += 1;
        self.addresses.insert(link.peer_address().ip());
        self.age = least(self.age, Some(now.since(link.began())));
        self.hear(now.since(link.heard()));
    }

    /// Notes that a link last received something `ago` before now.
    pub(crate) fn hear(&mut self, ago: Duration) {
        self.silence = least(self.silence, Some(ago));
    }

    /// Adds the links of another core.
    pub(crate) fn merge(&mut self, other: Linked) {
        let Linked { up, of, addresses, age, silence } = other;
        self.up += up;
        // Every core knows the number of all links.
        self.of = self.of.max(of);
        self.addresses.extend(addresses);
        self.age = least(self.age, age);
        self.silence = least(self.silence, silence);
    }
}

fn least(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_all_cores_are_one_sum() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let one =
            Linked { up: 1, of: 2, addresses: [address(1)].into(), age: seconds(9), silence: seconds(1) };
        let other =
            Linked { addresses: [address(2)].into(), age: seconds(4), silence: seconds(3), ..one.clone() };
        let mut sum = Linked::default();
        assert!(!sum.is_whole(), "nobody knows how many there are to be");
        sum.merge(one);
        assert!(!sum.is_whole());
        sum.merge(other);
        let addresses = [address(1), address(2)].into();
        assert_eq!(sum, Linked { up: 2, of: 2, addresses, age: seconds(4), silence: seconds(1) });
        assert!(sum.is_whole());
        sum.merge(Linked { of: 2, ..Linked::default() });
        assert_eq!((sum.age, sum.silence), (seconds(4), seconds(1)), "a core without links knows no ages");
    }
}
