//! Executes a transaction in etcd exactly once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::gateway::{Failed, Refused, number};
use super::health::Wrong;
use super::layout::{COMMITTED, CONFLICTED, Last, VERSION, base64};
use crate::error::Error;
use crate::transaction::{Outcome, Revision, Transaction};

/// How long etcd keeps the results of one lease at most: two hours.
const LEASE_SECONDS: u64 = 7200;
/// The age at which a new lease replaces the current one. So each result is kept for at least an hour, sixty
/// times as long as a call may take.
const LEASE_AGE_MAX: Duration = Duration::from_secs(3600);
const _: () = assert!(LEASE_SECONDS >= 2 * LEASE_AGE_MAX.as_secs(), "a result outlives its call by far");

/// The lease that results are attached to; they expire with it.
pub(super) struct Lease {
    id: String,
    granted: Instant,
}

impl Shared {
    pub(super) fn carry_out(&self, transaction: &Transaction, until: Instant) -> Result<Outcome, Error> {
        loop {
            // In a record other than the one that this node knows, preconditions could hold by chance.
            if self.health().wrong.is_some() {
                return Err(Error::WrongEtcd);
            }
            // Without a lease nothing was done.
            let lease = self.lease(until).map_err(|_| Error::Etcd)?;
            let seen = self.following().seen;
            let body = self.body(transaction, &lease, seen.last);
            let answer = match self.gateway.ask("kv/txn", &body, until) {
                Ok(answer) => answer,
                Err(Failed::Refused(Refused::Lease)) => {
                    *self.lease.lock().expect("no code panics while it holds the lease") = None;
                    if Instant::now() >= until {
                        return Err(Error::Etcd);
                    }
                    continue;
                }
                Err(Failed::Refused(Refused::Full)) => return Err(Error::Full),
                Err(Failed::Unreached | Failed::Refused(_)) => return Err(Error::Etcd),
                Err(Failed::Unknown) => return Err(Error::OutcomeUnknown),
            };
            let revision = number(&answer["header"]["revision"]);
            let response = &answer["responses"][0];
            if answer["succeeded"] != true {
                self.judge(seen, &answer["header"], &answer["responses"][1]["response_range"])?;
                // It was executed before.
                let result = &response["response_range"]["kvs"][0];
                let committed = result["value"] == base64(COMMITTED.as_bytes());
                let revision = Revision(number(&result["create_revision"]));
                return if committed {
                    Ok(Outcome::Committed(revision))
                } else {
                    self.conflict(transaction, until)
                };
            }
            // The comparison cannot name the etcd: the transaction may have taken effect in another one.
            if seen.is_elsewhere(&answer["header"]) {
                self.found(Some(Wrong::Another));
                return Err(Error::OutcomeUnknown);
            }
            let inner = &response["response_txn"];
            if inner["succeeded"] == true {
                return Ok(Outcome::Committed(Revision(revision)));
            }
            let found =
                inner["responses"].as_array().map(|all| all.iter().skip(1).collect()).unwrap_or_default();
            return Ok(mismatch(transaction, found));
        }
    }

