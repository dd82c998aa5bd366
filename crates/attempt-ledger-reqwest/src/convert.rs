//! Requests and responses between `http` and reqwest, with nothing lost on the way.

use attempt_ledger::Hops;
use http::{Request, Response, Uri};
use reqwest::{Body, ResponseBuilderExt, Url};

/// The URL that a request came with: a URI has no fragment, and may be written otherwise.
#[derive(Clone)]
pub(crate) struct Asked {
    url: Url,
    uri: Uri,
}

impl Asked {
    #[cfg(feature = "middleware")]
    pub(crate) fn new(url: Url, uri: Uri) -> Self {
        Asked { url, uri }
    }
}

/// What is to be known of a request when its response comes.
pub(crate) struct Sent {
    url: Url,
    hops: Option<Hops>,
}

/// As reqwest sends it; the URL is what it was, unless another layer changed it.
pub(crate) fn to_reqwest(
    mut request: Request<Body>,
) -> Result<(reqwest::Request, Sent), reqwest::Error> {
    let hops = request.extensions().get::<Hops>().cloned();
    let asked = request.extensions_mut().remove::<Asked>();
    let asked = asked.filter(|asked| asked.uri == *request.uri());
    let mut request = reqwest::Request::try_from(request)?;
    if let Some(asked) = asked {
        *request.url_mut() = asked.url;
    }
    let sent = Sent { url: request.url().clone(), hops };
    Ok((request, sent))
}

/// The response with the URL that it is of. A client that followed redirects by itself leaves no more of
/// them than where it ended: that is listed.
pub(crate) fn to_http(response: reqwest::Response, sent: &Sent) -> Response<Body> {
    let url = response.url().clone();
    if let Some(hops) = &sent.hops
        && moved(&sent.url, &url)
        && let Ok(uri) = url.as_str().parse()
    {
        hops.push(&uri);
    }
    let mut response = Response::from(response);
    let carrying = http::response::Builder::new().url(url).body(());
    if let Ok(carrying) = carrying {
        response.extensions_mut().extend(carrying.into_parts().0.extensions);
    }
    response
}

fn moved(from: &Url, to: &Url) -> bool {
    from.scheme() != to.scheme()
        || from.host() != to.host()
        || from.port_or_known_default() != to.port_or_known_default()
        || (from.path(), from.query()) != (to.path(), to.query())
}
