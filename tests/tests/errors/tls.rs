//! TLS: what fails in the handshake was not sent, what fails later may have been done.

use std::sync::Arc;

use attempt_ledger::{Case, Effect, Http2, Ledger, Verdict};
use attempt_ledger_core::AttemptRow;
use attempt_ledger_tests::{rows, slot, text};
use http_body_util::BodyExt;
use rustls::{
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    pki_types::PrivateKeyDer,
    server::{ResolvesServerCertUsingSni, WebPkiClientVerifier},
    version,
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::ServiceExt;

use crate::{
    rig::*,
    servers::{Count, Then, connections, read_request},
};

type Cert = rcgen::CertifiedKey<rcgen::KeyPair>;

fn cert_for(name: &str) -> Cert {
    rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("certificate")
}

fn key_of(cert: &Cert) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(cert.signing_key.serialize_der()).expect("key")
}

fn trust(cert: &Cert) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(cert.cert.der().clone()).expect("root");
    roots
}

type Wants = rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>;

fn config(versions: &[&'static SupportedProtocolVersion]) -> Wants {
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
}

fn config_with(cert: &Cert) -> ServerConfig {
    config(rustls::ALL_VERSIONS)
        .with_no_client_auth()
        .with_single_cert(vec![cert.cert.der().clone()], key_of(cert))
        .expect("config")
}

/// The row of a request to `localhost` at a TLS server that does this with a whole request, and how
/// many requests it saw.
async fn row_at<F, Fut>(config: ServerConfig, roots: RootCertStore, serve: F) -> (AttemptRow, usize)
where
    F: Fn(TlsStream<TcpStream>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let seen = Count::default();
    let count = seen.clone();
    let addr = connections(move |stream| {
        let (acceptor, serve, count) = (acceptor.clone(), serve.clone(), count.clone());
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                read_request(&mut stream).await;
                count.add();
                serve(stream).await;
            }
        }
    })
    .await;
    let row = row_of_client(roots, &format!("https://localhost:{}", addr.port())).await;
    (row, seen.get())
}

async fn row_of_client(roots: RootCertStore, origin: &str) -> AttemptRow {
    let ledger = Ledger::memory();
    let client =
        attempt_ledger::client(ledger.clone()).roots(roots).clocks(clocks()).attempts(1).build();
    let request = request(&format!("{origin}/v1/chat/completions"));
    if let Ok(response) = client.expect("client").oneshot(request).await {
        let _ = response.into_body().collect().await;
    }
    rows(&ledger, "c").remove(0)
}

async fn say(mut stream: TlsStream<TcpStream>, bytes: &'static [u8], clean: bool) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    if clean {
        let _ = stream.shutdown().await;
    }
}

async fn row_saying(bytes: &'static [u8], clean: bool) -> AttemptRow {
    let cert = cert_for("localhost");
    row_at(config_with(&cert), trust(&cert), move |stream| say(stream, bytes, clean)).await.0
}

const UNSEEN: usize = 0;

#[tokio::test]
async fn certificate_of_an_unknown_issuer() {
    let roots = trust(&cert_for("localhost"));
    let (row, seen) =
        row_at(config_with(&cert_for("localhost")), roots, |s| say(s, b"", true)).await;
    assert_transport(&row, K::Tls, Connect, NotReached);
    assert_eq!(seen, UNSEEN);
}

#[tokio::test]
async fn certificate_of_another_name() {
    let cert = cert_for("elsewhere.test");
    let (row, seen) = row_at(config_with(&cert), trust(&cert), |s| say(s, b"", true)).await;
    assert_transport(&row, K::Tls, Connect, NotReached);
    assert_eq!(seen, UNSEEN);
}

#[tokio::test]
async fn certificate_that_is_out_of_date() {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let signing_key = rcgen::KeyPair::generate().expect("key");
    let cert = Cert { cert: params.self_signed(&signing_key).expect("signed"), signing_key };
    let (row, seen) = row_at(config_with(&cert), trust(&cert), |s| say(s, b"", true)).await;
    assert_transport(&row, K::Tls, Connect, NotReached);
    assert_eq!(seen, UNSEEN);
}

/// A server that has no certificate for the name says so by an alert.
#[tokio::test]
async fn alert_in_the_handshake() {
    let config = config(rustls::ALL_VERSIONS)
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
    let roots = trust(&cert_for("localhost"));
    let (row, _) = row_at(config, roots, |s| say(s, b"", true)).await;
    assert_transport(&row, K::Tls, Connect, NotReached);
}

#[tokio::test]
async fn server_that_does_not_speak_it() {
    let addr = connections(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        Then::Hold.end(stream).await;
    })
    .await;
    let row = row_of_client(trust(&cert_for("localhost")), &format!("https://{addr}")).await;
    assert_transport(&row, K::Tls, Connect, NotReached);
}

/// No TLS error is in the chain, but the connector's: nothing was sent all the same.
#[tokio::test]
async fn connection_ends_in_the_handshake() {
    for then in [Then::Close, Then::Reset] {
        let addr = connections(move |mut stream| async move {
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
            then.end(stream).await;
        })
        .await;
        let row = row_of_client(trust(&cert_for("localhost")), &format!("https://{addr}")).await;
        assert_transport(&row, K::Connect, Connect, NotReached);
    }
}

