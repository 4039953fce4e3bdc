//! The formats of a page, and which format a client requests.

cgscope_ledger::named! {
    /// A format of a page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Format (content_type,) {
        content_type: &'static str,
    }

    /// OpenMetrics 1.0: text with units and the creation times of counters.
    OpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    /// Prometheus text format, version 0.0.4, for people and older collectors.
    Text = "text/plain; version=0.0.4; charset=utf-8";
    /// Length-delimited `io.prometheus.client.MetricFamily` messages, with native histograms.
    Protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
}

impl Format {
    /// Returns the format that the `Accept` header of a request prefers. If it prefers several formats equally, returns the first
    /// of these. If it accepts no format, returns text, so that a scrape does not fail because of its header.
    pub fn for_accept(accept: Option<&str>) -> Self {
        let ranges = accept.unwrap_or_default().split(',').filter_map(range);
        ranges.fold((Self::Text, 0.0), |best, range| if range.1 > best.1 { range } else { best }).0
    }
}

/// Returns the format that a media range names, and its weight `q` (0 to 1). `None` if the format is not available.
fn range(range: &str) -> Option<(Format, f64)> {
    let mut parts = range.split(';');
    let media = parts.next()?.trim().to_ascii_lowercase();
    let parameter = |name: &str| {
        let mut pairs = parts.clone().filter_map(|part| part.split_once('='));
        let (_, value) = pairs.rfind(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
        Some(value.trim().trim_matches('"'))
    };
    let q = parameter("q").map_or(Ok(1.0), str::parse).ok().filter(|q| (0.0..=1.0).contains(q))?;
    let is_version = |ours: &str| parameter("version").is_none_or(|version| version == ours);
    let is_family = || parameter("proto") == Some("io.prometheus.client.MetricFamily");
    let format = match media.as_str() {
        "application/openmetrics-text" if is_version("1.0.0") => Format::OpenMetrics,
        "text/plain" if is_version("0.0.4") => Format::Text,
        "text/*" | "*/*" => Format::Text,
        "application/vnd.google.protobuf" if is_family() && parameter("encoding") == Some("delimited") => {
            Format::Protobuf
        }
        _ => return None,
    };
    Some((format, q))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(accept: &str) -> Format {
        Format::for_accept(Some(accept))
    }

    #[test]
    fn prometheus_gets_the_format_that_it_prefers() {
        // Headers of Prometheus 2.42, without and with native histograms, and of Prometheus 3.
        let text = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                    text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let third = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(
            [asked(text), asked(native), asked(third)],
            [Format::OpenMetrics, Format::Protobuf, Format::OpenMetrics]
        );
    }

    #[test]
    fn browsers_and_unsupported_headers_get_text() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for accept in [
            "*/*",
            browser,
            "",
            "image/png",
            "application/vnd.google.protobuf",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
        ] {
            assert_eq!(asked(accept), Format::Text, "{accept}");
        }
        assert_eq!(Format::for_accept(None), Format::Text);
    }

    #[test]
    fn the_highest_quality_wins_and_the_first_on_a_tie() {
        assert_eq!(asked("text/plain;q=0.4, application/openmetrics-text;q=0.5"), Format::OpenMetrics);
        assert_eq!(asked("text/plain; q=0.5, application/openmetrics-text; q=0.5"), Format::Text);
        assert_eq!(
            asked("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8"),
            Format::OpenMetrics
        );
        assert_eq!(asked("application/openmetrics-text;q=7,text/plain;q=0.1"), Format::Text);
        assert_eq!(asked("application/openmetrics-text;q=NaN,text/plain;q=0.1"), Format::Text);
    }

    #[test]
    fn the_content_type_of_a_format_selects_that_format() {
        for format in Format::ALL {
            assert_eq!(asked(format.content_type()), format);
        }
    }

    proptest! {
        #[test]
        fn any_header_is_answered(accept in "[a-z/*;=,. q0-9\"+-]{0,60}") {
            asked(&accept);
        }
    }
}
