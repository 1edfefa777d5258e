//! iSCSI: [`portal`] accepts connections and runs their logins, [`session`] turns bytes into commands.

pub(crate) mod portal;
pub(crate) mod session;
