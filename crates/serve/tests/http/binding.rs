//! Every setting that cannot be served gives an error sentence: what is wrong, what it prevents, what to do.

use std::fs;

use cgscope_serve::http::HttpConfig;

use crate::support::{anywhere, at, bind};

fn sentence(config: &HttpConfig) -> String {
    bind(config).err().expect("an error").to_string()
}

#[test]
fn an_address_that_cannot_be_had_is_named_with_the_key_to_change() {
    let taken = bind(&anywhere()).unwrap();
    let words = sentence(&at(taken.local_addr()));
    assert_eq!(
        words,
        format!(
            "another process listens on {} already, so nothing is served by HTTP; choose another address as `listen` in \
             [http], or \"\" for none",
            taken.local_addr()
        )
    );
    let elsewhere = sentence(&at("192.0.2.1:9753".parse().unwrap()));
    assert!(elsewhere.starts_with("this host has no address 192.0.2.1, so "), "{elsewhere}");
}

#[test]
fn files_that_are_missing_or_hold_something_else_are_named_with_their_keys() {
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
        (&absent, &key, "name as `tls_certificate` in [http] a file that"),
        (&certificate, &absent, "name as `tls_key` in [http] a file that"),
        (&junk, &key, "junk holds no certificate in PEM form"),
        (&broken, &key, "broken holds no certificate in PEM form"),
        (&certificate, &certificate, "cert holds no private key in PEM form"),
        (&certificate, &other_key, "other cannot be used for TLS"),
    ] {
        let config = HttpConfig {
            tls_certificate: Some(certificate.clone()),
            tls_key: Some(key.clone()),
            ..anywhere()
        };
        let sentence = sentence(&config);
        assert!(
            sentence.contains(words) && sentence.contains(", so nothing is served by HTTP; "),
            "{sentence}"
        );
    }
    for (users, words) in [
        (absent, "name as `users` in [http] a file that"),
        (junk, "line 1 of "),
        (file("none", "# nobody\n"), "none names no user"),
    ] {
        let sentence = sentence(&HttpConfig { users: Some(users), ..anywhere() });
        assert!(sentence.contains(words) && sentence.contains("; "), "{sentence}");
    }
    let config = HttpConfig { tls_certificate: Some(certificate), tls_key: Some(key), ..anywhere() };
    assert!(bind(&config).is_ok());
}
