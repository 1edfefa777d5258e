//! Where the link goes with which the first user is created.
//!
//! Whoever has the link becomes an administrator, so it must not reach a log. Under a service manager,
//! standard output is a log, which more people read than those who run the node. So the link goes to a
//! terminal, or to a file for the owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file in the data directory.
const FILE: &str = "setup-link";

/// Where the links are.
#[derive(Debug, PartialEq, Eq)]
pub enum SetUpLink {
    /// There are no links: a user exists.
    None,
    /// On the terminal: the links themselves, one per address of the API.
    Shown(Vec<String>),
    /// In this file.
    Kept(PathBuf),
    /// They could not be written. Users are created on the command line.
    Lost,
}

impl SetUpLink {
    /// Writes the links to where they may go; removes the file of an earlier start.
    pub fn place(links: Vec<String>, data_dir: &Path) -> SetUpLink {
        SetUpLink::place_beside(links, data_dir, io::stdout().is_terminal())
    }

    fn place_beside(links: Vec<String>, data_dir: &Path, is_terminal: bool) -> SetUpLink {
        let path = data_dir.join(FILE);
        if let Err(error) = remove(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove an old setup link");
        }
        if links.is_empty() {
            return SetUpLink::None;
        }
        if is_terminal {
            return SetUpLink::Shown(links);
        }
        match write(&path, &links) {
            Ok(()) => SetUpLink::Kept(path),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot write the setup link");
                SetUpLink::Lost
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Creates the file as a new one, so that no other process has it open.
fn write(path: &Path, links: &[String]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    links.iter().try_for_each(|link| writeln!(file, "{link}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_links_are_readable_by_the_owner_only_and_removed_once_a_user_exists() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("setup-link");
        for token in ["old", "new"] {
            let links = vec![format!("http://a/#/setup?token={token}")];
            let placed = SetUpLink::place_beside(links.clone(), dir.path(), true);
            assert_eq!((placed, path.exists()), (SetUpLink::Shown(links.clone()), false));
            let placed = SetUpLink::place_beside(links, dir.path(), false);
            assert_eq!(placed, SetUpLink::Kept(path.clone()));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("http://a/#/setup?token={token}\n"));
        }
        assert_eq!(SetUpLink::place_beside(Vec::new(), dir.path(), false), SetUpLink::None);
        assert!(!path.exists());
    }
}
