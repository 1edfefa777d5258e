//! One link: its public interface, and how it runs on its core.
//!
//! A link that is up has three tasks. One receives: all frames that arrive together are handed to the user at
//! once, so that the user's answers leave together. One sends: everything that was put on the link in one
//! turn of the executor goes out with one send. One watches: it reports to the user, once, that the link is
//! down, sends signs of life when there is nothing else to send, and ends the link if the peer is silent.
//!
//! An idle link costs what it wakes the two nodes for. So signs of life are no more frequent than what they
//! are for needs ([`signs_apart`]), and what can wait travels with them ([`Link::send_with_next`]).

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{Instant, SendBatch};
use replica::Incarnation;
use rt::Stream;
use rt::sync::Notify;

use crate::frame::{self, Decoder, Frame, Malformed};
use crate::mesh::Mesh;
use crate::tls::{FeedError, Tls};
use crate::{DOUBT, Handler, LinkName, Negotiated, Role, SILENCE};

/// A payload of which at least this many bytes are missing is received in place.
const IN_PLACE_MIN: usize = 32 << 10;
/// It is received in parts of this size, so that a slow network shows progress.
const IN_PLACE_PART: usize = 1 << 20;
/// How much is encrypted at once: the core does nothing else meanwhile (about 100 µs).
const SEAL_PART: usize = 256 << 10;
/// How many beats there are in the time of silence after which a peer is given up. The watch of a link looks
/// at it on beats: with each one while the peer is silent, else with each [`signs_apart`].
const BEATS: u32 = 20;

/// How many beats apart the signs of life on an idle link are.
///
/// A link that may be doubted carries one with each beat. Other control links need two thirds of them at most
/// to last, and nodes send heartbeats over them with each second beat anyway. Nobody doubts links for data,
/// and each core has one with each core of the other nodes.
const fn signs_apart(role: Role, may_be_doubted: bool) -> u32 {
    match role {
        Role::Control if may_be_doubted => 1,
        Role::Control => 2,
        Role::Replication => 4,
    }
}

const _: () = {
    // A look sends a sign of life if nothing was sent for half of this time.
    assert!(
        3 * SILENCE.as_millis() * signs_apart(Role::Control, true) as u128 / BEATS as u128
            <= DOUBT.as_millis(),
        "signs of life are up to one and a half times this apart, and as much late"
    );
    assert!(
        3 * signs_apart(Role::Replication, false) <= BEATS,
        "a link lasts through the loss of one, even if the one after it is late"
    );
};

/// How many whole beats fit into a time.
fn whole_beats(time: Duration, beat: Duration) -> u32 {
    u32::try_from(time.as_nanos() / beat.as_nanos().max(1)).unwrap_or(u32::MAX)
}

/// How many beats begin in the time before a beat.
fn begun_beats(time: Duration, beat: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(beat.as_nanos().max(1))).unwrap_or(u32::MAX)
}

/// Whether a peer that has been silent for this long may just be sending its next sign of life.
///
/// Nodes whose beats are at the same moments, as those of one machine are, look at a link while the other
/// one's sign is on its way: sometimes it has come, and sometimes it comes right after the look.
fn is_in_time(silent: Duration, apart: u32, beat: Duration) -> bool {
    silent < beat * apart + beat / 2
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("closed by this node: {0}")]
    ByUser(Cow<'static, str>),
    #[error("the other node closed it")]
    ByPeer,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("TLS failed: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the other node sent {0}")]
    Malformed(#[from] Malformed),
    #[error("heartbeat timeout: the other node was silent for {0:?}")]
    Silent(Duration),
    #[error("the other node does not accept data: {0} bytes are queued")]
    Full(usize),
    #[error("a newer connection replaces it")]
    Replaced,
    #[error("the other node has restarted")]
    Restarted,
    #[error("the other node is no longer a member, or this node is stopping")]
    Removed,
}

