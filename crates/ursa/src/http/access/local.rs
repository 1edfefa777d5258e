//! This machine's credential: drawn at the start, in a file that only the user who runs the node can read, gone with the process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::LocalCredential;

use super::secret::{Digested, draw};

/// The credential of this process.
pub(super) struct Local {
    token: String,
    kept: Digested,
}

/// The files that have it, until this is dropped.
pub struct Left(Vec<PathBuf>);

impl Local {
    /// A new one.
    pub(super) fn draw() -> Local {
        let token = format!("ursa-local-{}", draw());
        Local { kept: Digested::of(&token), token }
    }

    /// Whether it is this.
    pub(super) fn is(&self, token: &str) -> bool {
        self.kept.is_of(token)
    }

    #[cfg(test)]
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Writes it for each address, to the first directory that can be had.
    pub(super) fn leave(&self, addresses: &[SocketAddr], certificate: Option<String>) -> Left {
        let credential = LocalCredential { token: self.token.clone(), certificate };
        let mut left = Left(Vec::new());
        let mut failed = None;
        for directory in directories() {
            match own(&directory).and_then(|()| write_all(&directory, addresses, &credential, &mut left)) {
                Ok(()) => return left,
                Err(error) => failed = Some((directory, error)),
            }
        }
        if let Some((directory, error)) = failed {
            tracing::warn!(directory = %directory.display(), %error, "the credential for this machine's command line cannot be written: `ursa` needs a token here");
        }
        left
    }
}

/// What systemd gives a service comes first.
fn directories() -> Vec<PathBuf> {
    let given = std::env::var_os("RUNTIME_DIRECTORY").filter(|path| !path.is_empty()).map(PathBuf::from);
    given.into_iter().chain(LocalCredential::directories()).collect()
}

/// Makes the directory, or sees to it that it is nobody else's.
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
            "it belongs to somebody else, or others may write to it",
        ))
    }
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
        fs::rename(&new, &path)?;
        left.0.push(path);
    }
    Ok(())
}

impl Drop for Left {
    fn drop(&mut self) {
        for path in &self.0 {
            // Whoever has the address now may have written its own.
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
        let credential = LocalCredential { token: local.token.clone(), certificate: None };
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
