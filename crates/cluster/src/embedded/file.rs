//! The state that an engine keeps, in one SQLite file; see `docs/formats/cluster.md`. One batch is one
//! transaction, which is durable when the call returns.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, params};
use thiserror::Error;

use super::entry;
use super::promise::Promise;
use super::saved::{Batch, Identity, Position, Saved, Unforceable, Vote};
use crate::codec::{Reader, Writer};
use crate::members::Members;
use crate::node_id::NodeId;
use crate::record::{Record, Remembered, Remembrance};
use crate::stall::Stall;
use crate::transaction::{Revision, Versioned};
use crate::watch::Everything;

/// `URSC`, in SQLite's header.
const APPLICATION_ID: i32 = 0x5552_5343;
const FORMAT: i32 = 1;
/// The free space that must be available before a file is used again after a failed write: enough for a
/// transaction of the largest size, or thousands of small ones.
const ROOM_BYTES: usize = 1 << 20;
/// How long another process, which is just ending, may hold the file when it is opened.
const BUSY: Duration = Duration::from_secs(5);

/// SQLite has no checksums. Only the values in two tables are worth one of their own; for the others a check
/// that each row makes sense is enough.
const TABLES: &str = "
    CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        cluster BLOB NOT NULL, generation INTEGER NOT NULL, node INTEGER NOT NULL,
        term INTEGER NOT NULL, vote INTEGER NOT NULL, commit_index INTEGER NOT NULL,
        compacted_index INTEGER NOT NULL, compacted_term INTEGER NOT NULL,
        applied INTEGER NOT NULL, revision INTEGER NOT NULL, sequence INTEGER NOT NULL, set_back INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE members (node INTEGER PRIMARY KEY, role INTEGER NOT NULL) STRICT;
    CREATE TABLE promises (node INTEGER PRIMARY KEY, promise BLOB NOT NULL) STRICT;
    CREATE TABLE log (
        position INTEGER PRIMARY KEY, term INTEGER NOT NULL, kind INTEGER NOT NULL, content BLOB NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE record (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL, crc INTEGER NOT NULL)
        STRICT, WITHOUT ROWID;
    CREATE TABLE results (
        sequence INTEGER PRIMARY KEY, op_id BLOB NOT NULL, kind INTEGER NOT NULL, precondition INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT;
";
const VOTER: i64 = 1;
const LEARNER: i64 = 2;
const GONE: i64 = 3;

/// The open file. No other process can open it meanwhile.
pub struct File {
    connection: Connection,
    path: PathBuf,
}

/// Why the file cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum FileError {
    #[error("{0} already exists: a node can be created or added only once")]
    Exists(PathBuf),
    #[error("{0} is not a cluster's record, or has a version that this version of Ursa does not know")]
    Foreign(PathBuf),
    #[error("{0} is in use: is another `ursa serve` running on this data directory?")]
    InUse(PathBuf),
    #[error(
        "{path} is damaged ({what}): remove this node from the cluster and add it again under a new number"
    )]
    Damaged { path: PathBuf, what: &'static str },
    #[error("{path}: {doing}")]
    Sqlite { path: PathBuf, doing: &'static str, source: rusqlite::Error },
    #[error("{path} cannot be written")]
    Writing { path: PathBuf, source: std::io::Error },
    #[error("{path} cannot be created")]
    Making { path: PathBuf, source: std::io::Error },
}

/// Why a node was not made a new cluster.
#[derive(Debug, Error)]
pub enum ForceError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of its file does not allow it.
    #[error(transparent)]
    Unforceable(#[from] Unforceable),
}

impl File {
    /// Creates the file of a node that starts with `saved`. After a crash the file is complete or does not
    /// exist.
    pub fn create(path: &Path, saved: &Saved) -> Result<File, FileError> {
        if path.exists() {
            return Err(FileError::Exists(path.to_owned()));
        }
        let failed = |source| FileError::Making { path: path.to_owned(), source };
        let unfinished = beside(path, ".new");
        for old in [unfinished.clone(), beside(&unfinished, "-wal"), beside(&unfinished, "-journal")] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        // The file will contain secrets of hosts. SQLite gives its write-ahead log the same mode.
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished).map_err(failed)?;
        let mut file = File::connect(&unfinished)?;
        file.replace(saved, true)?;
        // Closing moves the content of the write-ahead log into the file and deletes the log.
        file.connection.close().map_err(|(_, source)| error(path, "closing the new file", source))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::rename(&unfinished, path).map_err(failed)?;
        fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        File::connect(path)
    }

    /// Opens the file, and reads all of it.
    pub fn open(path: &Path) -> Result<(File, Saved), FileError> {
        let file = File::connect(path)?;
        let sqlite = |source| file.error("reading", source);
        let pragma = |name| file.connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        if pragma("application_id").map_err(sqlite)? != APPLICATION_ID
            || pragma("user_version").map_err(sqlite)? != FORMAT
        {
            return Err(FileError::Foreign(path.to_owned()));
        }
        let saved = file.read()?;
        Ok((file, saved))
    }

    /// Opens a file again after a failed write, once its user has called [`File::abandon`].
    ///
    /// After a failed flush, the kernel marks pages as clean that never reached the disk, and the next flush
    /// succeeds. So everything that the files contain according to the kernel is written once more, in place,
    /// and flushed, before it is used: first the write-ahead log, from which SQLite repairs whatever a power
    /// cut leaves of the main file.
    pub fn reopen(path: &Path) -> Result<(File, Saved), FileError> {
        let again = |source| FileError::Writing { path: path.to_owned(), source };
        find_room(path).map_err(again)?;
        write_again(&beside(path, "-wal")).map_err(again)?;
        write_again(path).map_err(again)?;
        File::open(path)
    }

    /// Closes a file after a failed write, without changing it.
    ///
    /// Otherwise SQLite would copy its write-ahead log into it, although the log may not be on the disk.
    pub fn abandon(self) {
        let kept = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if let Err(error) = kept {
            tracing::warn!(%error, "the cluster's record is closed with a checkpoint");
        }
    }

    /// Makes `batch` durable as a whole, or not at all.
    ///
    /// After an error it is unknown which; the file must be opened again with [`File::reopen`].
    pub fn write(&mut self, batch: &Batch) -> Result<(), FileError> {
        let written = write(&mut self.connection, batch);
        written.map_err(|source| self.error("writing a batch", source))
    }

    /// Makes a node the only voter of a new generation of its cluster; see [`Saved::force_new_cluster`].
    ///
    /// The node, whose file is at `path`, must not be running. The caller must know that the other voters are
    /// gone for good: the two generations know nothing of each other.
    pub fn force_new_cluster(path: &Path) -> Result<Identity, ForceError> {
        let (mut file, mut saved) = File::open(path)?;
        let before = saved.members.clone();
        saved.force_new_cluster()?;
        file.replace(&saved, false)?;
        let Identity { node, generation, .. } = saved.identity;
        tracing::warn!(
            %node,
            generation,
            voters = ?before.voters,
            learners = ?before.learners,
            "this node was forced into a new cluster of its own; the nodes of the old one are removed"
        );
        Ok(saved.identity)
    }

    fn connect(path: &Path) -> Result<File, FileError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |doing| move |source| error(path, doing, source);
        let connection = Connection::open_with_flags(path, flags).map_err(failed("opening"))?;
        connection.busy_timeout(BUSY).map_err(failed("opening"))?;
        // One process only, and no shared-memory file. Each commit is one write and one flush of the
        // write-ahead log.
        let settings =
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;";
        connection.execute_batch(settings).map_err(failed("opening"))?;
        // SQLite takes the lock with the first write.
        connection.execute_batch("BEGIN IMMEDIATE; COMMIT").map_err(failed("opening"))?;
        let mode: String = connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .map_err(failed("opening"))?;
        if mode != "wal" {
            return Err(FileError::Foreign(path.to_owned()));
        }
        Ok(File { connection, path: path.to_owned() })
    }

    fn error(&self, doing: &'static str, source: rusqlite::Error) -> FileError {
        error(&self.path, doing, source)
    }

    fn replace(&mut self, saved: &Saved, new: bool) -> Result<(), FileError> {
        let replaced = replace(&mut self.connection, saved, new);
        replaced.map_err(|source| self.error("writing the record", source))
    }

    fn read(&self) -> Result<Saved, FileError> {
        let sqlite = |source| self.error("reading", source);
        let damaged = |what| FileError::Damaged { path: self.path.clone(), what };
        let rows = |sql: &str, mut each: RowReader<'_>| {
            let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
            let mut rows = statement.query([]).map_err(sqlite)?;
            while let Some(row) = rows.next().map_err(sqlite)? {
                each(row).map_err(sqlite)?.ok_or_else(|| damaged("an invalid row"))?;
            }
            Ok(())
        };

        let mut members = Members::default();
        rows(
            "SELECT node, role FROM members",
            Box::new(|row| {
                let node = u16::try_from(row.get::<_, i64>(0)?).ok().and_then(NodeId::new);
                let nodes = match row.get::<_, i64>(1)? {
                    VOTER => &mut members.voters,
                    LEARNER => &mut members.learners,
                    GONE => &mut members.gone,
                    _ => return Ok(None),
                };
                Ok(node.map(|node| nodes.insert(node)).map(drop))
            }),
        )?;
        let mut promises = BTreeMap::new();
        rows(
            "SELECT node, promise FROM promises",
            Box::new(|row| {
                let node = u16::try_from(row.get::<_, i64>(0)?).ok().and_then(NodeId::new);
                let promise = Promise::decode(&mut Reader::new(row.get_ref(1)?.as_blob()?)).ok();
                Ok(node.zip(promise).map(|(node, promise)| promises.insert(node, promise)).map(drop))
            }),
        )?;
        let mut entries = Vec::new();
        rows(
            "SELECT position, term, kind, content, crc FROM log ORDER BY position",
            Box::new(|row| {
                let (index, term) = (number(row, 0)?, number(row, 1)?);
                let content = row.get_ref(3)?.as_blob()?;
                if row.get::<_, i64>(4)? != i64::from(base::crc32c(content)) {
                    return Ok(None);
                }
                let kind = u8::try_from(row.get::<_, i64>(2)?).ok();
                let entry = kind.and_then(|kind| entry::from_parts(index, term, kind, content).ok());
                Ok(entry.map(|entry| entries.push(entry)))
            }),
        )?;
        let mut keys = BTreeMap::new();
        rows(
            "SELECT key, revision, value, crc FROM record",
            Box::new(|row| {
                let (key, revision) = (row.get::<_, String>(0)?, Revision(number(row, 1)?));
                let value = row.get_ref(2)?.as_blob()?;
                if row.get::<_, i64>(3)? != i64::from(sum(&key, value)) {
                    return Ok(None);
                }
                keys.insert(key, Versioned { value: value.into(), revision });
                Ok(Some(()))
            }),
        )?;
        let mut results = Vec::new();
        rows(
            "SELECT sequence, op_id, kind, precondition, revision FROM results ORDER BY sequence",
            Box::new(|row| {
                let sequence = number(row, 0)?;
                let op_id = <[u8; 16]>::try_from(row.get_ref(1)?.as_blob()?).ok().map(u128::from_le_bytes);
                let kind = u8::try_from(row.get::<_, i64>(2)?).ok();
                let precondition = u16::try_from(row.get::<_, i64>(3)?).ok();
                let revision = number(row, 4)?;
                let result = kind.zip(precondition);
                let result = result.and_then(|(kind, at)| Remembrance::of_parts(kind, at, revision).ok());
                let both = op_id.zip(result);
                Ok(both.map(|(op_id, result)| results.push(Remembered { sequence, op_id, result })))
            }),
        )?;
        let mut saved = None;
        rows(
            "SELECT cluster, generation, node, term, vote, commit_index, compacted_index, compacted_term, applied, revision, sequence,
                set_back FROM state",
            Box::new(|row| {
                let cluster = <[u8; 16]>::try_from(row.get_ref(0)?.as_blob()?).ok().map(u128::from_le_bytes);
                let node = u16::try_from(row.get::<_, i64>(2)?).ok().and_then(NodeId::new);
                let Some((cluster, node)) = cluster.zip(node) else { return Ok(None) };
                let now =
                    Everything { revision: Revision(number(row, 9)?), entries: std::mem::take(&mut keys) };
                saved = Some(Saved {
                    identity: Identity { cluster, generation: number(row, 1)?, node },
                    vote: Vote { term: number(row, 3)?, vote: number(row, 4)?, commit: number(row, 5)? },
                    compacted: Position { index: number(row, 6)?, term: number(row, 7)? },
                    entries: std::mem::take(&mut entries).into(),
                    applied: number(row, 8)?,
                    members: std::mem::take(&mut members),
                    record: Record::from_parts(now, number(row, 10)?, std::mem::take(&mut results)),
                    promises: std::mem::take(&mut promises),
                    set_back: row.get::<_, i64>(11)? != 0,
                });
                Ok(Some(()))
            }),
        )?;
        let saved = saved.ok_or_else(|| damaged("its state is missing"))?;
        saved.verify().map_err(damaged)?;
        Ok(saved)
    }
}

