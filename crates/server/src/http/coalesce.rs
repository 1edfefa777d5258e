//! A rate-limited question to core 0, shared by all callers.
//!
//! An answer is never older than its question: callers that arrive while the core is being asked share the
//! next answer.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last answer, and the interval between questions.
pub(super) struct Paced<T> {
    every: Duration,
    last: Mutex<Last<T>>,
}

struct Last<T> {
    /// When the question was asked.
    began: Option<Instant>,
    answer: Option<T>,
}

impl<T: Clone> Paced<T> {
    /// The core is asked at most once per `every`.
    pub(super) fn new(every: Duration) -> Paced<T> {
        Paced { every, last: Mutex::new(Last { began: None, answer: None }) }
    }

    /// The result of an `ask` that began after this call.
    pub(super) async fn get<E, F: Future<Output = Result<T, E>>>(
        &self,
        ask: impl FnOnce() -> F,
    ) -> Result<T, E> {
        let came = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(began) = last.began {
            if let Some(answer) = last.answer.as_ref().filter(|_| began > came) {
                return Ok(answer.clone());
            }
            tokio::time::sleep_until(began + self.every).await;
        }
        // The time is set first, so that failed and abandoned questions count, too.
        *last = Last { began: Some(Instant::now()), answer: None };
        let answer = ask().await?;
        last.answer = Some(answer.clone());
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const EVERY: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn many_ask_and_the_node_is_asked_now_and_then() {
        let (paced, asked) = (Rc::new(Paced::<u32>::new(EVERY)), Rc::new(Cell::new(0)));
        let local = tokio::task::LocalSet::new();
        let began = Instant::now();
        for _ in 0..100 {
            let (paced, asked) = (Rc::clone(&paced), Rc::clone(&asked));
            local.spawn_local(async move {
                for _ in 0..10 {
                    let before = asked.get();
                    let answer = paced.get(|| async {
                        asked.set(asked.get() + 1);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        Ok::<_, ()>(asked.get())
                    });
                    assert!(answer.await.unwrap() > before, "an answer from before the question");
                }
            });
        }
        local.await;
        let most = began.elapsed().as_millis() / EVERY.as_millis() + 1;
        assert!(u128::from(asked.get()) <= most && asked.get() <= 30, "{} in {most}", asked.get());
    }

    #[tokio::test]
    async fn failures_are_not_cached_and_count() {
        let paced = Paced::<u32>::new(EVERY);
        assert_eq!(paced.get(|| async { Err("x") }).await, Err("x"));
        let began = Instant::now();
        assert_eq!(paced.get(|| async { Ok::<_, ()>(1) }).await, Ok(1));
        assert!(began.elapsed() >= EVERY / 2);
    }
}
