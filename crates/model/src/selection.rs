//! The tasks that a user selects. The command line and the filter of Intervals use the same table of selectors.
//!
//! To add a selector, add a field to [`Selection`] and a row to [`SELECTORS`]; the compiler then reports what this file lacks.
//! The source selects processes and threads, in the kernel if possible, so that other tasks cost nothing. A [`SelectionFilter`]
//! applies the other selectors.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::path::{normal_path, path_and_ancestors};
use crate::placement::{cpu_list, parse_cpu_list};
use crate::{CgroupName, Names, printable};

/// The user's selection. Empty lists and `None` select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Processes, with all their threads and children.
    pub pids: Vec<u32>,
    pub tids: Vec<u32>,
    /// Cgroup of the *waiting* task, with its descendants; normalised by [`normal_path`].
    pub cgroup: Option<String>,
    /// Systemd unit of the *waiting* task, as in [`CgroupName::unit`], with the descendants of the unit's cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Pod of the *waiting* task: `NAMESPACE/NAME`, or only the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Container of the *waiting* task: its name, or the beginning of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Regular expression for the thread's name.
    pub comm: Option<String>,
    /// Last CPUs of the tasks.
    pub cpus: Vec<u32>,
    /// NUMA nodes of the tasks' last CPUs.
    pub nodes: Vec<u32>,
}

/// A selector, which is an option of the command line.
#[derive(Debug)]
pub struct Selector {
    /// Name of the option: `pid` for `--pid`.
    pub name: &'static str,
    /// Placeholder of the value in the help.
    pub value: &'static str,
    pub help: &'static str,
    /// True if the value is a list of task ids. The source applies only these selectors. Only they have a short form (`-p`).
    pub is_ids: bool,
    pub set: Set,
}

impl Selector {
    const fn ids(name: &'static str, value: &'static str, help: &'static str, set: Set) -> Self {
        Self { name, value, help, is_ids: true, set }
    }

    const fn one(name: &'static str, value: &'static str, help: &'static str, set: Set) -> Self {
        Self { name, value, help, is_ids: false, set }
    }
}

/// Parses one value into the selection, or returns the error message.
pub type Set = fn(&mut Selection, &str) -> Result<(), String>;

/// All selectors, in the order of the help.
pub static SELECTORS: &[Selector] = &[
    Selector::ids("pid", "PID", "Processes, their threads and their future children", |selection, text| {
        id(text).map(|id| selection.pids.push(id))
    }),
    Selector::ids("tid", "TID", "Single threads", |selection, text| {
        id(text).map(|id| selection.tids.push(id))
    }),
    Selector::one("cgroup", "PATH", "Tasks in this cgroup and below it", |selection, text| {
        selection.cgroup = Some(normal_path(text));
        Ok(())
    }),
    Selector::one("unit", "NAME", "Tasks of this systemd unit", |selection, text| {
        unit(text).map(|unit| selection.unit = Some(unit))
    }),
    Selector::one("pod", "NAMESPACE/NAME", "Tasks of this Kubernetes pod", |selection, text| {
        pod(text).map(|pod| selection.pod = Some(pod))
    }),
    Selector::one("container", "NAME|ID", "Tasks of this container, by name or id", |selection, text| {
        container(text).map(|container| selection.container = Some(container))
    }),
    Selector::one("comm", "REGEX", "Threads whose name matches", |selection, text| {
        regex(text).map(|regex| selection.comm = Some(regex))
    }),
    Selector::one("cpu", "LIST", "Tasks that last ran on these CPUs (0-3,8)", |selection, text| {
        numbers("--cpu", text).map(|cpus| selection.cpus = cpus)
    }),
    Selector::one("node", "LIST", "Tasks that last ran on these NUMA nodes", |selection, text| {
        numbers("--node", text).map(|nodes| selection.nodes = nodes)
    }),
];

fn id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|error: std::num::ParseIntError| error.to_string())
}

/// Returns a unit's name in the form that [`CgroupName`] uses.
fn unit(text: &str) -> Result<String, String> {
    let name = |text: &str| CgroupName::of(text).unit;
    let named = name(text).or_else(|| name(&format!("{text}.service")));
    named
        .filter(|_| !text.is_empty() && !text.contains('/'))
        .ok_or_else(|| format!("--unit takes the name of a unit like nginx or session-2.scope, not {text:?}"))
}

fn pod(text: &str) -> Result<String, String> {
    let is_pod = text.split('/').count() <= 2 && text.split('/').all(|part| !part.is_empty());
    if is_pod { Ok(text.into()) } else { Err(format!("--pod takes NAMESPACE/NAME, not {text:?}")) }
}

fn container(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("--container takes a name or an id".into()) } else { Ok(text.into()) }
}

