//! Output as `cgscope.diff/1`: one JSON object per line. `docs/diff.md` explains the members.

use serde::Serialize;

use super::{
    CONFIDENCE, Change, Diff, DiffSubject, ERROR, FindingChange, Length, LimitChange, Presence, Ranked,
};

/// The `schema` member of every object.
pub const SCHEMA: &str = "cgscope.diff/1";

/// A line of the output.
#[derive(Serialize)]
pub struct Object<'a> {
    kind: &'static str,
    schema: &'static str,
    #[serde(flatten)]
    members: Members<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Members<'a> {
    Summary {
        enough: bool,
        tested: usize,
        called: usize,
        family_wise_error: f64,
        confidence: f64,
        before: Length,
        after: Length,
        kept_findings: usize,
    },
    Limits(&'a LimitChange),
    Figure(&'a Change),
    Finding(&'a FindingChange),
    Alone {
        presence: Presence,
        #[serde(flatten)]
        subject: &'a DiffSubject,
    },
    Ranked {
        side: &'static str,
        rank: usize,
        #[serde(flatten)]
        ranked: &'a Ranked,
    },
}

/// Returns all lines, in the order of the output.
pub fn objects(diff: &Diff) -> impl Iterator<Item = Object<'_>> {
    let summary = Members::Summary {
        enough: diff.is_enough(),
        tested: diff.tested,
        called: diff.called().count(),
        family_wise_error: ERROR,
        confidence: CONFIDENCE,
        before: diff.lengths[0],
        after: diff.lengths[1],
        kept_findings: diff.kept_findings,
    };
    let sides =
        [&diff.cgroups, &diff.programs].into_iter().flat_map(|all| ["before", "after"].into_iter().zip(all));
    let ranked = sides.flat_map(|(side, all)| {
        (1..).zip(all).map(|(rank, ranked)| ("ranked", Members::Ranked { side, rank, ranked }))
    });
    let alone = diff.alone.iter();
    std::iter::once(("summary", summary))
        .chain(diff.limits.iter().map(|change| ("limits", Members::Limits(change))))
        .chain(diff.changes.iter().map(|change| ("figure", Members::Figure(change))))
        .chain(diff.findings.iter().map(|change| ("finding", Members::Finding(change))))
        .chain(alone.map(|(subject, presence)| ("alone", Members::Alone { presence: *presence, subject })))
        .chain(ranked)
        .map(|(kind, members)| Object { kind, schema: SCHEMA, members })
}
