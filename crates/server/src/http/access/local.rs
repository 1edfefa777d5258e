//! This machine's local token: each start of the node draws a new one and leaves it in files that only the
//! user who runs the node can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::LocalCredential;

use super::secret::{Digested, draw};

/// The local token of this process.
pub(super) struct Local {
    token: String,
    kept: Digested,
}

/// The files with the local token, until this is dropped. Each is locked, which shows other nodes that it is
/// not stale.
pub struct Left(Vec<(PathBuf, File)>);

impl Local {
    pub(super) fn draw() -> Local {
        let token = format!("ursa-local-{}", draw());
        Local { kept: Digested::of(&token), token }
    }

    pub(super) fn is(&self, token: &str) -> bool {
        self.kept.is_of(token)
    }

    #[cfg(test)]
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Writes the token in a file for each address, in the first directory that can be used.
    pub(super) fn leave(&self, addresses: &[SocketAddr], certificate: Option<String>) -> Left {
        let credential = LocalCredential { token: self.token.clone(), certificate, locked: true };
        let mut left = Left(Vec::new());
        let mut failed = None;
        for directory in directories() {
            let owned = own(&directory).inspect(|()| remove_stale(&directory));
            match owned.and_then(|()| write_all(&directory, addresses, &credential, &mut left)) {
                Ok(()) => return left,
                Err(error) => failed = Some((directory, error)),
            }
        }
        if let Some((directory, error)) = failed {
            tracing::warn!(directory = %directory.display(), %error, "cannot write this machine's local token: `ursa` needs a token here");
        }
        left
    }
}

/// The directories to try. The one that systemd provides for a service comes first.
fn directories() -> Vec<PathBuf> {
    let given = std::env::var_os("RUNTIME_DIRECTORY").filter(|path| !path.is_empty()).map(PathBuf::from);
    given.into_iter().chain(LocalCredential::directories()).collect()
}

/// Creates the directory, or checks that it belongs to this user and that others cannot write to it.
fn own(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let found = fs::symlink_metadata(directory)?;
    let mine = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && mine && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user, or others can write to it",
        ))
    }
}

/// Removes the files of nodes that were killed: such a file says that it is locked, but no process holds the
/// lock.
fn remove_stale(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_named = path
            .file_name()
            .is_some_and(|name| name.to_str().is_some_and(|name| name.parse::<SocketAddr>().is_ok()));
        if is_named && is_stale(&path).unwrap_or(false) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_stale(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let credential: LocalCredential = serde_json::from_reader(&file)?;
    if !credential.locked || !lock(&file) {
        return Ok(false);
    }
    // Meanwhile a node that starts may have put its own file in this place.
    let (held, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((held.dev(), held.ino()) == (there.dev(), there.ino()))
}

/// Locks the file; false if another process holds the lock.
fn lock(file: &File) -> bool {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn write_all(
    directory: &Path,
    addresses: &[SocketAddr],
    credential: &LocalCredential,
    left: &mut Left,
) -> io::Result<()> {
    let text = serde_json::to_string(credential)?;
    for address in addresses {
        let path = directory.join(LocalCredential::file_name(*address));
        let new = directory.join(format!("{}.new", LocalCredential::file_name(*address)));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        lock(&file);
        fs::rename(&new, &path)?;
        left.0.push((path, file));
    }
    Ok(())
}

impl Drop for Left {
    fn drop(&mut self) {
        for (path, _) in &self.0 {
            // A node that uses the address now may have written its own file here; that one is removed, too.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_are_their_owners_alone_and_go_again() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, local) = (dir.path().join("ursa"), Local::draw());
        own(&directory).unwrap();
        let credential = LocalCredential { token: local.token.clone(), certificate: None, locked: true };
        let mut left = Left(Vec::new());
        let address: SocketAddr = "127.0.0.1:3280".parse().unwrap();
        write_all(&directory, &[address], &credential, &mut left).unwrap();
        let path = directory.join("127.0.0.1:3280");
        let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, 0o600);
        let read: LocalCredential = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(local.is(&read.token) && !local.is("ursa-local-"));
        drop(left);
        assert!(!path.exists());
    }

    #[test]
    fn leftovers_of_a_killed_node_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path();
        let leave = |address: &str, locked| {
            let credential = LocalCredential { token: "secret".into(), certificate: None, locked };
            let mut left = Left(Vec::new());
            write_all(directory, &[address.parse().unwrap()], &credential, &mut left).unwrap();
            left
        };
        let kill = |mut left: Left| drop(std::mem::take(&mut left.0));
        let running = leave("127.0.0.1:3280", true);
        kill(leave("127.0.0.1:3281", true));
        kill(leave("[::1]:3281", true));
        // By a version that locks nothing.
        kill(leave("127.0.0.1:3282", false));
        fs::write(directory.join("127.0.0.1:3283"), "what is this?").unwrap();
        fs::create_dir(directory.join("iqn.2026-01.org.ursa:db-0")).unwrap();
        remove_stale(directory);
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let kept = ["127.0.0.1:3280", "127.0.0.1:3282", "127.0.0.1:3283", "iqn.2026-01.org.ursa:db-0"];
        assert_eq!(names, kept);
        drop(running);
        assert!(!directory.join("127.0.0.1:3280").exists());
    }

    #[test]
    fn a_directory_of_others_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        own(&open).unwrap_err();
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        own(&link).unwrap_err();
    }
}
