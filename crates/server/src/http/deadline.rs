//! A limit on the duration of every request.

use std::time::Duration;

use ::node::control::CHANGE_DEADLINE;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refusal::Refusal;

/// How long a request may take. The node itself answers for a change that takes too long, and says what the
/// change waits for. A request makes at most two such changes.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(120);

const _: () = assert!(2 * CHANGE_DEADLINE.as_secs() < REQUEST_DEADLINE.as_secs());

/// Answers in place of a handler that takes too long.
pub(super) async fn keep(request: Request, next: Next) -> Response {
    keep_within(REQUEST_DEADLINE, next.run(request)).await
}

async fn keep_within(deadline: Duration, answer: impl Future<Output = Response>) -> Response {
    match tokio::time::timeout(deadline, answer).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the node did not answer within {} seconds", deadline.as_secs());
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail)
                .hint("a change may still be carried out: check before you repeat it")
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handler_that_hangs_is_answered_for() {
        let response = keep_within(Duration::from_millis(1), std::future::pending()).await;
        assert_eq!(response.status(), 504);
    }
}
