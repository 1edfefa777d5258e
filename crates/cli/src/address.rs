//! `ursa floating-ip`.

use api::{AddressState, AddressTrouble, Client, FloatingAddress, FloatingAddressAdd};
use clap::Subcommand;
use terms::clock::utc;

use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::table::{Table, list};

/// What to do with floating portal addresses.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a floating IP: held by one node, taken over by another on failure
    ///
    /// Nodes need the capability CAP_NET_ADMIN for this, and CAP_NET_RAW to announce the address on the
    /// network.
    Add {
        /// An unused address, with its prefix length: 192.0.2.10/24
        #[arg(value_name = "ADDRESS/LENGTH")]
        address: String,
        /// Network device for the address, on each node [default: the one with an address in the same
        /// network]
        #[arg(long, value_name = "DEVICE")]
        device: Option<String>,
        /// Nodes that may hold it, by number [default: all but witnesses]
        #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
        nodes: Vec<u16>,
        /// Preferred node, by number; it takes the address back once it has been up for a minute
        #[arg(long, value_name = "NUMBER")]
        prefer: Option<u16>,
    },
    /// List floating IPs and the nodes that hold them
    List,
    /// Remove a floating IP; sessions through it end
    Remove {
        /// Address
        address: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Add { address, device, nodes, prefer } => {
                let new = FloatingAddressAdd { address, device, nodes, prefer };
                output.show(&client.add_address(&new)?, |added| {
                    format!(
                        "Floating IP {} added. A node takes it over shortly: see `ursa floating-ip list`.\n",
                        added.address
                    )
                })
            }
            Command::List => output.show(&client.addresses()?, |addresses| table(addresses)),
            Command::Remove { address, confirm } => {
                // Accept the form of the list, with a prefix length.
                let address = address.split('/').next().unwrap_or_default().to_owned();
                let what = format!("Remove floating IP {address}");
                let done = format!("Floating IP {address} removed.");
                confirm.done(client, output, &what, &done, |client| client.remove_address(&address))
            }
        }
    }
}

fn table(addresses: &[FloatingAddress]) -> String {
    let mut table =
        Table::new(&["ADDRESS", "HELD BY", "STATE", "SINCE", "DEVICE", "NODES", "PREFERRED", "GROUP"]);
    for address in addresses {
        table.row([
            address.address.clone(),
            holder(address),
            state(address.state).into(),
            address.since.map_or("-".into(), utc),
            address.device.clone().unwrap_or_else(|| "by network".into()),
            list(&address.nodes, "all"),
            address.prefer.map_or("-".into(), |node| node.to_string()),
            address.portal_group.map_or("-".into(), |group| group.to_string()),
        ]);
    }
    let troubles: String = addresses.iter().map(troubles).collect();
    table.text("No floating IPs. Add one with `ursa floating-ip add`.") + &troubles
}

fn holder(address: &FloatingAddress) -> String {
    let Some(node) = address.holder else {
        let is_known = address.state != AddressState::Unreadable;
        return String::from(if is_known { "NONE" } else { "-" });
    };
    let name = address.holder_name.as_deref().unwrap_or_default();
    let waits = if address.waits { " (pending)" } else { "" };
    format!("{node} {name}{waits}").trim_end().to_owned()
}

/// States that need attention are in capitals.
fn state(state: AddressState) -> &'static str {
    match state {
        AddressState::Held => "held",
        AddressState::Taking => "taking over",
        AddressState::Nobody => "NOT HELD",
        AddressState::Unknown => "UNKNOWN",
        AddressState::Unreadable => "UNREADABLE",
    }
}

fn troubles(address: &FloatingAddress) -> String {
    let line = |trouble: &AddressTrouble| {
        format!("\n{}: node {} {}: {}\n", address.address, trouble.node, trouble.node_name, trouble.text)
    };
    let unreadable = (address.state == AddressState::Unreadable).then(|| {
        format!(
            "\n{}: not readable by this node, because a newer version of ursa wrote it: use a node with that version (--api)\n",
            address.address
        )
    });
    unreadable.into_iter().chain(address.troubles.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_the_holder_of_each_address() {
        let address = FloatingAddress {
            address: "192.0.2.10/24".into(),
            device: None,
            nodes: vec![1, 2],
            prefer: Some(1),
            portal_group: Some(65280),
            holder: Some(1),
            holder_name: Some("san1".into()),
            since: Some(0),
            waits: false,
            state: AddressState::Held,
            troubles: Vec::new(),
        };
        let other = FloatingAddress {
            address: "fd00::10/64".into(),
            device: Some("eth1".into()),
            nodes: Vec::new(),
            prefer: None,
            portal_group: Some(65281),
            holder: None,
            holder_name: None,
            since: None,
            state: AddressState::Nobody,
            troubles: vec![AddressTrouble { node: 2, node_name: "san2".into(), text: "`ip`: no".into() }],
            ..address.clone()
        };
        let waits = FloatingAddress { waits: true, state: AddressState::Taking, ..address.clone() };
        assert!(table(&[waits]).contains("1 san1 (pending)  taking over"));
        let later = FloatingAddress { portal_group: None, state: AddressState::Unreadable, ..other.clone() };
        assert!(table(&[later]).contains("-        UNREADABLE  -"), "nobody knows who has it");
        assert_eq!(
            table(&[address, other]),
            "\
ADDRESS        HELD BY  STATE     SINCE                 DEVICE      NODES  PREFERRED  GROUP
192.0.2.10/24  1 san1   held      1970-01-01 00:00:00Z  by network  1, 2   1          65280
fd00::10/64    NONE     NOT HELD  -                     eth1        all    -          65281

fd00::10/64: node 2 san2: `ip`: no
"
        );
        assert_eq!(table(&[]), "No floating IPs. Add one with `ursa floating-ip add`.\n");
    }
}
