//! The answers as JSON objects.

use cgscope_model::Interval;
use serde_json::{Value, json};

use crate::{
    Bounds,
    answer::{Answer, Question, Row},
    words,
};

const SCHEMA: &str = "cgscope.whatif/1";

/// The object of one answer (`cgscope.whatif/1`): its fields are in docs/whatif.md.
pub fn object(answer: &Answer, whole: &Interval, question: &Question) -> Value {
    let Answer { limit, counted, .. } = answer;
    let mut object = json!({
        "schema": SCHEMA,
        "path": answer.path,
        "name": whole.names.of(&answer.path),
        "duration_ns": answer.span_ns,
        "quota_us": limit.quota_ns / 1_000,
        "period_us": limit.period_ns / 1_000,
        "burst_us": limit.burst_ns / 1_000,
        "used_cores": answer.used,
        "nr_periods": counted.nr_periods,
        "nr_throttled": counted.nr_throttled,
        "throttled_ns": counted.throttled_ns,
        "simulated": answer.check.map(|check| json!({
            "throttled_share": bounds(check.figures.throttled_share),
            "throttled_ns_per_s": bounds(check.figures.throttled_ns_per_s),
        })),
        "target": question.target,
        "loops": answer.loops,
        "refused": answer.refusal.as_ref().map(|refusal| words::refused(refusal).0),
        "is_least_demand": answer.is_least_demand,
        "rows": answer.rows.iter().map(row).collect::<Vec<_>>(),
        "least": answer.least.as_ref().map(row),
        "setting": answer.least.as_ref().map(|row| words::quota_setting(answer, &whole.names, row.limit)),
        "burst": answer.burst.as_ref().map(row),
        "burst_setting": answer.burst.as_ref().map(|row| words::burst_setting(answer, row.limit)),
        "tasks_at_once": answer.at_once,
        "fewer_threads": answer.fewer.as_ref().map(|(most, fewer)| {
            let mut object = row(fewer);
            object["threads"] = (*most).into();
            object
        }),
        "cautions": answer.cautions.iter().map(|one| words::caution(*one).0).collect::<Vec<_>>(),
    });
    if let Some(start_ns) = answer.start_ns {
        object["start_unix_ns"] = whole.start_unix_ns.saturating_add(start_ns).into();
    }
    object
}

/// Bounds from none to all stay numbers, with `is_known` false.
fn row(row: &Row) -> Value {
    let Row { limit, figures } = row;
    json!({
        "cores": limit.cpus(),
        "quota_us": limit.quota_ns / 1_000,
        "period_us": limit.period_ns / 1_000,
        "burst_us": limit.burst_ns / 1_000,
        "is_known": !row.is_unknown(),
        "throttled_share": bounds(figures.throttled_share),
        "throttled_ns_per_s": bounds(figures.throttled_ns_per_s),
        "stall_p50_ns": bounds(figures.stall_p50_ns),
        "stall_p99_ns": bounds(figures.stall_p99_ns),
        "done_ns": figures.done_ns.map(bounds),
        "unused_share": figures.unused_share.map(bounds),
    })
}

fn bounds<T: serde::Serialize>(bounds: Bounds<T>) -> [T; 2] {
    [bounds.low, bounds.high]
}