impl From<FeedError<Malformed>> for End {
    fn from(error: FeedError<Malformed>) -> End {
        match error {
            FeedError::Tls(error) => End::Tls(error),
            FeedError::User(malformed) => End::Malformed(malformed),
        }
    }
}

/// What is known of a link before it is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) name: LinkName,
    pub(crate) peer_incarnation: Incarnation,
    pub(crate) peer_cores: u16,
    pub(crate) negotiated: Negotiated,
    /// The number of this connection among all connections of this node.
    pub(crate) serial: u64,
}

/// Bounds of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) queued_bytes: usize,
    pub(crate) silence: Duration,
}

/// The sending side of a link, on its core.
///
/// It remains usable after the link is down: what is sent then is dropped.
pub struct Link {
    identity: Identity,
    bounds: Bounds,
    /// Frames that were put on the link and are not being sent yet.
    queue: RefCell<SendBatch>,
    /// How many bytes are being sent.
    sending_bytes: Cell<usize>,
    /// Whether all frames in the queue wait for something else to be sent.
    waits: Cell<bool>,
    /// Notified when there is something to send.
    work: Notify,
    tls: Option<RefCell<Tls>>,
    /// Whether something was received since the last look.
    received: Cell<bool>,
    /// When it came up.
    began: Instant,
    /// When something was last sent.
    sent: Cell<Instant>,
    /// When something was last received, a sign of life included; at first, when the link was created.
    heard: Cell<Instant>,
    /// Why the link has ended. Set once.
    end: RefCell<Option<End>>,
    /// Whether the user was notified that the link is down.
    down: Cell<bool>,
    /// Notified when the link has ended.
    ended: Notify,
    peer_address: SocketAddr,
    /// Present until the link is down.
    stream: RefCell<Option<Rc<Stream>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_over() { "over" } else { "up" };
        write!(f, "Link({}, {state})", self.identity.name)
    }
}

impl Link {
    pub(crate) fn new(identity: Identity, bounds: Bounds, stream: Stream, tls: Option<Tls>) -> Rc<Link> {
        Rc::new(Link {
            identity,
            bounds,
            queue: RefCell::default(),
            sending_bytes: Cell::new(0),
            waits: Cell::new(false),
            work: Notify::new(),
            tls: tls.map(RefCell::new),
            received: Cell::new(false),
            began: rt::now(),
            sent: Cell::new(rt::now()),
            heard: Cell::new(rt::now()),
            end: RefCell::new(None),
            down: Cell::new(false),
            ended: Notify::new(),
            peer_address: stream.peer_address(),
            stream: RefCell::new(Some(Rc::new(stream))),
        })
    }

    /// Which link this is.
    pub fn name(&self) -> LinkName {
        self.identity.name
    }

    /// The life of the peer at the other end.
    pub fn peer_incarnation(&self) -> Incarnation {
        self.identity.peer_incarnation
    }

    /// When the link came up.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// When anything was last received, even if only a sign of life.
    pub fn heard(&self) -> Instant {
        self.heard.get()
    }

    /// How many cores the peer has.
    pub fn peer_cores(&self) -> u16 {
        self.identity.peer_cores
    }

    /// The version and the capabilities that both sides use on the link.
    pub fn negotiated(&self) -> Negotiated {
        self.identity.negotiated
    }

