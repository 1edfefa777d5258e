//! What `ursa serve` prints when it serves: its addresses and the next steps.
//!
//! This is for people; programs read the log or use the API.

use std::net::SocketAddr;

use terms::attach::attach_lines;

use super::set_up_link::SetUpLink;
use super::settings::Settings;

/// What is known about the API only once it listens.
#[derive(Clone, Copy)]
pub struct ApiNotes<'a> {
    /// Where the link is with which the first user is created.
    pub set_up: &'a SetUpLink,
    /// The fingerprint of its certificate.
    pub fingerprint: Option<&'a str>,
}

/// The greeting of a node with these portals.
pub fn greeting(settings: &Settings, portals: &[SocketAddr], api: &ApiNotes<'_>) -> String {
    let ApiNotes { set_up, fingerprint } = *api;
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
    // The command line finds a node at the default address without `--api`.
    let here = for_command_line(&settings.api_listen);
    let api = match here == format!("http://{}", api::DEFAULT_LISTEN) {
        true => String::new(),
        false => format!(" --api {here}"),
    };
    let listen: Vec<String> = settings.api_listen.iter().map(|address| Settings::api_url(*address)).collect();
    let certificate = fingerprint
        .map_or(String::new(), |fingerprint| format!("\n         certificate SHA-256 {fingerprint}"));
    let first_user = match set_up {
        SetUpLink::None => String::new(),
        SetUpLink::Shown(links) => {
            let one = if links.len() > 1 { " one of these links" } else { " this link" };
            let links = links.join("\n  ");
            format!("\nNo users yet. To create the first one, open{one} within a day:\n  {links}\n")
        }
        SetUpLink::Kept(path) => format!(
            "\nNo users yet. To create the first one, open the link in {} within a day, or run here:\n  \
             ursa user create NAME --role admin{api}\n",
            path.display()
        ),
        SetUpLink::Lost => format!(
            "\nNo users yet. To create the first one, run here:\n  \
             ursa user create NAME --role admin{api}\n"
        ),
    };
    format!(
        "ursa {version} serves as {name:?}\n  \
           iSCSI  {portals}\n  \
           API    {api_listen}{certificate}\n  \
           state  {state}\n\
         {volumes}\n\
         To create a volume and see how to attach it:\n  \
           ursa volume create db --size 10G{api}\n\
         {first_user}",
        version = env!("CARGO_PKG_VERSION"),
        name = settings.node.name,
        portals = portals.join(", "),
        api_listen = listen.join(", "),
        state = settings.node.data_dir.display(),
    )
}

/// The URL at which the command line on the node reaches the API: loopback, if the API listens there.
fn for_command_line(listen: &[SocketAddr]) -> String {
    let here = listen.iter().find(|address| address.ip().is_loopback() || address.ip().is_unspecified());
    match here {
        Some(address) if address.ip().is_unspecified() => format!("http://127.0.0.1:{}", address.port()),
        Some(address) => Settings::api_url(*address),
        None => Settings::api_url(listen[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::for_command_line;

    #[test]
    fn the_command_line_prefers_loopback() {
        let url = |listen: &[&str]| {
            for_command_line(&listen.iter().map(|address| address.parse().unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(url(&["10.0.0.1:3280", "127.0.0.2:3280"]), "http://127.0.0.2:3280");
        assert_eq!(url(&["0.0.0.0:81"]), "http://127.0.0.1:81");
        assert_eq!(url(&["10.0.0.1:3280"]), "https://10.0.0.1:3280");
    }
}
