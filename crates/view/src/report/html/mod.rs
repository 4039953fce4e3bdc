//! The report as a single HTML page. It needs no network, no other files and no framework.
//!
//! The markup contains the text; the script draws charts and tables from data in the page. Any user of the host can choose the
//! names of tasks and cgroups. So names are escaped in the markup, cannot end the data element, and are displayed only as text.

#![allow(non_camel_case_types, reason = "`object` names the type of each member after the member")]

use std::{cmp::Reverse, collections::BTreeMap};

use cgscope_ledger::{BUCKETS, bucket_of, cause::row_of, high_ns, low_ns};
use cgscope_model::{
    CAUSES, Cause, CgroupReading, Finding, Interval, Mode, Timeline, Wait,
    causes::{Shown, TABLE},
    hist::Octave,
    timeline::{QuotaPart, Slice},
    units::duration,
};
use serde::Serialize;

use crate::{
    causes::ORDER,
    report::{self, About, Row, Whole, limit_words},
    text::capital,
};

/// The first lines of every page. cgscope recognizes its own pages by these lines.
pub const BEGINNING: &str = "<!doctype html>\n<!-- cgscope report -->\n";

const TEMPLATE: &str = include_str!("page.html");
/// Has placeholders for the style lines of the causes.
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("words.js"),
    include_str!("charts.js"),
    include_str!("tables.js"),
    include_str!("page.js"),
);

/// Base64 of the SHA-256 of [`style`] and [`SCRIPT`]. Browsers apply and run only these two. A test checks the values.
const STYLE_HASH: &str = "DGC3wwsKfPLF0K0hZBth5C/HscsBnpvEIdI2FS1VoEg=";
const SCRIPT_HASH: &str = "g1IAc3QFwn4r3e70A6mIGa4baU+5AS8tSy+NAVjr5gY=";

pub fn page(about: &About, whole: &Whole) -> String {
    let interval = &whole.interval;
    let total = interval.total();
    let sentences = if interval.duration_ns == 0 {
        vec![report::NOTHING.to_owned()]
    } else {
        report::sentences(whole, &total)
    };
    let parts = [
        ("style_hash", STYLE_HASH.to_owned()),
        ("script_hash", SCRIPT_HASH.to_owned()),
        ("version", text(env!("CARGO_PKG_VERSION"))),
        ("title", text(&capital(&about.what))),
        ("host", text(&about.host_words)),
        ("extent", text(&format!("{}; {}", about.extent, about.ending))),
        ("file", text(&about.file)),
        ("warnings", warnings(interval)),
        ("findings_heading", text(&crate::text::findings_heading(&whole.findings))),
        ("findings", whole.findings.iter().map(finding).collect()),
        ("sentences", sentences.iter().map(|said| format!("<li>{}</li>\n", text(said))).collect()),
        ("enough", enough(about, &whole.enough)),
        ("notes", notes(interval)),
        ("sleeps_title", report::SLEEPS_TITLE.to_owned()),
        ("sleeps_hint", capital(report::SLEEPS_HINT)),
        ("style", style()),
        ("script", SCRIPT.to_owned()),
        ("data", as_script(&data(about, whole, &Row::of_group(String::new(), total)))),
    ];
    BEGINNING.to_owned() + &filled(TEMPLATE, &parts)
}

fn style() -> String {
    let lines = |line: fn(&str, &Shown) -> String| {
        TABLE.iter().map(|shown| line(shown.cause.name(), shown)).collect()
    };
    let colours = lines(|name, Shown { page: (light, dark), .. }| {
        format!("  --{name}: light-dark({light}, {dark});\n")
    });
    let classes = lines(|name, _| format!(".{name} {{ fill: var(--{name}); background: var(--{name}); }}\n"));
    filled(STYLE, &[("cause_colours", colours), ("cause_classes", classes)])
}

/// Replaces each `{{name}}` of the template once. Replacement text is not searched again.
fn filled(template: &str, parts: &[(&str, String)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let known = piece.split_once("}}");
        match known.and_then(|(name, rest)| Some((parts.iter().find(|(part, _)| *part == name)?, rest))) {
            Some(((_, part), rest)) => page.extend([part.as_str(), rest]),
            None => page.extend(["{{", piece]),
        }
    }
    page
}

fn warnings(whole: &Interval) -> String {
    let coarse = (whole.mode == Mode::Coarse).then(|| format!("{}.", capital(crate::text::NO_HISTOGRAM)));
    let warnings = report::incomplete(whole).chain(coarse);
    warnings.map(|warning| format!("<p class=\"warning\">{}</p>\n", text(&warning))).collect()
}

