//! Output as `cgscope.diff/1`: one JSON object per line. `docs/diff.md` explains the members.

use serde::Serialize;

use super::{CONFIDENCE, Change, Diff, ERROR, Length, LimitChange};

/// A line of the output.
#[derive(Serialize)]
#[expect(missing_docs, reason = "docs/diff.md explains the members")]
pub struct Object<T> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub members: T,
}

/// Adds the schema to the members of a line.
pub fn object<T: Serialize>(members: T) -> Object<T> {
    Object { schema: "cgscope.diff/1", members }
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Members<'a> {
    Summary {
        enough: bool,
        tested: usize,
        called: usize,
        family_wise_error: f64,
        confidence: f64,
        before: Length,
        after: Length,
    },
    Limits(&'a LimitChange),
    Figure(&'a Change),
}

/// Returns the lines of a result, in the order of the output.
pub fn objects(diff: &Diff) -> impl Iterator<Item = Object<impl Serialize>> {
    let [before, after] = diff.lengths;
    let summary = Members::Summary {
        enough: diff.is_enough(),
        tested: diff.tested,
        called: diff.called().count(),
        family_wise_error: ERROR,
        confidence: CONFIDENCE,
        before,
        after,
    };
    let limits = diff.limits.iter().map(Members::Limits);
    [summary].into_iter().chain(limits).chain(diff.changes.iter().map(Members::Figure)).map(object)
}
