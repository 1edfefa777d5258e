//! What is tested of the protocol from outside of its code.

mod model;
