//! Tests of pages over HTTPS.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use cgscope_serve::http::{HttpConfig, HttpLimits, HttpRefusal};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};

use crate::support::{Server, anywhere, ends, get, say};

/// A certificate for `localhost` and its key, as two files.
struct Files {
    dir: tempfile::TempDir,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new() -> (Self, CertificateDer<'static>) {
        let dir = tempfile::tempdir().unwrap();
        let files = Self { certificate: dir.path().join("cert"), key: dir.path().join("key"), dir };
        let certificate = files.renew();
        (files, certificate)
    }

    fn renew(&self) -> CertificateDer<'static> {
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        fs::write(&self.certificate, pair.cert.pem()).unwrap();
        fs::write(&self.key, pair.signing_key.serialize_pem()).unwrap();
        pair.cert.der().clone()
    }

    fn config(&self) -> HttpConfig {
        HttpConfig {
            tls_certificate: Some(self.certificate.clone()),
            tls_key: Some(self.key.clone()),
            ..anywhere()
        }
    }
}

/// Connects a client that trusts only this certificate.
async fn connect(
    server: &Server,
    trusted: &CertificateDer<'static>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, server.connect().await).await
}

#[tokio::test]
async fn a_page_is_served_with_the_configured_certificate() {
    let (files, certificate) = Files::new();
    let server = Server::start(&files.config(), 300_000);
    let mut stream = connect(&server, &certificate).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]), "a client of HTTP/2 must know");
    for _ in 0..3 {
        let answer = say(&mut stream, &get("/metrics", "")).await;
        assert_eq!((answer.status, answer.body.len()), (200, 300_000));
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let (files, old) = Files::new();
    let config = files.config();
    let server = Server::start(&config, 0);
    let mut kept = connect(&server, &old).await.unwrap();
    fs::write(&files.certificate, "junk").unwrap();
    let errors = server.http.reload(&config);
    assert_eq!((errors.len(), errors[0].is_kept), (1, true));
    assert!(errors[0].to_string().contains("so the earlier settings stay in use; set"));
    assert!(connect(&server, &old).await.is_ok());

    let new = files.renew();
    assert!(server.http.reload(&config).is_empty());
    assert!(connect(&server, &old).await.is_err(), "the old certificate is still served");
    let mut stream = connect(&server, &new).await.unwrap();
    assert_eq!(say(&mut stream, &get("/metrics", "")).await.status, 200);
    assert_eq!(say(&mut kept, &get("/metrics", "")).await.status, 200, "an open connection continues");
    drop(files.dir);
    assert_eq!(server.http.reload(&config).len(), 1);
}

#[tokio::test]
async fn a_client_without_tls_gets_nothing_and_is_counted() {
    let (files, certificate) = Files::new();
    let server = Server::start(&files.config(), 0);
    let mut stream = server.connect().await;
    stream.write_all(get("/metrics", "").as_bytes()).await.unwrap();
    server.wait_until("counted", |server| server.refused(HttpRefusal::Tls) == 1).await;
    server.wait_until("closed", |server| server.http.counters.clients() == 0).await;
    assert!(connect(&server, &certificate).await.is_ok());
}

#[tokio::test]
async fn a_handshake_that_stalls_is_ended() {
    let (files, _) = Files::new();
    let limits = HttpLimits { handshake: Duration::from_millis(200), ..HttpLimits::default() };
    let server = Server::start(&HttpConfig { limits, ..files.config() }, 0);
    let mut silent = server.connect().await;
    assert!(ends(&mut silent).await);
    let mut half = server.connect().await;
    // The header of a TLS record of 512 bytes. The rest of the record is missing.
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    assert!(ends(&mut half).await);
    assert_eq!(server.refused(HttpRefusal::Slow), 2);
}

#[tokio::test]
async fn a_certificate_added_later_is_used_and_plain_connections_end() {
    let (files, certificate) = Files::new();
    let server = Server::start(&anywhere(), 0);
    let mut plain = server.connect().await;
    assert_eq!(say(&mut plain, &get("/metrics", "")).await.status, 200);
    assert!(server.http.reload(&files.config()).is_empty());
    let last = say(&mut plain, &get("/metrics", "")).await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(ends(&mut plain).await);
    let mut stream = connect(&server, &certificate).await.unwrap();
    assert_eq!(say(&mut stream, &get("/metrics", "")).await.status, 200);
    assert!(server.http.reload(&anywhere()).is_empty());
    assert_eq!(server.get("/metrics", "").await.status, 200);
}
