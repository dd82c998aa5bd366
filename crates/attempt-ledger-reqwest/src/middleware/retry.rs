use attempt_ledger::{Attempt, Error, LedgerRetry};
use http::Extensions;
use reqwest_middleware::{Middleware, Next};

/// The project's own retry policy for a reqwest-middleware client: decides by the verdict, the remote
/// state and the effect of the attempt that [`LedgerMiddleware`](crate::LedgerMiddleware) recorded
/// beneath, and pauses as the server asks. A retry middleware that sees no more than reqwest's response
/// or error knows neither.
///
/// A request whose body is streamed is sent once: there is no other of it.
#[derive(Clone, Debug, Default)]
pub struct RetryMiddleware {
    policy: LedgerRetry,
}

impl RetryMiddleware {
    /// Retries by `policy`.
    pub fn new(policy: LedgerRetry) -> Self {
        RetryMiddleware { policy }
    }
}

#[async_trait::async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let mut policy = self.policy.clone();
        while let Some(copy) = request.try_clone() {
            extensions.remove::<Attempt>();
            let result = next.clone().run(copy, extensions).await;
            let attempt = match &result {
                Err(error) if is_final(error) => None,
                _ => extensions.get::<Attempt>(),
            };
            let Some(pause) = attempt.and_then(|attempt| policy.pause(attempt)) else {
                return result;
            };
            // The losing response goes before the pause.
            drop(result);
            tokio::time::sleep(pause).await;
        }
        next.run(request, extensions).await
    }
}

/// Of the ledger, or of a cap.
fn is_final(error: &reqwest_middleware::Error) -> bool {
    match error {
        reqwest_middleware::Error::Middleware(error) => {
            error.downcast_ref::<Error>().is_some_and(|e| e.is_ledger() || e.is_capped())
        }
        reqwest_middleware::Error::Reqwest(_) => false,
    }
}
