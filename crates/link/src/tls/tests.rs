use super::*;
use crate::ClusterAuthority;

const CLUSTER: ClusterId = ClusterId([7; 16]);

/// Two ends, and what each has got.
struct Pair {
    ends: [Tls; 2],
    got: [Vec<u8>; 2],
}

impl Pair {
    /// Node 2 calls node 1.
    fn new() -> Pair {
        let authority = ClusterAuthority::create(CLUSTER).unwrap();
        let [server, client] =
            [1, 2].map(|node| Configs::new(&authority.issue(NodeId(node)).unwrap()).unwrap());
        let ends = [server.server().unwrap(), client.client(NodeId(1)).unwrap()];
        let mut pair = Pair { ends, got: Default::default() };
        pair.settle(1000);
        assert!(!pair.ends[0].is_handshaking() && !pair.ends[1].is_handshaking());
        pair
    }

    /// Brings everything across, in pieces of so many bytes.
    fn settle(&mut self, piece: usize) {
        let mut progress = true;
        while std::mem::take(&mut progress) {
            for from in [0, 1] {
                let mut batch = SendBatch::new();
                self.ends[from].take_output(&mut batch);
                let got = &mut self.got[1 - from];
                for piece in batch.to_vec().chunks(piece) {
                    progress = true;
                    let keep = |plain: &[u8]| {
                        got.extend_from_slice(plain);
                        Ok::<_, ()>(())
                    };
                    self.ends[1 - from].feed(piece, keep).unwrap();
                }
            }
        }
    }
}

#[test]
fn what_goes_in_comes_out_however_it_is_cut() {
    let mut pair = Pair::new();
    let content: Vec<u8> = (0..100_000u32).map(|at| (at * 7 / 3) as u8).collect();
    for piece in [100_000, 20_000, 4096, 17, 1] {
        let parts: Vec<IoSlice<'_>> = content.chunks(7_777).map(IoSlice::new).collect();
        pair.ends[0].seal(&parts).unwrap();
        pair.ends[1].seal(&parts[..1]).unwrap();
        pair.settle(piece);
        assert!(pair.got[1] == content && pair.got[0] == content[..7_777]);
        pair.got = Default::default();
    }
    assert!(!pair.ends[0].has_output() && !pair.ends[1].has_output());
}

#[test]
fn keys_are_renewed_under_way() {
    let mut pair = Pair::new();
    for round in 0..5 {
        pair.ends[round % 2].0.refresh_traffic_keys().unwrap();
        assert!(pair.ends[round % 2].has_output());
        for end in &mut pair.ends {
            end.seal(&[IoSlice::new(b"hello")]).unwrap();
        }
        pair.settle(50);
    }
    assert_eq!(pair.got, [b"hello".repeat(5), b"hello".repeat(5)]);
}

#[test]
fn each_side_knows_the_other() {
    let pair = Pair::new();
    assert!(pair.ends[0].peer_is(CLUSTER, NodeId(2)) && pair.ends[1].peer_is(CLUSTER, NodeId(1)));
    assert!(
        !pair.ends[0].peer_is(CLUSTER, NodeId(1)) && !pair.ends[0].peer_is(ClusterId([8; 16]), NodeId(2))
    );
    assert!(pair.ends[1].is_client() && !pair.ends[0].is_client());
}

#[test]
fn what_was_changed_on_its_way_is_noticed() {
    let mut pair = Pair::new();
    pair.ends[0].seal(&[IoSlice::new(b"hello")]).unwrap();
    let mut batch = SendBatch::new();
    pair.ends[0].take_output(&mut batch);
    let mut bytes = batch.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let fed = pair.ends[1].feed(&bytes, |_| Err(()));
    assert!(matches!(fed, Err(FeedError::Tls(rustls::Error::DecryptError))));
    assert!(pair.ends[1].has_output(), "an alert tells the other side");
}
