//! `cgscope.diff/1`: one object a line. What the members mean is in `docs/diff.md`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    CONFIDENCE, Change, Diff, Distribution, ERROR, Figure, FindingChange, LimitChange, Presence, Ranked,
    Subject, Unit, Verdict,
};
use crate::{CgroupReading, Hist, Mode};

/// The `schema` of every object.
pub const SCHEMA: &str = "cgscope.diff/1";

/// A line.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the schema is documented in docs/diff.md")]
pub enum Object<'a> {
    Summary {
        schema: &'static str,
        enough: bool,
        tested: usize,
        called: usize,
        family_wise_error: f64,
        confidence: f64,
        before: LengthObject,
        after: LengthObject,
        kept_findings: usize,
    },
    Figure(FigureObject<'a>),
    Distribution(DistributionObject<'a>),
    Limits {
        schema: &'static str,
        path: &'a str,
        before: Option<LimitsObject<'a>>,
        after: Option<LimitsObject<'a>>,
        changed_during: [bool; 2],
    },
    Finding {
        schema: &'static str,
        presence: Presence,
        #[serde(flatten)]
        finding: &'a crate::Finding,
    },
    Ranked {
        schema: &'static str,
        side: &'static str,
        rank: usize,
        #[serde(flatten)]
        subject: SubjectObject<'a>,
        wait: f64,
        on_cpu: f64,
    },
    Alone {
        schema: &'static str,
        presence: Presence,
        #[serde(flatten)]
        subject: SubjectObject<'a>,
    },
}

/// A recording.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct LengthObject {
    pub mode: Mode,
    pub intervals: u64,
    pub blocks: usize,
    pub duration_ns: u64,
}

/// What it is about.
#[derive(Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
#[expect(missing_docs, reason = "as above")]
pub enum SubjectObject<'a> {
    All,
    Cgroup { path: &'a str },
    Program { comm: &'a str },
    Behind { path: &'a str, culprit: Option<&'a str> },
    Own,
}

impl<'a> SubjectObject<'a> {
    fn new(subject: &'a Subject) -> Self {
        match subject {
            Subject::All => Self::All,
            Subject::Cgroup(path) => Self::Cgroup { path },
            Subject::Program(comm) => Self::Program { comm },
            Subject::Behind { victim, culprit } => Self::Behind { path: victim, culprit: culprit.as_deref() },
            Subject::Own => Self::Own,
        }
    }
}

/// A figure on both sides.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct FigureObject<'a> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub subject: SubjectObject<'a>,
    pub figure: Figure,
    pub unit: Unit,
    pub presence: Presence,
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub change: Option<f64>,
    pub relative: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub p: Option<f64>,
    pub verdict: Verdict,
    pub size: f64,
}

/// Lengths of waits.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct DistributionObject<'a> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub subject: SubjectObject<'a>,
    pub distance: f64,
    pub at_ns: u64,
    pub p: f64,
    pub differs: bool,
    pub before: HistObject,
    pub after: HistObject,
}

/// One side of it.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct HistObject {
    pub count: u64,
    pub max_ns: u64,
    pub hist: Vec<(u64, u64, u64)>,
}

/// The limits of a cgroup.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct LimitsObject<'a> {
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub burst_us: Option<u64>,
    pub weight: Option<u64>,
    pub cpus: Option<u32>,
    pub cpuset: Option<&'a str>,
}

impl<'a> LimitsObject<'a> {
    fn new(limits: &'a CgroupReading) -> Self {
        Self {
            quota_us: limits.quota_us,
            period_us: limits.period_us,
            burst_us: limits.burst_us,
            weight: limits.weight,
            cpus: limits.cpus,
            cpuset: limits.cpuset.as_deref(),
        }
    }
}

impl HistObject {
    fn new(hist: &Hist, max_ns: u64) -> Self {
        Self { count: hist.count(), max_ns, hist: hist.buckets().collect() }
    }
}

/// A finite number, or none: JSON has no others.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn figure(change: &Change) -> Object<'_> {
    let (low, high) = change.interval.unzip();
    let relative = change.change().zip(change.before).and_then(|(change, before)| finite(change / before));
    Object::Figure(FigureObject {
        schema: SCHEMA,
        subject: SubjectObject::new(&change.subject),
        figure: change.figure,
        unit: change.figure.unit(),
        presence: change.presence,
        before: change.before,
        after: change.after,
        change: change.change(),
        relative,
        low,
        high,
        p: change.p,
        verdict: change.verdict,
        size: change.size,
    })
}

fn distribution(distribution: &Distribution) -> Object<'_> {
    let Distribution { subject, before, after, longest_ns, distance, at_ns, p, differs } = distribution;
    Object::Distribution(DistributionObject {
        schema: SCHEMA,
        subject: SubjectObject::new(subject),
        distance: *distance,
        at_ns: *at_ns,
        p: *p,
        differs: *differs,
        before: HistObject::new(before, longest_ns[0]),
        after: HistObject::new(after, longest_ns[1]),
    })
}

fn limits(change: &LimitChange) -> Object<'_> {
    Object::Limits {
        schema: SCHEMA,
        path: &change.path,
        before: change.before.as_ref().map(LimitsObject::new),
        after: change.after.as_ref().map(LimitsObject::new),
        changed_during: change.during,
    }
}

fn finding(change: &FindingChange) -> Object<'_> {
    Object::Finding { schema: SCHEMA, presence: change.presence, finding: &change.finding }
}

fn ranked<'a>(side: &'static str, all: &'a [Ranked]) -> impl Iterator<Item = Object<'a>> {
    all.iter().enumerate().map(move |(i, ranked)| Object::Ranked {
        schema: SCHEMA,
        side,
        rank: i + 1,
        subject: SubjectObject::new(&ranked.subject),
        wait: ranked.wait,
        on_cpu: ranked.on_cpu,
    })
}

fn alone(alone: &BTreeMap<Subject, Presence>) -> impl Iterator<Item = Object<'_>> {
    alone.iter().map(|(subject, presence)| Object::Alone {
        schema: SCHEMA,
        presence: *presence,
        subject: SubjectObject::new(subject),
    })
}

/// All lines, in the order in which they are printed.
pub fn objects(diff: &Diff) -> impl Iterator<Item = Object<'_>> {
    let length = |side: usize| {
        let super::Length { intervals, blocks, duration_ns, mode } = diff.lengths[side];
        LengthObject { mode, intervals, blocks, duration_ns }
    };
    let summary = Object::Summary {
        schema: SCHEMA,
        enough: diff.is_enough(),
        tested: diff.tested,
        called: diff.called().count(),
        family_wise_error: ERROR,
        confidence: CONFIDENCE,
        before: length(0),
        after: length(1),
        kept_findings: diff.kept_findings,
    };
    std::iter::once(summary)
        .chain(diff.limits.iter().map(limits))
        .chain(diff.changes.iter().map(figure))
        .chain(diff.distributions.iter().map(distribution))
        .chain(diff.findings.iter().map(finding))
        .chain(alone(&diff.alone))
        .chain(ranked("before", &diff.cgroups[0]))
        .chain(ranked("after", &diff.cgroups[1]))
        .chain(ranked("before", &diff.programs[0]))
        .chain(ranked("after", &diff.programs[1]))
}