impl FileError {
    /// What the error means for this node's part in the record.
    pub fn stall(&self) -> Stall {
        match self {
            FileError::Sqlite { source, .. } if source.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                Stall::NoSpace
            }
            FileError::Making { source, .. } | FileError::Writing { source, .. }
                if matches!(
                    source.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                ) =>
            {
                Stall::NoSpace
            }
            _ => Stall::Disk,
        }
    }
}

/// Fails unless there is free space for a while of changes: otherwise a file that has just been reopened
/// would fail with its next change.
fn find_room(path: &Path) -> std::io::Result<()> {
    let probe = beside(path, ".probe");
    let written = fs::File::create(&probe)
        .and_then(|mut file| file.write_all(&vec![0; ROOM_BYTES]).and_then(|()| file.sync_all()));
    match fs::remove_file(&probe) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => written.and(Err(error)),
        _ => written,
    }
}

/// Writes the content of a file once more, in place, and durably. A missing file has no content.
fn write_again(path: &Path) -> std::io::Result<()> {
    const PIECE: usize = 1 << 20;
    let file = match fs::OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        let len = file.read_at(&mut piece, at)?;
        if len == 0 {
            return file.sync_all();
        }
        file.write_all_at(&piece[..len], at)?;
        at += len as u64;
    }
}

fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    name.into()
}

/// Reads a row; `None`: the row makes no sense.
type RowReader<'a> = Box<dyn FnMut(&Row<'_>) -> rusqlite::Result<Option<()>> + 'a>;

fn error(path: &Path, doing: &'static str, source: rusqlite::Error) -> FileError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FileError::InUse(path),
        Some(ErrorCode::NotADatabase) => FileError::Foreign(path),
        Some(ErrorCode::DatabaseCorrupt) => FileError::Damaged { path, what: "SQLite cannot read it" },
        _ => FileError::Sqlite { path, doing, source },
    }
}

/// A column as an unsigned number. SQLite's integers are signed; ours never come near the difference, except
/// for votes in a corrupt file.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn sum(key: &str, value: &[u8]) -> u32 {
    base::crc32c(&[key.as_bytes(), &[0], value].concat())
}

fn write(connection: &mut Connection, batch: &Batch) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    if batch.replaced {
        transaction.execute_batch("DELETE FROM log; DELETE FROM record; DELETE FROM results")?;
    }
    let state = "UPDATE state SET term = ?1, vote = ?2, commit_index = ?3, compacted_index = ?4, compacted_term = ?5, applied = ?6,
        revision = ?7, sequence = ?8, set_back = ?9";
    let fields = [
        batch.vote.term,
        batch.vote.vote,
        batch.vote.commit,
        batch.compacted.index,
        batch.compacted.term,
        batch.applied,
        batch.revision.0,
        batch.sequence,
        batch.set_back.into(),
    ];
    transaction.prepare_cached(state)?.execute(fields.map(u64::cast_signed))?;
    if let Some(first) = batch.entries.first() {
        let mut truncate = transaction.prepare_cached("DELETE FROM log WHERE position >= ?1")?;
        truncate.execute([first.index.cast_signed()])?;
    }
    put_entries(&transaction, &batch.entries)?;
    let mut compact = transaction.prepare_cached("DELETE FROM log WHERE position <= ?1")?;
    compact.execute([batch.compacted.index.cast_signed()])?;
    drop(compact);
    if let Some(members) = &batch.members {
        put_members(&transaction, members)?;
    }
    if let Some(promises) = &batch.promises {
        put_promises(&transaction, promises)?;
    }
    for (key, value) in &batch.writes {
        match value {
            Some(value) => put_value(&transaction, key, value)?,
            None => {
                transaction.prepare_cached("DELETE FROM record WHERE key = ?1")?.execute([key])?;
            }
        }
    }
    put_results(&transaction, &batch.results)?;
    let mut forget = transaction.prepare_cached("DELETE FROM results WHERE sequence <= ?1")?;
    forget.execute([batch.forgotten.cast_signed()])?;
    drop(forget);
    transaction.commit()
}

