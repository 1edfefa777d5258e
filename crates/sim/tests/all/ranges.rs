//! A model of the two guards around the ranges of COMPARE AND WRITE, in all interleavings.
//!
//! One guard is that a member grants a range only when nothing there is unsettled. The other is the order of
//! messages. Either is enough, so no run of whole nodes would notice the absence of one.
//!
//! A coordinator was lost when its write W had reached member B and not member A. The two act in the next
//! epoch, where B completes W (R7). A host sends a COMPARE AND WRITE through A, which compares with the value
//! before W. By the rule, B grants its range when nothing there is unsettled. But all messages from B to A
//! about a slice also arrive in order, and B sent W when the epoch began, before it grants anything in it. So
//! A has W before it compares, and reads it when it is valid. Without both guards the exchange overlooks a
//! write that a host has seen.

use std::collections::BTreeSet;

/// The guards that are left out.
#[derive(Clone, Copy)]
struct World {
    /// A member grants a range although something there is unsettled.
    unsettled: bool,
    /// Messages of one node to another overtake each other.
    unordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Old,
    /// The write of the lost coordinator.
    W,
    /// The new value of the exchange, which is behind W in the order.
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

/// A member: what it holds, and whether it knows that all members hold it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    holds: Value,
    valid: bool,
    /// Messages on their way to the other.
    says: Vec<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    a: Member,
    b: Member,
    /// A has requested the range; B has received the request and not granted it; A has the range.
    asked: bool,
    waits: bool,
    taken: bool,
    /// The value that the exchange compared.
    compared: Option<Value>,
    /// A host has read W.
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

    /// All possible next states.
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

/// A member takes a value with a greater place in the order; an acknowledgement covers all (R2, R3).
///
/// With two members, a single acknowledgement tells the coordinator that all have it.
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

/// Whether a violation is possible, and the number of reachable states.
fn explore(world: World) -> (bool, usize) {
    let mut seen = BTreeSet::from([State::first()]);
    let mut left: Vec<State> = seen.iter().cloned().collect();
    while let Some(state) = left.pop() {
        left.extend(state.next(world).into_iter().filter(|next| seen.insert(next.clone())));
    }
    // In each world an exchange completes.
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
