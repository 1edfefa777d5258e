//! Dry runs of pool changes: they read disks and write nothing.
//!
//! A disk may hang. So reading disks is also run as a change, for which callers wait with a deadline. It
//! holds nothing that others wait for.

use std::path::PathBuf;
use std::rc::Rc;

use store::{FoundPool, LookedAt, NewDisk, OpenPool, Pool};

use super::change::WaitsFor;
use super::doing::Doing;
use super::turns::NOTHING;
use super::{Control, ImportSpec, PoolSpec, Result};
use crate::attach::access::VolumeName;

/// A pool that could be imported.
#[derive(Clone, Debug)]
pub struct Importable {
    /// What it is.
    pub pool: FoundPool,
    /// The name that it would get.
    pub name: String,
    /// The other server that used it last and has not exported it.
    pub used_by: Option<String>,
}

impl Control {
    /// Checks whether a pool could be created; returns its disks and what they hold.
    ///
    /// # Errors
    /// As [`Control::create_pool`], except those that only the creation shows.
    pub async fn check_new_pool(self: &Rc<Control>, spec: PoolSpec) -> Result<Vec<LookedAt>> {
        let name: VolumeName = spec.name.parse()?;
        self.check_pool_is_new(name.as_str())?;
        let paths: Vec<PathBuf> = spec.disks.iter().map(|disk| disk.path.clone()).collect();
        self.change(Doing::LookAtDisks.of(&spec.name), NOTHING, |_, changing| async move {
            changing.waits_for(WaitsFor::Disks(paths));
            Ok(Pool::check_create(&spec.disks, name.as_str(), spec.wipe).await?)
        })
        .await
    }

    /// Checks whether a pool could be imported; returns what it is.
    /// # Errors
    /// As [`Control::import_pool`].
    pub async fn check_import(self: &Rc<Control>, import: ImportSpec) -> Result<Importable> {
        let ImportSpec { paths, name, force } = import;
        let name = name.map(|name| name.parse::<VolumeName>()).transpose()?;
        let options = OpenPool { force, ..self.opening_pool() };
        let disks = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let look = self.change(Doing::LookAtDisks.of(&disks), NOTHING, |_, changing| async move {
            changing.waits_for(WaitsFor::Disks(paths.clone()));
            Ok(Pool::check_open(&paths, &options).await?)
        });
        let pool = look.await?;
        let name = name.map_or_else(|| pool.contents.name.clone(), String::from);
        self.check_names(&pool, &name)?;
        let host = &pool.contents.host;
        let used_by = (!pool.contents.exported && host.id != self.host.id).then(|| host.name.clone());
        Ok(Importable { pool, name, used_by })
    }

    /// Checks whether a disk could be added to a pool; returns what the disk holds.
    ///
    /// # Errors
    /// As [`Control::add_disk`], except those that only adding the disk shows.
    pub async fn check_added_disk(
        self: &Rc<Control>,
        name: &str,
        disk: NewDisk,
        wipe: bool,
    ) -> Result<LookedAt> {
        self.pool_named(name)?.check_disk(&disk, None)?;
        let name = name.to_owned();
        self.change(Doing::LookAtDisks.of(&name), NOTHING, |control, changing| async move {
            changing.waits_for(WaitsFor::Disks(vec![disk.path.clone()]));
            // The pool is not held meanwhile: it could not be closed and opened again.
            let looked_at = Pool::look_at_disk(&disk, wipe).await?;
            control.pool_named(&name)?.check_disk(&disk, Some(looked_at.size))?;
            Ok(looked_at)
        })
        .await
    }
}
