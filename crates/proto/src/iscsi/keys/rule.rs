//! How an offer and an answer become a result (RFC 7143 6.2).
//!
//! Pure functions, the same for both roles: the responder computes its [`Answer`], the offerer checks it with
//! [`Rule::settle`].

use std::borrow::Cow;

use super::value::{boolean, parse_boolean, parse_number};

/// The offer is not acceptable. This and the next two are answers instead of values (RFC 7143 6.2).
pub const REJECT: &str = "Reject";
/// The key is irrelevant here.
pub const IRRELEVANT: &str = "Irrelevant";
/// The key is unknown.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";

/// Whether a value can only be an answer, not an offer.
///
/// Such a value is never answered; otherwise two sides could answer each other forever.
pub fn is_answer_only(value: &str) -> bool {
    [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(&value)
}

/// How two values become one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are the bounds.
pub enum Rule {
    /// The smaller of two numbers, both within the bounds.
    Minimum { least: u32, most: u32 },
    /// The greater of two numbers, both within the bounds.
    Maximum { least: u32, most: u32 },
    /// Yes if both say Yes.
    And,
    /// Yes if one says Yes.
    Or,
    /// The first of the offered values that the responder supports.
    Choice,
    /// Each side declares its own value; nothing is negotiated.
    Declared,
    /// Never accepted.
    Rejected,
}

/// The value that a side wants or supports, or the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value of a numeric key.
    Number(u32),
    /// The value of a boolean key.
    Boolean(bool),
    /// One value of a list.
    Choice(&'static str),
    /// The values that a side supports, best first.
    Choices(&'static [&'static str]),
}

/// The responder's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The result.
    Result(Value),
    /// The offer is not acceptable; the key keeps its value.
    Reject,
    /// The key is irrelevant here; it keeps its value.
    Irrelevant,
}

impl Answer {
    /// The text to send.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Answer::Result(value) => value.text(),
            Answer::Reject => REJECT.into(),
            Answer::Irrelevant => IRRELEVANT.into(),
        }
    }
}

impl Value {
    /// The text to send.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Value::Number(number) => number.to_string().into(),
            Value::Boolean(value) => boolean(value).into(),
            Value::Choice(choice) => choice.into(),
            Value::Choices(choices) => choices.join(",").into(),
        }
    }
}

/// The error of an answer that, by the key's rule, does not follow from the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer does not follow from the offer")]
pub struct BadAnswer;

impl Rule {
    /// The responder's answer to `offered`, if its own value is `ours`.
    pub fn answer(self, ours: Value, offered: &str) -> Answer {
        let result = match (self, ours) {
            (Rule::Minimum { least, most }, Value::Number(ours)) => {
                number_within(offered, least, most).map(|offered| Value::Number(offered.min(ours)))
            }
            (Rule::Maximum { least, most }, Value::Number(ours)) => {
                number_within(offered, least, most).map(|offered| Value::Number(offered.max(ours)))
            }
            (Rule::And, Value::Boolean(ours)) => {
                parse_boolean(offered).map(|offered| Value::Boolean(offered && ours))
            }
            (Rule::Or, Value::Boolean(ours)) => {
                parse_boolean(offered).map(|offered| Value::Boolean(offered || ours))
            }
            (Rule::Choice, Value::Choices(ours)) => {
                offered.split(',').find_map(|offered| known(ours, offered)).map(Value::Choice)
            }
            _ => None,
        };
        result.map_or(Answer::Reject, Answer::Result)
    }

    /// What follows from the answer to an offer: the result, or `None` if the key keeps its value.
    ///
    /// # Errors
    /// The answer does not follow from the offer.
    pub fn settle(self, offered: Value, answer: &str) -> Result<Option<Value>, BadAnswer> {
        if is_answer_only(answer) {
            return Ok(None);
        }
        let allowed = match (self, offered) {
            (Rule::Minimum { least, most }, Value::Number(offered)) => {
                number_within(answer, least, most.min(offered)).map(Value::Number)
            }
            (Rule::Maximum { least, most }, Value::Number(offered)) => {
                number_within(answer, least.max(offered), most).map(Value::Number)
            }
            (Rule::And, Value::Boolean(offered)) => {
                parse_boolean(answer).filter(|answer| offered || !answer).map(Value::Boolean)
            }
            (Rule::Or, Value::Boolean(offered)) => {
                parse_boolean(answer).filter(|answer| !offered || *answer).map(Value::Boolean)
            }
            (Rule::Choice, Value::Choices(offered)) => known(offered, answer).map(Value::Choice),
            _ => None,
        };
        allowed.map(Some).ok_or(BadAnswer)
    }
}