fn replace(connection: &mut Connection, saved: &Saved, new: bool) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    if new {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    } else {
        let all = "DELETE FROM state; DELETE FROM log; DELETE FROM record; DELETE FROM results";
        transaction.execute_batch(all)?;
    }
    let identity = saved.identity;
    transaction.execute(
        "INSERT INTO state VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            identity.cluster.to_le_bytes(),
            identity.generation.cast_signed(),
            i64::from(identity.node.get()),
            saved.vote.term.cast_signed(),
            saved.vote.vote.cast_signed(),
            saved.vote.commit.cast_signed(),
            saved.compacted.index.cast_signed(),
            saved.compacted.term.cast_signed(),
            saved.applied.cast_signed(),
            saved.record.revision().0.cast_signed(),
            saved.record.sequence().cast_signed(),
            saved.set_back,
        ],
    )?;
    put_members(&transaction, &saved.members)?;
    put_promises(&transaction, &saved.promises)?;
    put_entries(&transaction, &saved.entries)?;
    for (key, value) in &saved.record.everything().entries {
        put_value(&transaction, key, value)?;
    }
    put_results(&transaction, saved.record.remembered())?;
    transaction.commit()
}

fn put_members(transaction: &Transaction<'_>, members: &Members) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM members", [])?;
    let mut put = transaction.prepare_cached("INSERT INTO members VALUES (?1, ?2)")?;
    for (nodes, role) in [(&members.voters, VOTER), (&members.learners, LEARNER), (&members.gone, GONE)] {
        for node in nodes {
            put.execute([i64::from(node.get()), role])?;
        }
    }
    Ok(())
}