fn finding(finding: &Finding) -> String {
    let Finding { rule, says, advice, lost_ns, .. } = finding;
    format!(
        "<li data-rule=\"{}\">\n<p class=\"headline\">{}.</p>\n<p class=\"says\">{}.</p>\n<p class=\"advice\">{}.</p>\n<p class=\"cost\">{}</p>\n</li>\n",
        text(rule.name()),
        text(&finding.headline()),
        text(&capital(says)),
        text(&capital(advice)),
        if *lost_ns == 0 { String::new() } else { format!("{} of waiting", duration(*lost_ns)) },
    )
}

/// Returns the quotas that would have been enough; empty if no quota ran out.
fn enough(about: &About, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", text(line))).collect();
    format!(
        "<section id=\"enough\">\n<h2>{}</h2>\n<p class=\"hint\">{}.</p>\n<ul class=\"sentences\">\n{items}</ul>\n</section>\n",
        report::ENOUGH,
        text(&capital(&report::enough_hint(&about.file))),
    )
}

fn notes(whole: &Interval) -> String {
    let lines = crate::text::closing_lines(whole);
    lines.map(|line| format!("<p>{}.</p>\n", text(&capital(&line)))).concat()
}

/// Escapes text for markup, including double-quoted attributes.
fn text(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // NUL has no character reference, and parsers report an error for it.
    text.replace('"', "&quot;").replace('\'', "&#39;").replace('\0', "\u{fffd}")
}

