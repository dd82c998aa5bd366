use std::time::Duration;

use reqwest::{ClientBuilder, redirect, retry};

/// How long connecting may take, unless it is set otherwise.
const CONNECT: Duration = Duration::from_secs(10);

/// A builder of reqwest's client whose every request is sent once: neither refused streams are sent
/// again nor redirects followed, which would be requests without a row. Connecting may take 10 seconds.
///
/// What is still tried more than once carries no byte of the request: the addresses of a name one after
/// another. HTTP/1.1 requests on a pooled connection that turns out to be closed are sent anew where
/// none of their bytes was written; reqwest has no switch for that.
///
/// ```
/// # fn main() -> Result<(), reqwest::Error> {
/// let client = attempt_ledger_reqwest::client_builder().build()?;
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
pub fn client_builder() -> ClientBuilder {
    reqwest::Client::builder()
        .retry(retry::never())
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT)
}