fn regex(text: &str) -> Result<String, String> {
    Regex::new(text).map(|_| text.to_owned()).map_err(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("--comm {text:?} is not a regular expression: {reason}")
    })
}

fn numbers(option: &str, text: &str) -> Result<Vec<u32>, String> {
    let parsed = parse_cpu_list(text).filter(|list| !list.is_empty());
    parsed.ok_or_else(|| format!("{option} takes a list like 0-3,8, not {text:?}"))
}

impl Selection {
    /// True if the kernel side must follow every task.
    pub fn follows_all(&self) -> bool {
        self.pids.is_empty() && self.tids.is_empty()
    }

    /// True if nothing is selected, which means the whole host.
    pub fn is_whole_host(&self) -> bool {
        *self == Self::default()
    }

    /// True if only processes and threads are selected. For other selectors, the set of matching tasks may change over time.
    pub fn is_by_id_alone(&self) -> bool {
        *self == Self { pids: self.pids.clone(), tids: self.tids.clone(), ..Self::default() }
    }

    pub fn words(&self) -> String {
        let Self { pids, tids, cgroup, unit, pod, container, comm, cpus, nodes } = self;
        let ids = |name: &str, ids: &[u32]| {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            (!ids.is_empty()).then(|| format!("{name} {}", ids.join(",")))
        };
        let on = |name: &str, list: &[u32]| {
            (!list.is_empty()).then(|| format!("tasks on {name} {}", cpu_list(list)))
        };
        let words = [
            ids("process", pids),
            ids("thread", tids),
            on("CPU", cpus),
            on("node", nodes),
            cgroup.as_ref().map(|cgroup| format!("cgroup {cgroup}")),
            unit.as_ref().map(|unit| format!("unit {unit}")),
            pod.as_ref().map(|pod| format!("pod {pod}")),
            container.as_ref().map(|container| format!("container {container}")),
            comm.as_ref().map(|comm| format!("threads named /{comm}/")),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if words.is_empty() { "whole host".into() } else { words.join(", ") }
    }

    /// Makes all texts printable, because a recording may come from any source.
    #[must_use]
    pub fn printable(mut self) -> Self {
        let Self { cgroup, unit, pod, container, comm, .. } = &mut self;
        let texts = [cgroup, unit, pod, container, comm].into_iter().flatten();
        texts.for_each(|text| *text = printable(text).to_string());
        self
    }
}

/// Applies all selectors except ids, which the source has already applied.
#[derive(Clone, Debug, Default)]
pub struct SelectionFilter {
    pub(crate) selection: Selection,
    comm: Option<Regex>,
}

impl SelectionFilter {
    /// Creates the filter of a selection. Fails if `comm` is not a regular expression.
    pub fn new(selection: &Selection) -> Result<Self, regex::Error> {
        let comm = selection.comm.as_deref().map(Regex::new).transpose()?;
        Ok(Self { selection: selection.clone(), comm })
    }

    /// True if the filter checks the cgroups of tasks.
    pub fn is_by_cgroup(&self) -> bool {
        let Selection { cgroup, unit, pod, container, .. } = &self.selection;
        [cgroup, unit, pod, container].into_iter().any(Option::is_some)
    }

    /// True if the filter checks the names, CPUs or nodes of tasks.
    pub fn is_by_task(&self) -> bool {
        self.comm.is_some() || !self.selection.cpus.is_empty() || !self.selection.nodes.is_empty()
    }

    /// True if a node is selected. With `--node`, an unknown node is not selected.
    pub fn wants_node(&self, node: Option<u32>) -> bool {
        is_chosen(&self.selection.nodes, node)
    }

    pub fn wants_cpu(&self, cpu: u32, node: Option<u32>) -> bool {
        is_chosen(&self.selection.cpus, Some(cpu)) && self.wants_node(node)
    }

    /// Returns the selected cgroup that this path is at or below; `None` if no cgroup matches or no cgroup is selected. If
    /// several selectors are set, all must match. The result is the lowest of their cgroups.
    pub(crate) fn selected_cgroup<'p>(&self, path: &'p str, names: &Names) -> Option<&'p str> {
        let Selection { cgroup, unit, pod, container, .. } = &self.selection;
        let by_path = cgroup.as_deref().map(|root| path_and_ancestors(path).find(|above| *above == root));
        let by_unit = unit.as_deref().map(|unit| cgroup_of_unit(path, unit));
        let by_pod = pod.as_deref().map(|pod| names.cgroup_of_pod(path, pod));
        let by_container = container.as_deref().map(|container| names.cgroup_of_container(path, container));
        let roots = by_path.into_iter().chain(by_unit).chain(by_pod).chain(by_container);
        let roots: Option<Vec<&str>> = roots.collect();
        roots?.into_iter().max_by_key(|root| root.len())
    }

    pub fn wants_cgroup(&self, path: &str, names: &Names) -> bool {
        !self.is_by_cgroup() || self.selected_cgroup(path, names).is_some()
    }

    /// True if a task's name, CPU and node match; the caller checks its cgroup. With `--cpu` or `--node`, unknown ones do not.
    pub fn wants_task(&self, comm: &str, cpu: Option<u32>, node: Option<u32>) -> bool {
        self.comm.as_ref().is_none_or(|regex| regex.is_match(comm))
            && is_chosen(&self.selection.cpus, cpu)
            && self.wants_node(node)
    }
}

