//! What is asked of floating portal addresses.

use super::path::segment;
use super::{Client, Result};
use crate::{DryRun, FloatingAddress, FloatingAddressAdd};

/// Floating portal addresses.
impl Client {
    /// All of the cluster, and who has each.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn addresses(&self) -> Result<Vec<FloatingAddress>> {
        self.list("/v1/floating-ips")
    }

    /// Declares one more.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn add_address(&self, address: &FloatingAddressAdd) -> Result<FloatingAddress> {
        self.post("/v1/floating-ips", address)
    }

    /// Removes one; sessions through it end.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn remove_address(&self, address: &str) -> Result<()> {
        self.delete(&format!("/v1/floating-ips/{}", segment(address)))
    }

    /// What removing one would do.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError): as it would be refused.
    pub fn would_remove_address(&self, address: &str) -> Result<DryRun> {
        self.would_delete(&format!("/v1/floating-ips/{}?dry_run=true", segment(address)))
    }
}
