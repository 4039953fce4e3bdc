//! Compression, where the client takes it.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::header::{ACCEPT_ENCODING, HeaderMap};

/// Whether the client takes gzip (RFC 9110, 12.5.3): it is named, or everything is, with a weight that is not 0.
pub(super) fn is_taken(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in values.flat_map(|value| value.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        });
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return !refused;
        }
        any |= name == "*" && !refused;
    }
    any
}

/// The fastest level: a page of metrics repeats itself so much that it comes to a tenth all the same.
pub(super) fn compress(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_where_it_is_named_and_not_refused() {
        let taken =
            |value: &str| is_taken(&HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]));
        for value in
            ["gzip", "deflate, gzip;q=1.0, *;q=0.5", "GZIP", "x-gzip", "br;q=1, *", "gzip;q=0.1", "gzip;q=x"]
        {
            assert!(taken(value), "{value}");
        }
        for value in ["", "identity", "gzip;q=0", "gzip; q=0.000", "*;q=0", "*, gzip;Q=0", "gzipped", ",;=,"]
        {
            assert!(!taken(value), "{value}");
        }
        assert!(!is_taken(&HeaderMap::new()));
    }
}
