//! A strict parser of pages. If a line violates the format, the parser panics and shows this line.

use std::collections::{BTreeMap, BTreeSet};

use cgscope_metrics::proto::{LabelPair, MetricFamily};
use prost::Message;

/// Name and labels of a sample, which identify it. The labels are in the order of the page.
pub type Key = (String, Vec<(String, String)>);

#[derive(Clone, Debug, Default)]
pub struct Family {
    pub name: String,
    pub help: Option<String>,
    pub kind: Option<String>,
    pub unit: Option<String>,
    pub samples: Vec<(Key, f64)>,
}

/// Parses a text page into its families, in order.
pub fn text(page: &[u8], is_open: bool) -> Vec<Family> {
    let page = std::str::from_utf8(page).expect("UTF-8");
    let body = match is_open {
        true => page.strip_suffix("# EOF\n").expect("an end"),
        false => page,
    };
    assert!(body.is_empty() || body.ends_with('\n'), "the last line ends");
    let mut families: Vec<Family> = Vec::new();
    for line in body.lines() {
        match line.strip_prefix("# ") {
            Some(about) => describe(&mut families, about, is_open),
            None => sample(families.last_mut().expect("a header before samples"), line, is_open),
        }
    }
    check(&families);
    families
}

fn describe(families: &mut Vec<Family>, about: &str, is_open: bool) {
    let mut words = about.splitn(3, ' ');
    let (word, name) = (words.next().expect("a word"), words.next().expect("a name"));
    let rest = words.next().unwrap_or_else(|| panic!("nothing after {about}")).to_owned();
    if families.last().is_none_or(|family| family.name != name) {
        families.push(Family { name: name.into(), ..Family::default() });
    }
    let family = families.last_mut().expect("just pushed");
    assert!(family.samples.is_empty(), "{about} after samples");
    let field = match word {
        "HELP" => &mut family.help,
        "TYPE" => &mut family.kind,
        "UNIT" if is_open => &mut family.unit,
        _ => panic!("# {about}"),
    };
    assert_eq!(field.replace(rest), None, "{about} twice");
}

fn sample(family: &mut Family, line: &str, is_open: bool) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest, line),
        None => (Vec::new(), rest),
    };
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let suffix = name.strip_prefix(&*family.name).unwrap_or_else(|| panic!("not of {}: {line}", family.name));
    let suffixes: &[&str] = match (family.kind.as_deref().expect("a type"), is_open) {
        ("counter", true) => &["_total", "_created"],
        ("histogram", true) => &["_bucket", "_count", "_sum", "_created"],
        ("histogram", false) => &["_bucket", "_count", "_sum"],
        _ => &[""],
    };
    assert!(suffixes.contains(&suffix), "{line}");
    family.samples.push(((name.into(), labels), value));
}

fn labels<'a>(mut rest: &'a str, line: &str) -> (Vec<(String, String)>, &'a str) {
    let mut labels = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(
            !name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'),
            "{name}: {line}"
        );
        let (value, after) = value(after, line);
        labels.push((name.to_owned(), value));
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return (labels, after.strip_prefix('}').unwrap_or_else(|| panic!("no end: {line}"))),
        }
    }
}

fn value<'a>(rest: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &rest[at + 1..]),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('\\' | '"'))) => c,
                other => panic!("{other:?} is no escape: {line}"),
            }),
            c => value.push(c),
        }
    }
    panic!("a value without end: {line}")
}

fn check(families: &[Family]) {
    let names: BTreeSet<&str> = families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names.len(), families.len(), "a family occurs twice");
    let mut keys = BTreeSet::new();
    for family in families {
        assert!(family.help.is_some() && family.kind.is_some() && !family.samples.is_empty(), "{family:?}");
        assert!(
            family.unit.as_ref().is_none_or(|unit| family.name.ends_with(&format!("_{unit}"))),
            "{family:?}"
        );
        for (key, value) in &family.samples {
            assert!(keys.insert(key), "{key:?} occurs twice");
            assert!(*value >= 0.0, "{key:?} {value}");
        }
        if family.kind.as_deref() == Some("histogram") {
            check_histogram(family);
        }
    }
}

fn check_histogram(family: &Family) {
    let mut last: Option<(f64, f64)> = None;
    for ((name, labels), value) in &family.samples {
        if name.ends_with("_bucket") {
            let (_, le) = labels.last().filter(|(name, _)| name == "le").expect("le comes last");
            let le: f64 = le.parse().expect("a number");
            let (edge, count) = last.unwrap_or((f64::NEG_INFINITY, 0.0));
            assert!(le > edge && *value >= count, "{labels:?}");
            last = Some((le, *value));
        } else if name.ends_with("_count") {
            assert_eq!(last.take(), Some((f64::INFINITY, *value)), "{labels:?}");
        }
    }
}

/// Returns the values of all samples of a page by name and labels.
pub fn samples(families: &[Family]) -> BTreeMap<Key, f64> {
    families.iter().flat_map(|family| family.samples.iter().cloned()).collect()
}

/// Returns the values of all counters and histograms, which must never decrease from page to page.
pub fn cumulative(families: &[Family]) -> BTreeMap<Key, f64> {
    let rises = |family: &&Family| family.kind.as_deref() != Some("gauge");
    samples(&families.iter().filter(rises).cloned().collect::<Vec<_>>())
}

/// Parses a protobuf page into its families.
pub fn messages(mut page: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !page.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut page).expect("a message"));
    }
    families
}

/// Converts protobuf messages to the samples that a text page would have, without creation times.
pub fn of_messages(families: &[MetricFamily]) -> BTreeMap<Key, f64> {
    let mut samples = BTreeMap::new();
    for family in families {
        let name = family.name();
        for metric in &family.metric {
            let labels = |more: Option<(&str, String)>| -> Vec<(String, String)> {
                let pair = |pair: &LabelPair| (pair.name().to_owned(), pair.value().to_owned());
                metric
                    .label
                    .iter()
                    .map(pair)
                    .chain(more.map(|(name, value)| (name.to_owned(), value)))
                    .collect()
            };
            let mut put = |suffix: &str, le: Option<String>, value: f64| {
                let key = (format!("{name}{suffix}"), labels(le.map(|le| ("le", le))));
                assert_eq!(samples.insert(key, value), None, "twice");
            };
            match family.r#type() {
                0 => put("", None, metric.counter.as_ref().expect("a counter").value()),
                1 => put("", None, metric.gauge.as_ref().expect("a gauge").value()),
                4 => {
                    let histogram = metric.histogram.as_ref().expect("a histogram");
                    for bucket in &histogram.bucket {
                        let le = cgscope_le(bucket.upper_bound());
                        put("_bucket", Some(le), bucket.cumulative_count() as f64);
                    }
                    put("_bucket", Some("+Inf".into()), histogram.sample_count() as f64);
                    put("_count", None, histogram.sample_count() as f64);
                    put("_sum", None, histogram.sample_sum());
                }
                other => panic!("not a type that we write: {other}"),
            }
        }
    }
    samples
}

/// Formats the edge of a bucket as Prometheus does.
fn cgscope_le(le: f64) -> String {
    if le >= 1e-4 {
        return le.to_string();
    }
    let text = format!("{le:e}");
    let (digits, exponent) = text.split_once("e-").expect("a small number");
    format!("{digits}e-0{exponent}")
}
