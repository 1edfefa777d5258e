//! That a member gives a range for COMPARE AND WRITE only when nothing there is unsettled is one of two
//! guards, of which either is enough: so no run of whole nodes would notice its absence. Shown by a model in
//! all its interleavings.
//!
//! A coordinator was lost when its write W had reached member B and not member A. The two act in the next
//! epoch, where B brings W to its end (R7). A host exchanges, through A, what was there before W by COMPARE
//! AND WRITE. B gives its range when nothing there is unsettled, says the rule; but all that B says to A
//! about a slice arrives in order, and B has sent W, when the epoch began, before it gives anything in it. So
//! A has W before it compares, and reads it when it is valid. Either is enough, and without both the exchange
//! steps over a write that was seen.

use std::collections::BTreeSet;

/// What is left out.
#[derive(Clone, Copy)]
struct World {
    /// A range is given though something there is unsettled.
    unsettled: bool,
    /// Messages of one node to another overtake each other.
    unordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Old,
    /// The write of the lost coordinator.
    W,
    /// What it is exchanged for: its place in the order is behind W.
    New,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Take,
    Taken,
    Invalidate(Value),
    Acknowledge(Value),
    Validate(Value),
}

/// A member: what it holds, and whether that is known to be everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    holds: Value,
    valid: bool,
    /// On its way to the other.
    says: Vec<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    a: Member,
    b: Member,
    /// A has asked for the range; B has been asked and has not given it; A has it.
    asked: bool,
    waits: bool,
    taken: bool,
    /// What the exchange has found.
    compared: Option<Value>,
    /// A host was given W.
    w_was_seen: bool,
}

impl State {
    fn first() -> State {
        let a = Member { holds: Value::Old, valid: true, says: Vec::new() };
        let b = Member { holds: Value::W, valid: false, says: vec![Message::Invalidate(Value::W)] };
        State { a, b, asked: false, waits: false, taken: false, compared: None, w_was_seen: false }
    }

    fn is_wrong(&self) -> bool {
        self.compared == Some(Value::Old) && self.w_was_seen
    }

    /// All that can happen next.
    fn next(&self, world: World) -> Vec<State> {
        let mut next = Vec::new();
        let mut may = |change: &dyn Fn(&mut State)| {
            let mut state = self.clone();
            change(&mut state);
            next.push(state);
        };
        if !self.asked {
            may(&|state| {
                state.asked = true;
                state.a.says.push(Message::Take);
            });
        }
        if self.waits && (world.unsettled || self.b.valid) {
            may(&|state| {
                state.waits = false;
                state.b.says.push(Message::Taken);
            });
        }
        if self.taken && self.compared.is_none() && self.a.valid {
            may(&|state| {
                state.compared = Some(state.a.holds);
                (state.a.holds, state.a.valid) = (Value::New, false);
                state.a.says.push(Message::Invalidate(Value::New));
            });
        }
        if [&self.a, &self.b].iter().any(|member| member.valid && member.holds == Value::W) {
            may(&|state| state.w_was_seen = true);
        }
        let first = |says: &[Message]| if world.unordered { says.len() } else { says.len().min(1) };
        for at in 0..first(&self.a.says) {
            may(&|state| {
                let message = state.a.says.remove(at);
                match message {
                    Message::Take => state.waits = true,
                    message => receive(&mut state.b, message),
                }
            });
        }
        for at in 0..first(&self.b.says) {
            may(&|state| {
                let message = state.b.says.remove(at);
                match message {
                    Message::Taken => state.taken = true,
                    message => receive(&mut state.a, message),
                }
            });
        }
        next
    }
}

/// What has a greater place in the order is taken; acknowledged is everything (R2, R3). Of two members the
/// coordinator knows by one word that all have it.
fn receive(member: &mut Member, message: Message) {
    match message {
        Message::Invalidate(value) => {
            if value > member.holds {
                (member.holds, member.valid) = (value, false);
            }
            member.says.push(Message::Acknowledge(value));
        }
        Message::Acknowledge(value) => {
            member.valid |= member.holds == value;
            member.says.push(Message::Validate(value));
        }
        Message::Validate(value) => member.valid |= member.holds == value,
        Message::Take | Message::Taken => unreachable!("they are about the range"),
    }
}

/// Whether something wrong can happen, and in how many states the world can be.
fn explore(world: World) -> (bool, usize) {
    let mut seen = BTreeSet::from([State::first()]);
    let mut left: Vec<State> = seen.iter().cloned().collect();
    while let Some(state) = left.pop() {
        left.extend(state.next(world).into_iter().filter(|next| seen.insert(next.clone())));
    }
    // An exchange comes to its end in each world.
    assert!(
        seen.iter().any(|state| state.compared.is_some() && state.b.holds == Value::New && state.b.valid)
    );
    (seen.iter().any(State::is_wrong), seen.len())
}

#[test]
fn order_or_the_rule_is_enough_for_a_range() {
    for (unsettled, unordered) in [(false, false), (true, false), (false, true), (true, true)] {
        let (wrong, states) = explore(World { unsettled, unordered });
        assert!(states > 20, "{states} states");
        assert_eq!(wrong, unsettled && unordered, "unsettled {unsettled}, unordered {unordered}");
    }
}