    /// The request for a transaction, nested in a check of the record.
    ///
    /// If the record exists, is not older than `seen`, and has no result of this transaction yet: write the
    /// values and the result if the preconditions hold, otherwise write the other result and read what was
    /// found.
    fn body(&self, transaction: &Transaction, lease: &str, seen: Last) -> Value {
        let (result, version) = (self.layout.result(transaction.op_id), self.layout.version());
        let before = |count: u64| count.saturating_sub(1).to_string();
        let put_result = |value: &str| json!({ "request_put": { "key": result, "value": base64(value.as_bytes()), "lease": lease } });
        let compare: Vec<Value> = transaction
            .preconditions
            .iter()
            .map(|(key, revision)| match revision {
                Some(revision) => json!({ "key": self.layout.key(key), "target": "MOD", "mod_revision": revision.0.to_string() }),
                None => json!({ "key": self.layout.key(key), "target": "CREATE", "create_revision": "0" }),
            })
            .collect();
        let writes = transaction.writes.iter().map(|(key, value)| match value {
            Some(value) => json!({ "request_put": { "key": self.layout.key(key), "value": base64(value) } }),
            None => json!({ "request_delete_range": { "key": self.layout.key(key) } }),
        });
        let value = base64(VERSION.as_bytes());
        let put_version = json!({ "request_put": { "key": version, "value": value } });
        let success: Vec<Value> = [put_result(COMMITTED), put_version].into_iter().chain(writes).collect();
        let failure: Vec<Value> =
            std::iter::once(put_result(CONFLICTED)).chain(self.reads(transaction)).collect();
        let inner = json!({ "compare": compare, "success": success, "failure": failure });
        json!({
            "compare": [
                { "key": result, "target": "CREATE", "create_revision": "0" },
                { "key": version, "target": "VALUE", "value": value },
                { "key": version, "target": "VERSION", "result": "GREATER", "version": before(seen.count) },
                { "key": version, "target": "MOD", "result": "GREATER", "mod_revision": before(seen.revision.0) },
            ],
            "success": [{ "request_txn": inner }],
            "failure": [{ "request_range": { "key": result } }, { "request_range": { "key": version } }],
        })
    }

    fn reads(&self, transaction: &Transaction) -> impl Iterator<Item = Value> {
        let keys = transaction.preconditions.iter().map(|(key, _)| self.layout.key(key));
        keys.map(|key| json!({ "request_range": { "key": key, "keys_only": true } }))
    }

    /// What is there now, for a transaction that conflicted before.
    fn conflict(&self, transaction: &Transaction, until: Instant) -> Result<Outcome, Error> {
        let reads: Vec<Value> = self.reads(transaction).collect();
        let found = self.gateway.ask("kv/txn", &json!({ "success": reads }), until);
        // The transaction certainly had no effect; only what it conflicted with is unknown.
        let found = found.map_err(|_| Error::Etcd)?;
        Ok(mismatch(
            transaction,
            found["responses"].as_array().map(|all| all.iter().collect()).unwrap_or_default(),
        ))
    }

    /// The lease for new results.
    fn lease(&self, until: Instant) -> Result<String, Failed> {
        let held = || self.lease.lock().expect("no code panics while it holds the lease");
        if let Some(lease) = held().as_ref().filter(|lease| lease.granted.elapsed() < LEASE_AGE_MAX) {
            return Ok(lease.id.clone());
        }
        // The lock is not held during the request, because each call has its own deadline. It does no harm if
        // two leases are granted at the same time.
        let granted = Instant::now();
        let answer = self.gateway.ask("lease/grant", &json!({ "TTL": LEASE_SECONDS.to_string() }), until)?;
        let id = answer["ID"].as_str().ok_or(Failed::Unknown)?.to_owned();
        *held() = Some(Lease { id: id.clone(), granted });
        Ok(id)
    }
}

/// The first precondition that does not hold, according to what was `found` at the keys. If all hold by now,
/// the first one.
fn mismatch(transaction: &Transaction, found: Vec<&Value>) -> Outcome {
    let found: Vec<Option<Revision>> = (0..transaction.preconditions.len())
        .map(|at| {
            let kv = &found.get(at).copied().unwrap_or(&Value::Null)["response_range"]["kvs"][0];
            Some(Revision(number(&kv["mod_revision"]))).filter(|revision| revision.0 > 0)
        })
        .collect();
    let all = transaction.preconditions.iter().zip(&found);
    let first =
        all.clone().find(|((_, expected), found)| *expected != **found).or_else(|| all.clone().next());
    let (key, found) = first.map(|((key, _), found)| (key.clone(), *found)).unwrap_or_default();
    Outcome::Conflict { key, found }
}
