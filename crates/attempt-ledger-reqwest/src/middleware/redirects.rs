use attempt_ledger::RedirectPolicy;
use http::Request;
use tower_http::follow_redirect::policy::{Action, Attempt, Policy};

use super::body::Body;

/// The ledger's own rules for redirects, for bodies some of which cannot be sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Redirects(RedirectPolicy);

impl<E> Policy<Body, E> for Redirects {
    fn redirect(&mut self, attempt: &Attempt<'_>) -> Result<Action, E> {
        Policy::<(), E>::redirect(&mut self.0, attempt)
    }

    fn on_request(&mut self, request: &mut Request<Body>) {
        // The rules read extensions; they do not know this kind of body.
        let mut bare = Request::new(());
        std::mem::swap(bare.extensions_mut(), request.extensions_mut());
        Policy::<(), E>::on_request(&mut self.0, &mut bare);
        std::mem::swap(bare.extensions_mut(), request.extensions_mut());
    }

    fn clone_body(&self, body: &Body) -> Option<Body> {
        body.again()
    }
}
