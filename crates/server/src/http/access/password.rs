//! Hashes and checks passwords, without taking noticeable time from the data path.
//!
//! Argon2id takes much memory and time on purpose. So one thread runs it, at the lowest priority, with a
//! short queue: when the queue is full, callers are told to try again. However many attempts arrive, hosts
//! lose at most what one idle-priority thread takes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::oneshot;

use crate::priority;

/// The second of OWASP's recommendations for Argon2id: 19 MiB, two passes, one lane; some 20 ms.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Passwords in the queue: work for at most a second, and 64 times 256 bytes.
const WAITING_MAX: usize = 64;

/// Checks and hashes passwords. Cheap to clone.
#[derive(Clone)]
pub(in crate::http) struct Passwords {
    work: SyncSender<Work>,
    /// The hash to check against if there is no such user, so that the answer takes as long.
    nobodys: Arc<str>,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct TooMany;

enum Work {
    Hash { password: String, answer: oneshot::Sender<String> },
    Check { password: String, kept: Arc<str>, answer: oneshot::Sender<bool> },
}

impl Passwords {
    /// Starts the thread, which ends when the last clone is dropped.
    pub(in crate::http) fn start() -> io::Result<Passwords> {
        let (work, waiting) = sync_channel(WAITING_MAX);
        std::thread::Builder::new().name("passwords".into()).spawn(move || run(&waiting))?;
        Ok(Passwords { work, nobodys: hash(&super::secret::draw()).into() })
    }

    pub(in crate::http) async fn hash(&self, password: String) -> Result<String, TooMany> {
        let (answer, hashed) = oneshot::channel();
        self.give(Work::Hash { password, answer })?;
        hashed.await.map_err(|_| TooMany)
    }

    /// Whether `kept` is a hash of the password. `None` stands for a user that does not exist: the check
    /// takes as long and fails.
    pub(in crate::http) async fn check(
        &self,
        password: String,
        kept: Option<String>,
    ) -> Result<bool, TooMany> {
        let (answer, checked) = oneshot::channel();
        let somebodys = kept.is_some();
        let kept = kept.map_or_else(|| Arc::clone(&self.nobodys), Arc::from);
        self.give(Work::Check { password, kept, answer })?;
        Ok(checked.await.map_err(|_| TooMany)? && somebodys)
    }

    fn give(&self, work: Work) -> Result<(), TooMany> {
        self.work.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => TooMany,
        })
    }
}

fn run(waiting: &Receiver<Work>) {
    priority::lower("the thread for passwords");
    for work in waiting {
        match work {
            // If the caller has given up, the work is not worth the time.
            Work::Hash { password, answer } if !answer.is_closed() => {
                let _ = answer.send(hash(&password));
            }
            Work::Check { password, kept, answer } if !answer.is_closed() => {
                let _ = answer.send(is_of(&password, &kept));
            }
            Work::Hash { .. } | Work::Check { .. } => {}
        }
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).expect("within Argon2's limits");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

fn hash(password: &str) -> String {
    argon2()
        .hash_password(password.as_bytes())
        .expect("the system gives salt, and any password has a hash")
        .to_string()
}

fn is_of(password: &str, kept: &str) -> bool {
    let kept = PasswordHash::new(kept);
    kept.is_ok_and(|kept| argon2().verify_password(password.as_bytes(), &kept).is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_password_is_known_again_and_cannot_be_read() {
        let passwords = Passwords::start().unwrap();
        runtime().block_on(async {
            let kept = passwords.hash("correct horse".into()).await.unwrap();
            assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
            assert_ne!(kept, passwords.hash("correct horse".into()).await.unwrap(), "it has salt");
            assert_eq!(passwords.check("correct horse".into(), Some(kept.clone())).await, Ok(true));
            assert_eq!(passwords.check("correct horsE".into(), Some(kept)).await, Ok(false));
            assert_eq!(passwords.check("x".into(), Some("nonsense".into())).await, Ok(false));
        });
    }

    #[test]
    fn an_unknown_user_takes_as_long_as_a_known_one() {
        let passwords = Passwords::start().unwrap();
        runtime().block_on(async {
            let kept = passwords.hash("correct horse".into()).await.unwrap();
            let time = async |kept: Option<String>| {
                let began = Instant::now();
                assert_eq!(passwords.check("wrong".into(), kept).await, Ok(false));
                began.elapsed().as_secs_f64()
            };
            // Alternating, and the fastest of each: a busy machine makes some of them slow.
            let (mut somebody, mut nobody) = (f64::MAX, f64::MAX);
            for _ in 0..10 {
                somebody = somebody.min(time(Some(kept.clone())).await);
                nobody = nobody.min(time(None).await);
            }
            assert!((0.2..5.0).contains(&(nobody / somebody)), "{nobody} s and {somebody} s");
        });
    }

    #[test]
    fn a_login_is_refused_at_once_when_many_wait() {
        let passwords = Passwords::start().unwrap();
        runtime().block_on(async {
            let tries: Vec<_> = (0..1000)
                .map(|_| {
                    let passwords = passwords.clone();
                    tokio::spawn(async move { passwords.check("wrong".into(), None).await })
                })
                .collect();
            let (mut checked, mut refused) = (0, 0);
            for one in tries {
                match one.await.unwrap() {
                    Ok(right) => {
                        assert!(!right);
                        checked += 1;
                    }
                    Err(TooMany) => refused += 1,
                }
            }
            assert_eq!(checked + refused, 1000);
            // The thread has taken one, beside those in the queue; more if it is fast.
            assert!(checked >= WAITING_MAX && refused > 500, "{checked} checked, {refused} refused");
        });
    }
}
