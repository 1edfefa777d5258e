//! The one rule for data that does not have the length that the CDB asks for.
//!
//! How much data comes is what the initiator announced to the transport (RFC 7143 11.3.4, Expected Data
//! Transfer Length). The CDB says how much the command needs. If less comes, nothing is done: ILLEGAL
//! REQUEST, INVALID FIELD IN COMMAND INFORMATION UNIT, with the overflow as residual count. FCP-4 9.4.2
//! allows that beside two other answers, where it defines FCP_DL; RFC 7143 leaves it open. Writing the part
//! that came and answering GOOD is allowed as well, but then a host that miscounted takes blocks for written
//! that were not. LIO refuses such commands, too. If more comes, the surplus is ignored, and shows as
//! underflow.
//!
//! Every command with data out takes it from here, and nowhere else: `tests/data_out.rs` goes through the
//! table of operations.

use base::Chain;

use super::sense::code;
use super::{Outcome, Sense};

/// The first `need` bytes of the data.
///
/// # Errors
/// The answer, if less came.
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

/// Exactly `need` bytes, of commands where more means that the initiator thinks of another block size.
///
/// # Errors
/// The answer, if less or more came.
pub(super) fn take_exactly(data: Chain, need: u64) -> Result<Chain, Outcome> {
    if data.len() as u64 == need { Ok(data) } else { Err(wrong_length(need)) }
}

fn wrong_length(need: u64) -> Outcome {
    let sense = Sense::illegal(code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    Outcome { transfer: need, ..Outcome::check(sense) }
}
