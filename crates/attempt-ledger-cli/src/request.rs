//! Requests to an OpenAI-shaped server, and their way through the stack.

use attempt_ledger::{Case, Error};
use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use tower::{Service, ServiceExt as _};

/// A chat request of `case`.
pub(crate) fn chat(uri: &Uri, case: Case, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::from(body));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = uri.clone();
    let json = header::HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    request.extensions_mut().insert(case);
    request
}

/// Makes the call and reads its response to the end, so that its last attempt is closed and graded.
/// The answer itself is let go as it comes.
pub(crate) async fn call<S, B>(
    client: S,
    request: Request<Full<Bytes>>,
) -> Result<Response<()>, Error>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error>,
    B: Body<Error = Error> + Unpin,
{
    let (parts, mut body) = client.oneshot(request).await?.into_parts();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(Response::from_parts(parts, ()))
}
