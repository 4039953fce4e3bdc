//! stub
use std::{collections::BTreeMap, path::{Path, PathBuf}};
pub struct M(Option<PathBuf>, bool);
impl M { pub fn path(&self)->Option<PathBuf>{self.0.clone()} pub fn is_v2(&self)->bool{self.1} }
pub fn cgroup_mounts_of_host()->M { M(Some("/sys/fs/cgroup/cpu".into()), false) }
pub fn cpu_to_node(_:&Path)->BTreeMap<u32,u32>{ (0..2).map(|c|(c,0)).collect() }
pub fn parse_cpu_list(_:&str)->Option<Vec<u32>>{None}
