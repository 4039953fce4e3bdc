//! Renders metrics pages from intervals, in OpenMetrics, Prometheus text or protobuf. This crate has no side effects.
//!
//! [`family`] lists the metrics of a page, and `docs/metrics.md` explains them. The counters of a cgroup start at 0 when the
//! cgroup is first exported. [`Config`] limits the number of exported cgroups.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

mod cgroup;
mod choice;
mod culprits;
pub mod family;
mod forest;
mod metrics;
mod protobuf;
mod text;
mod value;
mod waits;

pub use choice::Config;
pub use family::{Family, Kind};
pub use metrics::{Format, Given, Metrics};
pub use protobuf::proto;
