//! ursa
fn main() {}
