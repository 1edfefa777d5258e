//! Calls for floating IPs.

use super::path::segment;
use super::{Client, Result};
use crate::{FloatingAddress, FloatingAddressAdd};

/// Floating IPs.
impl Client {
    /// All floating IPs of the cluster, with their holders.
    pub fn addresses(&self) -> Result<Vec<FloatingAddress>> {
        self.list("/v1/floating-ips")
    }

    /// Adds a floating IP.
    pub fn add_address(&self, address: &FloatingAddressAdd) -> Result<FloatingAddress> {
        self.post("/v1/floating-ips", address)
    }

    /// Removes a floating IP; sessions through it end.
    pub fn remove_address(&self, address: &str) -> Result<()> {
        self.delete(&format!("/v1/floating-ips/{}", segment(address)))
    }
}