fn is_chosen(chosen: &[u32], number: Option<u32>) -> bool {
    chosen.is_empty() || number.is_some_and(|number| chosen.contains(&number))
}

/// Returns the cgroup of a systemd unit, if `path` is at or below it. Units inside a container belong to the container's systemd.
pub fn cgroup_of_unit<'p>(path: &'p str, unit: &str) -> Option<&'p str> {
    let is_of_unit = |path: &&str| {
        let name = CgroupName::of(path);
        name.unit.is_some_and(|name| name == unit) && name.container.is_none()
    };
    path_and_ancestors(path).filter(is_of_unit).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_selection_is_described_in_words() {
        let selection = Selection { pids: vec![1, 2], cgroup: Some("/a".into()), ..Selection::default() };
        assert_eq!(selection.words(), "process 1,2, cgroup /a");
        assert_eq!(Selection::default().words(), "whole host");
        let selection = Selection { cpus: vec![0, 1, 2, 8], nodes: vec![1], ..Selection::default() };
        assert_eq!(selection.words(), "tasks on CPU 0-2,8, tasks on node 1");
    }

    #[test]
    fn a_unit_selects_its_cgroup_and_all_below_but_nothing_of_that_name_elsewhere() {
        let container = "0123456789abcdef".repeat(4);
        let unit = |typed: &str| unit(typed).unwrap();
        assert_eq!(unit("nginx"), "nginx.service");
        assert_eq!(unit("session-2.scope"), "session-2.scope");
        assert_eq!(unit("a\\x2db"), "a-b.service");
        for text in ["", "a/b", "/"] {
            assert!(super::unit(text).unwrap_err().starts_with("--unit takes"), "{text}");
        }
        let docker = "/system.slice/docker.service";
        let below = format!("{docker}/docker/{container}");
        for (path, name, expected) in [
            ("/system.slice/nginx.service", "nginx", Some("/system.slice/nginx.service")),
            ("/system.slice/nginx.service/worker", "nginx", Some("/system.slice/nginx.service")),
            (r"/system.slice/a\x2db.service/x", "a-b", Some(r"/system.slice/a\x2db.service")),
            (&below, "docker", Some(docker)),
            ("/system.slice", "nginx", None),
            ("/system.slice/nginx2.service", "nginx", None),
            ("/system.slice/a.service/nginx.service", "nginx", None),
            (&format!("/docker/{container}/system.slice/nginx.service"), "nginx", None),
        ] {
            assert_eq!(cgroup_of_unit(path, &unit(name)), expected, "{path}");
        }
    }

    #[test]
    fn a_cgroup_must_be_that_of_all_selectors() {
        let filter = |cgroup: &str| {
            let selection = Selection {
                cgroup: Some(cgroup.into()),
                unit: Some("a.service".into()),
                ..Selection::default()
            };
            assert_eq!(selection.words(), format!("cgroup {cgroup}, unit a.service"));
            SelectionFilter::new(&selection).unwrap()
        };
        let path = "/system.slice/a.service/b/c";
        let names = Names::default();
        assert_eq!(filter("/").selected_cgroup(path, &names), Some("/system.slice/a.service"));
        assert_eq!(
            filter("/system.slice/a.service/b").selected_cgroup(path, &names),
            Some("/system.slice/a.service/b")
        );
        assert!(!filter("/other").wants_cgroup(path, &names) && !filter("/").wants_cgroup("/other", &names));
    }

    #[test]
    fn a_stored_selection_is_read_back_even_without_a_unit() {
        let selection = Selection { unit: Some("a.service".into()), ..Selection::default() };
        let written = serde_json::to_string(&selection).unwrap();
        assert_eq!(serde_json::from_str::<Selection>(&written).unwrap(), selection);
        let before = r#"{"pids":[],"tids":[],"cgroup":null,"comm":null,"cpus":[],"nodes":[]}"#;
        assert_eq!(serde_json::to_string(&Selection::default()).unwrap(), before);
        assert_eq!(serde_json::from_str::<Selection>(before).unwrap(), Selection::default());
    }
}
