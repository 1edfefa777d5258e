//! Joining a cluster, over loopback.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use link::{
    ABOUT_MAX, ClusterAuthority, JoinAnswer, JoinError, Joined, NodeCredentials, OpenToken, Token,
    UnixSeconds, join,
};
use replica::NodeId;
use rt::uring::{Config, Running};

use crate::node::{Held, Node, authority, limits};

const NOW: UnixSeconds = UnixSeconds(1000);
const LATER: UnixSeconds = UnixSeconds(1060);
/// The number that the joining node gets.
const NEW: NodeId = NodeId(7);

/// A member that lets nodes join, with the requests that it got.
struct Member {
    node: Node,
    authority: Arc<ClusterAuthority>,
    open: Arc<Mutex<Vec<OpenToken>>>,
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Member {
    fn start() -> Member {
        let authority = Arc::new(authority());
        let node = Node::start(1, Some(authority.issue(NodeId(1)).unwrap()));
        let member = Member { node, authority, open: Arc::default(), asked: Arc::default() };
        let (authority, open, asked) = (member.authority.clone(), member.open.clone(), member.asked.clone());
        member.node.on(0, move || {
            rt::local::<Held>().unwrap().links.let_join(move |request| {
                let redeemed = OpenToken::redeem(&mut open.lock().unwrap(), &request.secret, NOW);
                asked.lock().unwrap().push(request.about.clone());
                let authority = authority.clone();
                async move {
                    rt::sleep(Duration::from_millis(20)).await;
                    let why = |error: &dyn std::error::Error| error.to_string().into_bytes();
                    redeemed.map_err(|error| why(&error))?;
                    let certificate = authority.sign(NEW, &request).map_err(|error| why(&error))?;
                    Ok(JoinAnswer { node: NEW, certificate, about: b"welcome".to_vec() })
                }
            });
        });
        member
    }

    fn token(&self) -> Token {
        let (token, open) = self.authority.token(NodeId(1), vec![self.node.address], LATER);
        self.open.lock().unwrap().push(open);
        token
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// Joins on a core of its own, with the token's text.
fn join_with(token: &Token, about: Vec<u8>) -> Result<Joined, JoinError> {
    let (told, result) = mpsc::channel();
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let text = token.text();
    let running = Running::start(config, move |_| {
        let (told, text, about) = (told.clone(), text.clone(), about.clone());
        async move {
            let token = Token::parse(&text).unwrap();
            told.send(join(&token, about, NOW, &limits()).await).unwrap();
        }
    });
    running.unwrap().join();
    result.recv().unwrap()
}

/// What the member's user says, unchanged.
#[track_caller]
fn why(error: JoinError) -> String {
    match error {
        JoinError::Refused { about, .. } => String::from_utf8(about).unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_node_with_a_token_becomes_a_member() {
    let member = Member::start();
    let about = vec![5; ABOUT_MAX];
    let mut token = member.token();
    // If no member listens at an address, the next one is tried.
    token.addresses.insert(0, SocketAddr::from(([127, 0, 0, 1], 1)));
    let joined = join_with(&token, about.clone()).unwrap();
    assert_eq!((joined.credentials.node(), &joined.about[..]), (NEW, &b"welcome"[..]));
    assert_eq!(*member.asked.lock().unwrap(), [about]);
    let directory = tempfile::tempdir().unwrap();
    joined.credentials.save(directory.path()).unwrap();
    let credentials = NodeCredentials::load(directory.path(), token.cluster, NEW).unwrap();
    let node = Node::start(NEW.0, Some(credentials));
    member.node.set_peers(vec![node.peer()]);
    node.set_peers(vec![member.node.peer()]);
    node.wait_for_links(3);

    let again = why(join_with(&token, Vec::new()).unwrap_err());
    assert!(again.contains("it was used, withdrawn"), "{again}");
}

#[test]
fn a_secret_is_sent_only_to_a_member() {
    let (member, other) = (Member::start(), Member::start());
    // Another cluster's member listens at the address; then one that is not the member that was meant.
    let elsewhere = Token { addresses: other.token().addresses, ..member.token() };
    let another = Token { member: NodeId(2), ..member.token() };
    for token in [elsewhere, another] {
        let error = join_with(&token, Vec::new()).unwrap_err();
        assert!(matches!(error, JoinError::Unreachable { .. }), "{error}");
    }
    assert_eq!((member.asked(), other.asked()), (0, 0));
}

#[test]
fn a_refused_joiner_learns_why() {
    let member = Member::start();
    let error = |token: &Token| join_with(token, Vec::new()).unwrap_err().to_string();
    let late = error(&Token { expires: NOW, ..member.token() });
    assert!(late.contains("expired: create a new one"), "{late}");
    let unknown = member.authority.token(NodeId(1), vec![member.node.address], LATER).0;
    let unknown = why(join_with(&unknown, Vec::new()).unwrap_err());
    assert!(unknown.contains("the token is not valid"), "{unknown}");
    assert_eq!(member.asked(), 1);
    let nowhere = error(&Token { addresses: Vec::new(), ..member.token() });
    assert!(nowhere.contains("no member could be reached"), "{nowhere}");
    member.node.on(0, || rt::local::<Held>().unwrap().links.let_nobody_join());
    let closed = error(&member.token());
    assert!(closed.contains("does not admit new nodes"), "{closed}");
    let plain = Node::start(1, None);
    let closed = error(&Token { addresses: vec![plain.address], ..member.token() });
    assert!(closed.contains("does not admit new nodes"), "{closed}");
    assert_eq!(member.asked(), 1);
}
