//! The rule for data whose length differs from what the CDB requires.
//!
//! The initiator announces the length of its data to the transport (RFC 7143 11.3.4, Expected Data Transfer
//! Length); the CDB determines how much data the command needs. If less arrives, nothing is done: the
//! response is ILLEGAL REQUEST, INVALID FIELD IN COMMAND INFORMATION UNIT, with the overflow as residual
//! count. FCP-4 9.4.2, which defines FCP_DL, allows this and two other responses; RFC 7143 leaves it open. It
//! would also be allowed to write the part that arrived and answer GOOD, but then a host that miscounted
//! believes that blocks were written which were not. LIO refuses such commands, too. If more arrives, the
//! surplus is ignored, and is reported as underflow.
//!
//! Every command with data-out gets its data from here and nowhere else: `tests/data_out.rs` checks the whole
//! table of operations.

use base::Chain;

use super::sense::code;
use super::{Outcome, Sense};

/// Returns the first `need` bytes of the data.
///
/// # Errors
/// The response, if less data arrived.
pub(super) fn take(data: Chain, need: u64) -> Result<Chain, Outcome> {
    let have = data.len() as u64;
    if have == need {
        Ok(data)
    } else if have > need {
        Ok(data.slice(0..need as usize))
    } else {
        Err(wrong_length(need))
    }
}

/// Returns the data if it has exactly `need` bytes, for commands where more means that the initiator assumes
/// another block size.
///
/// # Errors
/// The response, if less or more data arrived.
pub(super) fn take_exactly(data: Chain, need: u64) -> Result<Chain, Outcome> {
    if data.len() as u64 == need { Ok(data) } else { Err(wrong_length(need)) }
}

fn wrong_length(need: u64) -> Outcome {
    let sense = Sense::illegal(code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    Outcome { transfer: need, ..Outcome::check(sense) }
}