fn wants_a_client_certificate(
    cert: &Cert,
    versions: &[&'static SupportedProtocolVersion],
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trust(cert)), provider);
    config(versions)
        .with_client_cert_verifier(verifier.build().expect("verifier"))
        .with_single_cert(vec![cert.cert.der().clone()], key_of(cert))
        .expect("config")
}

#[tokio::test]
async fn client_certificate_missing_in_tls_1_2() {
    let cert = cert_for("localhost");
    let config = wants_a_client_certificate(&cert, &[&version::TLS12]);
    let (row, seen) = row_at(config, trust(&cert), |s| say(s, b"", true)).await;
    assert_transport(&row, K::Tls, Connect, NotReached);
    assert_eq!(seen, UNSEEN);
}

/// In TLS 1.3 the client's handshake is over when the server's refusal comes: the request may be sent
/// by then, and no type tells.
#[tokio::test]
async fn client_certificate_missing_in_tls_1_3() {
    let cert = cert_for("localhost");
    let config = wants_a_client_certificate(&cert, &[&version::TLS13]);
    let (row, _) = row_at(config, trust(&cert), |s| say(s, b"", true)).await;
    assert_transport(&row, K::Tls, Head, Unknown);
}

/// Sends what is no TLS record any more.
async fn garble(mut stream: TlsStream<TcpStream>, first: &'static [u8]) {
    let _ = stream.write_all(first).await;
    let _ = stream.flush().await;
    let (mut tcp, _) = stream.into_inner();
    let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    Then::Hold.end(tcp).await;
}

#[tokio::test]
async fn garbled_before_the_head() {
    let cert = cert_for("localhost");
    let (row, seen) = row_at(config_with(&cert), trust(&cert), |s| garble(s, b"")).await;
    assert_transport(&row, K::Tls, Head, Unknown);
    assert_eq!(seen, 1);
}

#[tokio::test]
async fn garbled_within_the_body() {
    const HALF: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let cert = cert_for("localhost");
    let (row, _) = row_at(config_with(&cert), trust(&cert), |s| garble(s, HALF)).await;
    assert_eq!(row.status, Some(200));
    assert_transport(&row, K::Tls, Body, Unknown);
}

#[tokio::test]
async fn closed_before_the_head() {
    for clean in [true, false] {
        assert_transport(&row_saying(b"", clean).await, K::Closed, Head, Unknown);
    }
}

#[tokio::test]
async fn body_cut() {
    const HALF: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    for clean in [true, false] {
        assert_transport(&row_saying(HALF, clean).await, K::Cut, Body, Unknown);
    }
}

/// Unlike a plain socket, TLS tells the end of a close-delimited body from its cut.
#[tokio::test]
async fn close_delimited_body_without_the_closing_alert() {
    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"choices\":[{\"index\":0,\"message\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}";
    assert_eq!(row_saying(WHOLE, true).await.verdict, Some(Verdict::Ok));
    const HALF: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"choices\":[{\"ind";
    assert_transport(&row_saying(HALF, false).await, K::Cut, Body, Unknown);
}

/// HTTP/2 where the handshake settles it, else HTTP/1.1: by what the server offers.
#[tokio::test]
async fn http2_by_negotiation() {
    for (offered, kind, remote) in
        [(&b"h2"[..], K::RefusedStream, NotReached), (&b"http/1.1"[..], K::Closed, Unknown)]
    {
        let cert = cert_for("localhost");
        let mut config = config_with(&cert);
        config.alpn_protocols = vec![offered.to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let addr = connections(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let mut stream = acceptor.accept(stream).await.expect("handshake");
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    read_request(&mut stream).await;
                    return say(stream, b"", true).await;
                }
                let mut connection = h2::server::handshake(stream).await.expect("handshake");
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                }
            }
        })
        .await;
        let ledger = Ledger::memory();
        let client = attempt_ledger::client(ledger.clone())
            .roots(trust(&cert))
            .http2(Http2::Negotiated)
            .attempts(1)
            .build()
            .expect("client");
        let url = format!("https://localhost:{}/v1/chat/completions", addr.port());
        let _ = client.oneshot(request(&url)).await;
        assert_transport(&rows(&ledger, "c")[0], kind, Head, remote);
    }
}

/// The failures above are the certificates': trusted, and with no more to say, it works.
#[tokio::test]
async fn trusted_certificate() {
    let cert = cert_for("localhost");
    let acceptor = TlsAcceptor::from(Arc::new(config_with(&cert)));
    let addr = connections(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.expect("handshake");
            read_request(&mut stream).await;
            let answer =
                b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\nhi";
            say(stream, answer, true).await;
        }
    })
    .await;
    let client = attempt_ledger::client(Ledger::memory()).roots(trust(&cert)).build();
    let mut request = request(&format!("https://localhost:{}/v1/echo", addr.port()));
    request.extensions_mut().insert(Case::new(slot("c")).effect(Effect::ReadOnly));
    let response = client.expect("client").oneshot(request).await.expect("answer");
    assert_eq!(text(response.into_body()).await.expect("body"), "hi");
}
