//! The report as a single HTML page. It needs no network, no other files and no framework.
//!
//! The markup contains the text; the script draws charts and tables from data in the page. Any user of the host chooses the names
//! of tasks and cgroups. So names are escaped in the markup, cannot end the data element, and are displayed only as text.

mod charts;
mod data;
pub mod output;
#[cfg(test)]
mod tests;

use cgscope_model::{
    Finding, Interval, Mode,
    causes::{Shown, TABLE},
    units::duration,
};
use serde::Serialize;

use super::{
    Whole,
    words::{self, About},
};
use crate::text::capital;
use data::Data;

/// The first lines of every page, by which we recognize our own pages.
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

/// Base64 of the SHA-256 of [`style`] and [`SCRIPT`]. Browsers apply and run nothing else. A test checks the values.
const STYLE_HASH: &str = "DGC3wwsKfPLF0K0hZBth5C/HscsBnpvEIdI2FS1VoEg=";
const SCRIPT_HASH: &str = "jvwp/hYrQ/2QhkuHe8eeAGacOPhoqkOMXCBFEWbWuqw=";

pub fn page(about: &About, whole: &Whole) -> String {
    let interval = &whole.interval;
    let total = interval.total();
    let sentences = if interval.duration_ns == 0 {
        vec![words::NOTHING.to_owned()]
    } else {
        words::sentences(whole, &total)
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
        ("style", style()),
        ("script", SCRIPT.to_owned()),
        ("data", as_script(&Data::new(about, whole, &total))),
    ];
    BEGINNING.to_owned() + &filled(TEMPLATE, &parts)
}

/// The style sheet, with a colour and a class for each cause.
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
    words::incomplete(whole)
        .chain(coarse)
        .map(|warning| format!("<p class=\"warning\">{}</p>\n", text(&warning)))
        .collect()
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

/// The quotas that would have been enough, if a quota ran out.
fn enough(about: &About, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", text(line))).collect();
    format!(
        "<section id=\"enough\">\n<h2>{}</h2>\n<p class=\"hint\">{}.</p>\n<ul class=\"sentences\">\n{items}</ul>\n</section>\n",
        words::ENOUGH,
        text(&capital(&words::enough_hint(&about.file))),
    )
}

/// The cost and the losses of the measurement.
fn notes(whole: &Interval) -> String {
    let lines = [
        crate::text::cost_line(&whole.cost, whole.duration_ns, whole.mode),
        crate::text::loss_line(&whole.losses),
    ];
    lines.iter().map(|line| format!("<p>{}.</p>\n", text(&capital(line)))).collect()
}

/// Escapes text for markup, including double-quoted attributes.
fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // NUL has no character reference, and parsers report an error.
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JSON for a `script` element. Only `<` could end the element or open a comment; JSON has it only in strings.
fn as_script(value: &impl Serialize) -> String {
    // Structs of strings and numbers always serialize.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
