//! Sessions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An initiator's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Session number (TSIH).
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's alias.
    pub alias: Option<String>,
    /// The initiator's session identifier (ISID) in hexadecimal.
    pub isid: String,
    /// The target; absent in a discovery session.
    pub target: Option<String>,
    /// The core that handles the session.
    pub core: u16,
    /// The initiator's addresses, one per connection.
    pub addresses: Vec<String>,
    /// Seconds since login.
    pub age: u64,
    /// SCSI commands so far.
    pub commands: u64,
    /// Bytes received from the initiator so far, including headers.
    pub bytes_received: u64,
    /// Bytes sent to the initiator so far, including headers.
    pub bytes_sent: u64,
    /// Number of the node that has the session.
    pub node: u16,
    /// Name of that node.
    pub node_name: String,
}
