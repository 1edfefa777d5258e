//! `ursa disk`.

use api::{BlockDevice, Client};
use clap::Subcommand;

use super::error::CliError;
use super::output::Output;
use super::table::{Table, size};

/// What to do with disks.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the block devices of a node and what uses them; `unused` ones can go into a pool as they are
    List {
        /// Number of another node [default: the queried node]
        #[arg(long, value_name = "NUMBER")]
        node: Option<u16>,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::List { node } => output.show(&client.disks(node)?, |disks| table(disks)),
        }
    }
}

fn table(disks: &[BlockDevice]) -> String {
    let mut table = Table::new(&["NAME", "SIZE", "USE", "MODEL", "PATH"]);
    for disk in disks {
        table.row([
            disk.name.clone(),
            size(disk.size),
            used(disk),
            disk.model.clone().unwrap_or_default(),
            disk.path.clone(),
        ]);
    }
    table.text("No block devices.")
}

/// What uses the disk, or what it contains.
fn used(disk: &BlockDevice) -> String {
    let BlockDevice { partitions, mounted_at, used_by, pool, holds, problem, unused, .. } = disk;
    let some =
        |what: &str, list: &[String]| (!list.is_empty()).then(|| format!("{what} {}", list.join(", ")));
    let uses: Vec<String> = [
        pool.as_ref().map(|pool| format!("pool {pool}")),
        some("mounted at", mounted_at),
        some("partitions", partitions),
        some("used by", used_by),
        unused.then(|| "unused".to_owned()),
        holds.as_ref().filter(|_| !unused).map(|holds| format!("holds {holds}")),
        problem.clone(),
    ]
    .into_iter()
    .flatten()
    .collect();
    uses.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_disk_is_shown() {
        let disk = |name: &str, change: fn(&mut BlockDevice)| {
            let mut disk = BlockDevice {
                path: format!("/dev/{name}"),
                name: name.into(),
                size: 1 << 30,
                ..BlockDevice::default()
            };
            change(&mut disk);
            disk
        };
        let disks = [
            disk("sda", |disk| disk.partitions = vec!["sda1".into()]),
            disk("sda1", |disk| disk.mounted_at = vec!["/".into()]),
            disk("sdb", |disk| {
                disk.unused = true;
                disk.holds = Some("nothing".into());
                disk.model = Some("DISK 9".into());
            }),
            disk("sdc", |disk| disk.pool = Some("main".into())),
            disk("sdd", |disk| disk.holds = Some("an ext file system".into())),
        ];
        let expected = "\
NAME  SIZE  USE                       MODEL   PATH
sda   1G    partitions sda1                   /dev/sda
sda1  1G    mounted at /                      /dev/sda1
sdb   1G    unused                    DISK 9  /dev/sdb
sdc   1G    pool main                         /dev/sdc
sdd   1G    holds an ext file system          /dev/sdd
";
        assert_eq!(table(&disks), expected);
    }
}
