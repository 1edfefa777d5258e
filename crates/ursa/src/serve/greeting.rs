//! What `ursa serve` says when it serves: where, and what to do next. For people; programs read the log, or ask the API.

use std::net::SocketAddr;

use super::settings::Settings;
use crate::cli::attach_lines;

/// The greeting of a node with these portals; `set_up` is the link that makes the first user.
pub fn greeting(settings: &Settings, portals: &[SocketAddr], set_up: Option<&str>) -> String {
    let portals: Vec<String> = portals.iter().map(SocketAddr::to_string).collect();
    let volumes: String = settings
        .volumes
        .iter()
        .map(|volume| {
            let target = api::default_target(&volume.name);
            let attach = attach_lines(&portals, &target, true);
            format!("\nVolume {} is LUN 0 of {target} for this machine. To attach it:\n{attach}", volume.name)
        })
        .collect();
    // The command line finds a node at the usual address by itself.
    let usual = settings.api_listen.to_string() == api::DEFAULT_LISTEN;
    let api = if usual { String::new() } else { format!(" --api http://{}", settings.api_listen) };
    let first_user = set_up.map_or(String::new(), |link| {
        format!("\nThere is no user yet. To make the first one, within a day, open:\n  {link}\n")
    });
    format!(
        "ursa {version} serves as {name:?}\n  \
           iSCSI  {portals}\n  \
           API    http://{api_listen}\n  \
           state  {state}\n\
         {volumes}\n\
         To make a volume and learn how to attach it:\n  \
           ursa volume create db --size 10G{api}\n\
         {first_user}",
        version = env!("CARGO_PKG_VERSION"),
        name = settings.node.name,
        portals = portals.join(", "),
        api_listen = settings.api_listen,
        state = settings.node.data_dir.display(),
    )
}
