//! Pages of OpenMetrics, Prometheus text or protobuf from Intervals, without side effects.
//!
//! [`family`] lists what a page holds, and `docs/metrics.md` explains it. Counters rise from the moment that a cgroup is exported;
//! [`Config`] bounds the number of exported cgroups.

mod cgroup;
mod choice;
mod culprits;
pub mod family;
mod forest;
mod format;
mod host;
mod metrics;
mod page;
pub mod proto;
mod protobuf;
mod text;
mod value;
mod waits;

pub use cgroup::{Asked, Names};
pub use choice::Config;
pub use family::{Family, Kind};
pub use format::Format;
pub use metrics::Metrics;
pub use page::{Given, GivenSample};