/// Returns JSON for a `script` element. Only `<` could end the element or open a comment, and JSON has `<` only in strings.
fn as_script(value: &impl Serialize) -> String {
    // Structs of strings and numbers always serialize.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Maximum number of rows per table. Tasks beyond this number hardly wait.
const ROWS: usize = 500;

/// An object with these members, in this order.
macro_rules! object {
    ($($name:ident: $value:expr,)+) => {{
        #[derive(Serialize)]
        struct Object<$($name),+> { $($name: $name),+ }
        Object { $($name: $value),+ }
    }};
}

fn data<'a>(about: &About, whole: &'a Whole, total: &'a Row) -> impl Serialize + use<'a> {
    let interval = &whole.interval;
    let exact = interval.mode == Mode::Bpf;
    let rows = |rows: &'a [Row]| limited(rows, |row| row.wait.total_ns, move |one| row(one, exact));
    object! {
        start_unix_ms: interval.start_unix_ns / 1_000_000,
        duration_ns: interval.duration_ns,
        // False in coarse mode. The lengths of waits are then unknown, and so are all causes except throttling.
        exact: exact,
        cpus: about.host.cpus,
        // The causes, in the order that every array by cause uses.
        causes: TABLE.map(|shown| {
            object! { name: shown.cause.name(), letter: shown.letter, words: shown.words, }
        }),
        total: row(total, exact),
        over: over(&whole.timeline, interval),
        quotas: quotas(whole),
        hist: hist(&total.wait),
        cgroups: rows(&whole.cgroups),
        processes: rows(&whole.processes),
        threads: rows(&whole.threads),
        pairs: limited(&whole.pairs, |pair| pair.ns, |pair| pair),
        sleeps: limited(&whole.sleeps, |sleep| sleep.ns, |sleep| sleep),
    }
}

/// Returns the first rows, and the waiting of the omitted rows.
fn limited<'a, T, J: Serialize>(
    rows: &'a [T],
    waited_ns: impl Fn(&T) -> u64,
    row: impl Fn(&'a T) -> J,
) -> impl Serialize {
    let (first, others) = rows.split_at(rows.len().min(ROWS));
    object! {
        rows: first.iter().map(row).collect::<Vec<_>>(),
        left_out: others.len(),
        left_out_ns: others.iter().map(waited_ns).sum::<u64>(),
    }
}

fn ordered<T: Copy>(parts: &[T; CAUSES]) -> [T; CAUSES] {
    ORDER.map(|cause: Cause| parts[cause as usize])
}

fn row(row: &Row, exact: bool) -> impl Serialize {
    let wait = &row.wait;
    object! {
        name: &row.name,
        // The path of a cgroup, if the path differs from the name.
        path: row.path.as_deref().filter(|path| *path != row.name),
        id: row.id,
        process: row.process,
        cgroup: &row.cgroup,
        count: wait.count,
        total_ns: wait.total_ns,
        p50_ns: wait.quantile_ns(0.5),
        p99_ns: wait.quantile_ns(0.99),
        max_ns: (exact && wait.count != 0).then_some(wait.max_ns),
        by_cause_ns: ordered(&wait.by_cause.0),
        on_cpu_ns: row.totals.on_cpu_ns,
        voluntary: row.totals.voluntary,
        involuntary: row.totals.involuntary,
    }
}

const QUOTAS: usize = 24;
/// Histogram buckets per row of the heatmap. An octave then has two rows.
const BUCKETS_TO_ROW: usize = 4;

fn us(ns: u64) -> u64 {
    (ns + 500) / 1_000
}

/// Returns time series of all tasks, with one entry per slice.
fn over(timeline: &Timeline, whole: &Interval) -> impl Serialize + use<> {
    fn series<T>(timeline: &Timeline, of: impl Fn(&Slice) -> T) -> Vec<T> {
        timeline.slices.iter().map(of).collect()
    }
    let rows: Vec<Vec<u64>> = series(timeline, |slice| {
        let mut rows = vec![0; BUCKETS / BUCKETS_TO_ROW];
        slice.wait.hist.counts.iter().for_each(|(bucket, count)| rows[bucket / BUCKETS_TO_ROW] += count);
        rows
    });
    let is_used = |row: usize| rows.iter().any(|counts| counts[row] != 0);
    let mut used = (0..BUCKETS / BUCKETS_TO_ROW).filter(|row| is_used(*row));
    let first = used.next();
    let used = first.map_or(0..0, |first| first..used.next_back().unwrap_or(first) + 1);
    let ends = |row| (low_ns(row * BUCKETS_TO_ROW), high_ns((row + 1) * BUCKETS_TO_ROW - 1));
    let heat = |counts: &Vec<u64>| -> Vec<u64> {
        let counts = counts[used.clone()].iter().enumerate().filter(|(_, count)| **count != 0);
        counts.flat_map(|(row, count)| [row as u64, *count]).collect()
    };
    let quantile = |quantile| series(timeline, move |slice| slice.wait.quantile_ns(quantile));
    object! {
        // Start of each slice, from the start of the recording.
        at_us: series(timeline, |slice| us(slice.start_unix_ns.saturating_sub(whole.start_unix_ns))),
        length_us: series(timeline, |slice| us(slice.duration_ns)),
        waits: series(timeline, |slice| slice.wait.count),
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        max_ns: series(timeline, |slice| slice.wait.max_ns),
        // Waiting by cause. The sum over all slices is the total.
        by_cause_ns: ORDER.map(|cause| series(timeline, |slice| slice.all.by_cause.get(cause))),
        on_cpu_us: series(timeline, |slice| us(slice.all.on_cpu_ns)),
        busy_us: series(timeline, |slice| slice.busy_ns.map(us)),
        pending: series(timeline, |slice| slice.pending),
        pending_max_ns: series(timeline, |slice| slice.pending_max_ns),
        // Lowest and highest wait of each heatmap row, from the lowest row with a wait to the highest.
        heat_rows_ns: used.clone().map(ends).collect::<Vec<_>>(),
        // For each slice: `row, waits, row, waits, ...`. Rows without a wait are omitted.
        heat: rows.iter().map(heat).collect::<Vec<_>>(),
    }
}

/// Returns the quotas of cgroups that ran, the most throttled first.
fn quotas(whole: &Whole) -> Vec<impl Serialize> {
    let interval = &whole.interval;
    let mut quotas: Vec<_> = report::used_quotas(interval).collect();
    quotas.sort_by_key(|(limits, _)| Reverse((limits.throttled_ns, limits.usage_ns)));
    quotas.into_iter().take(QUOTAS).map(|(limits, path)| quota(limits, path, whole)).collect()
}

/// Returns a quota over time; `null` where the cgroup had no quota or its quota was not read.
fn quota<'a>(limits: &CgroupReading, path: &'a str, whole: &Whole) -> impl Serialize + use<'a> {
    let parts: Vec<Option<&QuotaPart>> =
        whole.timeline.slices.iter().map(|slice| slice.quotas.get(&limits.id)).collect();
    let series = |of: fn(&QuotaPart) -> Option<u64>| -> Vec<Option<u64>> {
        parts.iter().map(|part| part.and_then(of)).collect()
    };
    object! {
        path: path,
        words: limit_words(limits),
        allowed_us: series(|part| Some(us(part.allowed_ns))),
        used_us: series(|part| part.used_ns.map(us)),
        periods: series(|part| part.nr_periods),
        throttled: series(|part| part.nr_throttled),
        throttled_us: series(|part| part.throttled_ns.map(us)),
    }
}

/// Returns waits by length and cause, from the shortest octave with a wait to the longest.
fn hist(wait: &Wait) -> Vec<impl Serialize + use<>> {
    let octaves: BTreeMap<usize, Octave> =
        wait.hist.octaves().into_iter().map(|octave| (row_of(bucket_of(octave.low_ns)), octave)).collect();
    let rows = octaves.first_key_value().zip(octaves.last_key_value());
    let rows = rows.map_or(0..0, |((first, _), (last, _))| *first..last + 1);
    let by_cause = |octave: &Octave| ordered(&octave.by_cause).map(|waits| (waits * 64.0).round() / 64.0);
    let row = |row: usize| {
        object! {
            low_ns: low_ns(row * 8),
            high_ns: high_ns(row * 8 + 7),
            count: octaves.get(&row).map_or(0, |octave| octave.count),
            // `count`, split by cause.
            by_cause: octaves.get(&row).map_or([0.0; CAUSES], by_cause),
        }
    };
    rows.map(row).collect()
}

#[cfg(test)]
mod tests;
