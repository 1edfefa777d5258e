//! `ursa audit`.

use api::{AuditEntry, AuditQuery, Client};
use clap::Args;
use terms::clock::utc;

use super::error::CliError;
use super::output::Output;
use super::table::Table;

/// Which entries.
#[derive(Args, Debug)]
pub struct Audit {
    /// Number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Entries before this ID, of one node
    #[arg(long, value_name = "ID")]
    before: Option<u64>,
    /// Entries up to this time, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    until: Option<u64>,
    /// With --until: skip the newest N (paging)
    #[arg(long, value_name = "N", requires = "until")]
    skip: Option<usize>,
    /// Another node of the cluster, by number, or all
    #[arg(long, value_name = "NUMBER|all")]
    node: Option<String>,
}

impl Audit {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let of_others = self.node.is_some();
        let Audit { limit, before, until, skip, node } = self;
        let entries = client.audit(&AuditQuery { limit: limit.into(), before, until, skip, node })?;
        if !of_others {
            return output.show(&entries.items, |entries| table(entries, false));
        }
        output.list(&entries, |entries| table(entries, true))
    }
}

fn table(entries: &[AuditEntry], of_nodes: bool) -> String {
    let mut table = Table::new(&["NODE", "ID", "TIME", "USER", "LOGIN", "FROM", "ACTION", "RESULT"]);
    for entry in entries {
        table.row([
            entry.node_name.clone().unwrap_or_else(|| "-".into()),
            entry.id.to_string(),
            utc(entry.at),
            entry.who.escape_debug().to_string(),
            entry.by.map_or("-".into(), |by| by.to_string()),
            entry.address.clone(),
            entry.action.escape_debug().to_string(),
            match &entry.code {
                Some(code) => format!("{} {code}", entry.status),
                None => entry.status.to_string(),
            },
        ]);
    }
    if !of_nodes {
        table.omit("NODE");
    }
    table.text("No entries.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_an_entry_is_shown_if_there_are_several() {
        let entry = AuditEntry {
            id: 7,
            at: 1_800_000_000,
            who: "alice".into(),
            by: None,
            address: "through node san1".into(),
            action: "POST /v1/pools/old/export?node=2".into(),
            status: 409,
            code: Some("pool_in_use".into()),
            node: Some(2),
            node_name: Some("san2".into()),
        };
        assert_eq!(
            table(std::slice::from_ref(&entry), true),
            "NODE  ID  TIME                  USER   LOGIN  FROM               ACTION                            RESULT\n\
             san2  7   2027-01-15 08:00:00Z  alice  -      through node san1  POST /v1/pools/old/export?node=2  409 pool_in_use\n"
        );
        assert!(table(&[entry], false).starts_with("ID  TIME "));
        assert_eq!(table(&[], true), "No entries.\n");
    }
}
