//! Intervals as metrics. Pure: Intervals in one by one, pages of OpenMetrics, Prometheus text or protobuf out.
//!
//! What stands on a page is listed in [`family`] and told in `docs/metrics.md`. Counters rise from the moment that a cgroup is
//! exported; how many are is bounded by [`Config`], not by the host.

mod cgroup;
mod choice;
mod culprits;
pub mod family;
mod forest;
mod format;
mod host;
mod labels;
mod metrics;
mod native;
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
