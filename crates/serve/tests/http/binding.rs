//! Tests that every unusable setting causes an error message. The message says what is wrong, what does not work, and what to do.

use std::fs;

use cgscope_serve::http::HttpConfig;

use crate::support::{anywhere, at, bind};

fn sentence(config: &HttpConfig) -> String {
    bind(config).err().expect("an error").to_string()
}

#[test]
fn an_unusable_address_is_named_with_the_key_to_change() {
    let taken = bind(&anywhere()).unwrap();
    let words = sentence(&at(taken.local_addr));
    assert_eq!(
        words,
        format!(
            "another process already listens on {}, so the HTTP server does not run; set `listen` in [http] to another \
             address, or to \"\" for no HTTP server",
            taken.local_addr
        )
    );
    let elsewhere = sentence(&at("192.0.2.1:9753".parse().unwrap()));
    assert!(elsewhere.starts_with("this host has no address 192.0.2.1, so "), "{elsewhere}");
}

#[test]
fn missing_or_wrong_files_are_named_with_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (certificate, key) = (file("cert", &pair.cert.pem()), file("key", &pair.signing_key.serialize_pem()));
    let (absent, junk) = (dir.path().join("absent"), file("junk", "junk\n"));
    let broken = file("broken", &pair.cert.pem().replace('A', "%"));
    let other_key = file("other", &other.signing_key.serialize_pem());
    for (certificate, key, words) in [
        (&absent, &key, "set `tls_certificate` in [http] to a file that"),
        (&certificate, &absent, "set `tls_key` in [http] to a file that"),
        (&junk, &key, "junk contains no PEM certificate"),
        (&broken, &key, "broken contains no PEM certificate"),
        (&certificate, &certificate, "cert contains no PEM private key"),
        (&certificate, &other_key, "other cannot be used for TLS"),
    ] {
        let config = HttpConfig {
            tls_certificate: Some(certificate.clone()),
            tls_key: Some(key.clone()),
            ..anywhere()
        };
        let sentence = sentence(&config);
        assert!(
            sentence.contains(words) && sentence.contains(", so the HTTP server does not run; "),
            "{sentence}"
        );
    }
    for (users, words) in [
        (absent, "set `users` in [http] to a file that"),
        (junk, "line 1 of "),
        (file("none", "# nobody\n"), "none lists no user"),
    ] {
        let sentence = sentence(&HttpConfig { users: Some(users), ..anywhere() });
        assert!(sentence.contains(words) && sentence.contains("; "), "{sentence}");
    }
    let config = HttpConfig { tls_certificate: Some(certificate), tls_key: Some(key), ..anywhere() };
    assert!(bind(&config).is_ok());
}
