//! What this host offers: facts judged by a pure function.
use serde::{Deserialize, Serialize};
/// Which hierarchies of cgroups a host has mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Only v1 hierarchies.
    V1,
    /// Only the unified one.
    V2,
    /// Both.
    Hybrid,
    /// None at all.
    #[default]
    None,
}