    /// The address of the other end of the connection, which shows the network in use.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer_address
    }

    pub(crate) fn serial(&self) -> u64 {
        self.identity.serial
    }

    /// Sends a frame after all earlier ones; never waits.
    ///
    /// Frames of one turn of the core leave together. If the link has ended, this does nothing; if more is
    /// queued than the limit allows, this ends the link.
    ///
    /// # Panics
    /// If the frame is longer than the maximum.
    pub fn send(&self, frame: Frame) {
        let idle = self.queue.borrow().is_empty() || self.waits.get();
        if self.put(&frame) && idle {
            self.waits.set(false);
            self.work.notify();
        }
    }

    /// Sends a frame after all earlier ones, but together with whatever is sent next.
    ///
    /// That is at the latest the next sign of life: it takes a tenth of [`SILENCE`](crate::SILENCE) at most
    /// on a control link, and a fifth on one for data. For what may wait that long, so that neither node
    /// wakes for it alone.
    ///
    /// # Panics
    /// If the frame is longer than the maximum.
    pub fn send_with_next(&self, frame: Frame) {
        let idle = self.queue.borrow().is_empty();
        if self.put(&frame) && idle {
            self.waits.set(true);
        }
    }

    /// Puts a frame on the queue; returns whether it did.
    fn put(&self, frame: &Frame) -> bool {
        if self.is_over() {
            return false;
        }
        let queued = self.queued_bytes();
        if queued > self.bounds.queued_bytes {
            self.end_with(End::Full(queued));
            return false;
        }
        frame::encode(frame, &mut self.queue.borrow_mut());
        true
    }

    /// Bytes of frames that the kernel has not taken yet.
    pub fn queued_bytes(&self) -> usize {
        self.queue.borrow().len() + self.sending_bytes.get()
    }

    /// Ends the link.
    ///
    /// Queued frames are not sent, no further frame is handed over, and the user is notified that the link is
    /// down, though not before this returns. If this node is the one that connects, it makes a new link.
    pub fn close(&self, reason: impl Into<Cow<'static, str>>) {
        self.end_with(End::ByUser(reason.into()));
    }

    /// Whether the link has ended, even if the user was not notified yet.
    pub(crate) fn is_over(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Ends the link; the first reason counts.
    pub(crate) fn end_with(&self, end: End) {
        if self.is_over() {
            return;
        }
        self.end.replace(Some(end));
        if let Some(stream) = &*self.stream.borrow() {
            // Data on its way must not arrive after a new connection is up.
            stream.abort();
        }
        self.ended.notify();
        self.work.notify();
    }

    /// Notifies the user, once, that the link is down. The link must have ended.
    pub(crate) fn tell(&self, handler: &dyn Handler) {
        if self.down.replace(true) {
            return;
        }
        let name = self.identity.name;
        if let Some(end) = &*self.end.borrow() {
            match end {
                End::ByUser(_) | End::Replaced | End::Restarted | End::Removed => {
                    tracing::info!(reason = %end, "{name} is down");
                }
                _ => tracing::warn!(reason = %end, "{name} is down"),
            }
        }
        self.stream.replace(None);
        self.queue.borrow_mut().clear();
        self.sending_bytes.set(0);
        handler.down(name);
    }

    /// Whether the user was notified that the link is down.
    pub(crate) fn is_down(&self) -> bool {
        self.down.get()
    }

    /// Runs the link until it has ended. `incoming` has arrived already.
    pub(crate) async fn run(self: Rc<Link>, handler: Rc<dyn Handler>, incoming: Vec<u8>) {
        let stream = self.stream.borrow().clone();
        let Some(stream) = stream else { return };
        let (link, its_stream) = (Rc::clone(&self), Rc::clone(&stream));
        let _receive = rt::spawn(async move {
            if let Err(end) = link.receive(&its_stream, &*handler, incoming).await {
                link.end_with(end);
            }
        });
        let link = Rc::clone(&self);
        let _send = rt::spawn(async move {
            if let Err(end) = link.send_all(&stream).await {
                link.end_with(end);
            }
        });
        self.watch().await;
    }

    /// Waits until the link has ended, and ends it if the peer is silent.
    ///
    /// All links of a core are looked at in the same turn ([`Instant::beat_after`]): a node wakes once for
    /// all of their signs of life, and so does the peer that receives them.
    async fn watch(&self) {
        let beat = self.bounds.silence / BEATS;
        // This counts the beats that a look waits for, and not the time: if this core itself was late, what
        // has arrived meanwhile is received first. The first beat may come at once: the others alone last as
        // long as the silence.
        let mut silent_beats = 0;
        let mut is_heard = false;
        while !self.is_over() {
            let (now, apart) = (rt::now(), self.signs_apart());
            let look_at = now.beat_after(beat * if is_heard { apart } else { 1 });
            if rt::timeout_at(look_at, self.ended.until(|| self.is_over())).await.is_ok() {
                return;
            }
            self.show_life(beat * apart);
            let (received, silent) = (self.received.replace(false), look_at.since(self.heard.get()));
            is_heard = received || is_heard && is_in_time(silent, apart, beat);
            // As many as if there had been a look with each beat.
            silent_beats = match received {
                true => whole_beats(silent, beat),
                false => silent_beats.saturating_add(begun_beats(look_at.since(now), beat)),
            };
            if silent_beats > BEATS {
                self.end_with(End::Silent(beat * silent_beats));
            }
        }
    }

    /// How many beats apart signs of life on this link are now.
    fn signs_apart(&self) -> u32 {
        let role = self.identity.name.role;
        // Only links for data are on other cores than the mesh.
        signs_apart(role, rt::local::<Mesh>().is_none_or(|mesh| mesh.may_be_doubted()))
    }

    /// Sends what waits, or a sign of life if nothing was sent for half of the time between two of these.
    ///
    /// A core that was stalled does so at once: the peer may doubt the link by then.
    fn show_life(&self, apart: Duration) {
        if self.waits.replace(false) {
            self.work.notify();
        } else if rt::now().since(self.sent.get()) >= apart / 2 && self.queued_bytes() == 0 {
            frame::encode_keep_alive(&mut self.queue.borrow_mut());
            self.work.notify();
        }
    }

    async fn receive(
        self: &Rc<Link>,
        stream: &Stream,
        handler: &dyn Handler,
        incoming: Vec<u8>,
    ) -> Result<(), End> {
        let mut decoder = Decoder::default();
        self.hand_over(&mut decoder, &incoming, handler)?;
        drop(incoming);
        while !self.is_over() {
            if self.tls.is_none() && decoder.payload_missing() >= IN_PLACE_MIN {
                let frame = self.receive_in_place(stream, &mut decoder).await?;
                if !self.is_over() {
                    handler.frame(self, frame);
                }
                continue;
            }
            let mut received = stream.receive().await?;
            self.received.set(true);
            self.heard.set(rt::now());
            if received.is_empty() {
                return Err(End::ByPeer);
            }
            match &self.tls {
                None => self.hand_over(&mut decoder, &received, handler)?,
                Some(_) => self.decrypt(&mut decoder, &mut received, handler)?,
            }
        }
        Ok(())
    }

    /// Hands over the frames that `bytes` completes.
    fn hand_over(
        self: &Rc<Link>,
        decoder: &mut Decoder,
        mut bytes: &[u8],
        handler: &dyn Handler,
    ) -> Result<(), Malformed> {
        while !self.is_over()
            && let Some(frame) = decoder.next(&mut bytes)?
        {
            handler.frame(self, frame);
        }
        Ok(())
    }

    /// Like [`Link::hand_over`], for encrypted bytes, which are decrypted in place.
    fn decrypt(
        self: &Rc<Link>,
        decoder: &mut Decoder,
        received: &mut [u8],
        handler: &dyn Handler,
    ) -> Result<(), End> {
        let Some(tls) = &self.tls else { return Ok(()) };
        // The user may send in response to a frame, which needs the TLS state: so frames are handed over
        // after it was released.
        let mut frames = Vec::new();
        let fed = tls.borrow_mut().feed(received, |mut plain| {
            while let Some(frame) = decoder.next(&mut plain)? {
                frames.push(frame);
            }
            Ok::<_, Malformed>(())
        });
        for frame in frames {
            if self.is_over() {
                return Ok(());
            }
            handler.frame(self, frame);
        }
        fed?;
        if tls.borrow().is_closed() {
            // Whatever the peer sends after this does not count, not even as a sign of life.
            return Err(End::ByPeer);
        }
        if tls.borrow().has_output() {
            self.work.notify();
        }
        Ok(())
    }

    /// Receives the rest of a large payload directly into its buffer.
    async fn receive_in_place(&self, stream: &Stream, decoder: &mut Decoder) -> Result<Frame, End> {
        let (mut buf, mut filled) = decoder.take_payload().expect("it misses bytes");
        let len = buf.len();
        while filled < len {
            let part = len.min(filled + IN_PLACE_PART);
            buf.truncate(part);
            buf = stream.receive_exact(buf, filled).await?;
            buf.restore_len(len);
            filled = part;
            self.received.set(true);
            self.heard.set(rt::now());
        }
        Ok(decoder.give_payload(buf))
    }

    async fn send_all(&self, stream: &Stream) -> Result<(), End> {
        // Both keep their memory from one send to the next.
        let (mut spare, mut sealed) = (SendBatch::new(), SendBatch::new());
        loop {
            self.work.until(|| self.is_over() || self.has_work()).await;
            // Other tasks that are ready to run may have something to send, too.
            rt::yield_now().await;
            if self.is_over() {
                return Ok(());
            }
            let batch = self.queue.replace(spare);
            self.waits.set(false);
            self.sending_bytes.set(batch.len());
            self.sent.set(rt::now());
            (spare, sealed) = match &self.tls {
                None => (stream.send(batch).await?, sealed),
                Some(tls) => self.send_sealed(stream, tls, batch, sealed).await?,
            };
            self.sending_bytes.set(0);
        }
    }

    fn has_work(&self) -> bool {
        !self.queue.borrow().is_empty() && !self.waits.get()
            || self.tls.as_ref().is_some_and(|tls| tls.borrow().has_output())
    }

    /// Encrypts a batch into `sealed` and sends it, part by part; returns both empty.
    async fn send_sealed(
        &self,
        stream: &Stream,
        tls: &RefCell<Tls>,
        mut batch: SendBatch,
        mut sealed: SendBatch,
    ) -> Result<(SendBatch, SendBatch), End> {
        let mut pieces = batch.iter();
        let mut rest: &[u8] = &[];
        loop {
            let done = {
                let mut tls = tls.borrow_mut();
                let mut part: Vec<IoSlice<'_>> = Vec::new();
                let mut room = SEAL_PART;
                while room > 0 {
                    if rest.is_empty() {
                        let Some(piece) = pieces.next() else { break };
                        rest = piece;
                    }
                    let (now, later) = rest.split_at(rest.len().min(room));
                    part.push(IoSlice::new(now));
                    room -= now.len();
                    rest = later;
                }
                tls.seal(&part, &mut sealed)?;
                room > 0
            };
            sealed = stream.send(sealed).await?;
            self.sent.set(rt::now());
            if done {
                break;
            }
        }
        drop(pieces);
        batch.clear();
        Ok((batch, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_as_frequent_as_the_limits_say() {
        // A sign comes with a look if nothing was sent for half of the time between two looks.
        let signs = |role, may_be_doubted| 2 * BEATS / (3 * signs_apart(role, may_be_doubted));
        // See `Limits::silence`.
        assert_eq!((signs(Role::Control, true), signs(Role::Control, false)), (13, 6));
        assert_eq!(signs(Role::Replication, false), 3);
    }

    #[test]
    fn a_sign_of_life_is_missed_half_a_beat_after_it_was_due() {
        let ms = Duration::from_millis;
        assert!(is_in_time(ms(200), 4, ms(50)) && is_in_time(ms(224), 4, ms(50)));
        assert!(!is_in_time(ms(225), 4, ms(50)) && !is_in_time(ms(75), 1, ms(50)));
    }
}