fn number_within(text: &str, least: u32, most: u32) -> Option<u32> {
    let number = u32::try_from(parse_number(text)?).ok()?;
    (least..=most).contains(&number).then_some(number)
}

fn known(choices: &'static [&'static str], text: &str) -> Option<&'static str> {
    choices.iter().copied().find(|choice| *choice == text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::iscsi::keys::Key;

    fn answer(key: Key, ours: Value, offered: &str) -> String {
        key.definition().rule.answer(ours, offered).text().into_owned()
    }

    #[test]
    fn numbers_meet_at_the_smaller_or_the_greater() {
        let burst = |ours, offered| answer(Key::MaxBurstLength, Value::Number(ours), offered);
        assert_eq!(burst(1_048_576, "262144"), "262144");
        assert_eq!(burst(65536, "262144"), "65536");
        assert_eq!(burst(65536, "0x1000"), "4096");
        for offered in ["511", "16777216", "many", "", "?", "4294967808", "-1"] {
            assert_eq!(burst(65536, offered), "Reject", "{offered}");
        }
        assert_eq!(answer(Key::DefaultTime2Wait, Value::Number(2), "0"), "2");
        assert_eq!(answer(Key::DefaultTime2Wait, Value::Number(2), "5"), "5");
        assert_eq!(answer(Key::ErrorRecoveryLevel, Value::Number(0), "2"), "0");
        assert_eq!(answer(Key::ErrorRecoveryLevel, Value::Number(0), "3"), "Reject");
    }

    #[test]
    fn booleans() {
        for (ours, offered, or, and) in [
            (false, "No", "No", "No"),
            (false, "Yes", "Yes", "No"),
            (true, "No", "Yes", "No"),
            (true, "Yes", "Yes", "Yes"),
        ] {
            assert_eq!(answer(Key::InitialR2T, Value::Boolean(ours), offered), or);
            assert_eq!(answer(Key::ImmediateData, Value::Boolean(ours), offered), and);
        }
        assert_eq!(answer(Key::InitialR2T, Value::Boolean(true), "yes"), "Reject");
    }

    #[test]
    fn the_offerer_orders_a_list() {
        let digest = |offered| answer(Key::HeaderDigest, Value::Choices(&["CRC32C", "None"]), offered);
        assert_eq!(digest("CRC32C,None"), "CRC32C");
        assert_eq!(digest("None,CRC32C"), "None");
        assert_eq!(digest("X-md5,CRC32C"), "CRC32C");
        assert_eq!(digest("X-md5"), "Reject");
        assert_eq!(digest(""), "Reject");
    }

    #[test]
    fn withdrawn_keys_are_refused() {
        assert_eq!(answer(Key::OfMarkInt, Value::Number(1), "2048~8192"), "Reject");
        assert_eq!(answer(Key::IfMarker, Value::Boolean(false), "Yes"), "No");
    }

    #[test]
    fn an_answer_must_follow_from_the_offer() {
        let settle = |key: Key, offered, answer| key.definition().rule.settle(offered, answer);
        assert_eq!(settle(Key::MaxBurstLength, Value::Number(8192), "4096"), Ok(Some(Value::Number(4096))));
        assert_eq!(settle(Key::MaxBurstLength, Value::Number(8192), "8193"), Err(BadAnswer));
        assert_eq!(settle(Key::MaxBurstLength, Value::Number(8192), "Reject"), Ok(None));
        assert_eq!(settle(Key::DefaultTime2Wait, Value::Number(2), "1"), Err(BadAnswer));
        assert_eq!(settle(Key::InitialR2T, Value::Boolean(true), "No"), Err(BadAnswer));
        assert_eq!(settle(Key::ImmediateData, Value::Boolean(false), "Yes"), Err(BadAnswer));
        assert_eq!(settle(Key::DataDigest, Value::Choices(&["None"]), "CRC32C"), Err(BadAnswer));
    }

    proptest! {
        #[test]
        fn answers_of_one_side_are_accepted_by_the_other(ours in 512u32..=16_777_215, offered in 512u32..=16_777_215) {
            let rule = Key::MaxBurstLength.definition().rule;
            let answer = rule.answer(Value::Number(ours), &offered.to_string());
            prop_assert_eq!(answer, Answer::Result(Value::Number(ours.min(offered))));
            prop_assert_eq!(
                rule.settle(Value::Number(offered), &answer.text()),
                Ok(Some(Value::Number(ours.min(offered))))
            );
        }
    }
}