fn put_promises(transaction: &Transaction<'_>, promises: &BTreeMap<NodeId, Promise>) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM promises", [])?;
    let mut put = transaction.prepare_cached("INSERT INTO promises VALUES (?1, ?2)")?;
    for (node, promise) in promises {
        let mut bytes = Writer::default();
        promise.encode(&mut bytes);
        put.execute(params![i64::from(node.get()), bytes.0])?;
    }
    Ok(())
}

fn put_entries<'a>(
    transaction: &Transaction<'_>,
    entries: impl IntoIterator<Item = &'a raft::eraftpb::Entry>,
) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached("INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for entry in entries {
        let (kind, content) = entry::to_parts(entry);
        let (index, term) = (entry.index.cast_signed(), entry.term.cast_signed());
        put.execute(params![index, term, kind, content, base::crc32c(content)])?;
    }
    Ok(())
}

fn put_value(transaction: &Transaction<'_>, key: &str, value: &Versioned) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3, ?4)")?;
    let crc = sum(key, &value.value);
    put.execute(params![key, value.revision.0.cast_signed(), &value.value[..], crc]).map(drop)
}

fn put_results<'a>(
    transaction: &Transaction<'_>,
    results: impl IntoIterator<Item = &'a Remembered>,
) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached("INSERT INTO results VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for it in results {
        let (kind, precondition, revision) = it.result.parts();
        let (sequence, op_id) = (it.sequence.cast_signed(), it.op_id.to_le_bytes());
        put.execute(params![sequence, op_id, kind, precondition, revision.cast_signed()])?;
    }
    Ok(())
}
