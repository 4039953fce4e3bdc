//! Names for cgroups that people recognise: `shop/cart-7d9f (cart)`, `web.service`.

use std::collections::{BTreeSet, HashMap};
use std::{borrow::Cow, sync::Arc};

use crate::{CgroupName, cgroup_name, path::path_and_ancestors};

/// The container runtime's names for the container or pod of a cgroup. `None`: the runtime does not report the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerReading {
    /// Id of the container's cgroup, or of the pod's cgroup, which contains the containers.
    pub cgroup_id: u64,
    /// The container's name; `None` for a pod.
    pub container: Option<Arc<str>>,
    /// The pod's name; `None` outside Kubernetes.
    pub pod: Option<Arc<str>>,
    pub namespace: Option<Arc<str>>,
}

impl ContainerReading {
    /// Formats `shop/cart-7d9f (cart)`; `shop/cart-7d9f` for a pod; `container web` outside Kubernetes. No path or unit begins
    /// like this.
    fn words(&self) -> Option<String> {
        let container = self.container.as_deref();
        let Some((namespace, pod)) = self.pod() else {
            return container.map(|name| format!("container {name}"));
        };
        let inner = container.map_or_else(String::new, |name| format!(" ({name})"));
        Some(format!("{namespace}/{pod}{inner}"))
    }

    pub fn pod(&self) -> Option<(&str, &str)> {
        self.namespace.as_deref().zip(self.pod.as_deref())
    }

    /// True for a container or pod with this pod name: `NAMESPACE/NAME`, or `NAME` in any namespace.
    fn is_of_pod(&self, wanted: &str) -> bool {
        self.pod().is_some_and(|(namespace, pod)| match wanted.split_once('/') {
            Some(wanted) => wanted == (namespace, pod),
            None => wanted == pod,
        })
    }
}

/// Minimum digits of an id that select a container. The tools of runtimes print 12.
const SHORTEST_ID: usize = 8;

/// Maximum number of similar names in a sentence.
const SIMILAR: usize = 3;

/// Minimum Jaro-Winkler similarity of similar names.
const IS_SIMILAR: f64 = 0.75;

/// Returns the names that are most similar to a wanted name: `; similar: a, b`. Empty if no name is similar.
pub fn near(wanted: &str, known: impl IntoIterator<Item = String>) -> String {
    let known: BTreeSet<String> = known.into_iter().collect();
    let score = |name: &String| if name.contains(wanted) { 1.0 } else { strsim::jaro_winkler(wanted, name) };
    let mut similar: Vec<(f64, String)> = known.into_iter().map(|name| (score(&name), name)).collect();
    similar.retain(|(score, _)| *score >= IS_SIMILAR);
    similar.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let similar: Vec<String> = similar.into_iter().take(SIMILAR).map(|(_, name)| name).collect();
    if similar.is_empty() { String::new() } else { format!("; similar: {}", similar.join(", ")) }
}

/// The names of the cgroups of an interval. If the container runtime reports no names, only units have names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names {
    by_path: HashMap<Arc<str>, ContainerReading>,
    pub only_paths: bool,
}

impl Names {
    /// Creates the names by path. Both lists must ascend by id.
    pub fn new(cgroups: &[(u64, Arc<str>)], containers: &[ContainerReading]) -> Self {
        let path = |id| cgroups.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| cgroups[at].1.clone());
        let by_path = containers.iter().filter_map(|named| Some((path(named.cgroup_id)?, named.clone())));
        Self { by_path: by_path.collect(), only_paths: false }
    }

    pub fn paths() -> Self {
        Self { only_paths: true, ..Self::default() }
    }

    pub(crate) fn append(&mut self, next: &Self) {
        self.by_path.extend(next.by_path.iter().map(|(path, named)| (path.clone(), named.clone())));
    }

    /// Returns the container or pod that contains a cgroup, with the path of the container's or pod's cgroup.
    pub fn container<'p>(&self, path: &'p str) -> Option<(&'p str, &ContainerReading)> {
        path_and_ancestors(path).find_map(|above| Some((above, self.by_path.get(above)?)))
    }

    /// Returns the cgroup of a pod, if `path` is at or below it. If the pod's cgroup has no name: the cgroup of the container.
    pub fn cgroup_of_pod<'p>(&self, path: &'p str, pod: &str) -> Option<&'p str> {
        path_and_ancestors(path)
            .filter(|above| self.by_path.get(*above).is_some_and(|named| named.is_of_pod(pod)))
            .last()
    }

    /// Returns the cgroup of a container, by its name or the beginning of its id, if `path` is at or below it.
    pub fn cgroup_of_container<'p>(&self, path: &'p str, container: &str) -> Option<&'p str> {
        let is_named = |above: &&str| {
            self.by_path.get(*above).is_some_and(|named| named.container.as_deref() == Some(container))
        };
        let is_id = container.len() >= SHORTEST_ID && container.bytes().all(|c| c.is_ascii_hexdigit());
        let has_id = |above: &&str| {
            is_id && CgroupName::of(above).container.is_some_and(|id| id.starts_with(container))
        };
        path_and_ancestors(path).filter(|above| is_named(above) || has_id(above)).last()
    }

    /// Checks that exactly one pod and one container are selected, if any.
    /// The error is a sentence that lists several matches, or similar names.
    pub fn check(
        &self,
        pod: Option<&str>,
        container: Option<&str>,
        paths: impl Iterator<Item = impl AsRef<str>>,
    ) -> Result<(), String> {
        let (mut pods, mut containers) = (BTreeSet::new(), BTreeSet::new());
        for path in paths {
            let path = path.as_ref();
            let of_pod = pod.map(|pod| self.cgroup_of_pod(path, pod));
            if let Some(of_pod) = of_pod.flatten() {
                let named = self.container(of_pod).and_then(|(_, named)| named.pod());
                pods.extend(named.map(|(namespace, pod)| format!("{namespace}/{pod}")));
            }
            if of_pod == Some(None) {
                continue;
            }
            let at = container.and_then(|container| self.cgroup_of_container(path, container));
            containers.extend(at.map(|at| self.of(at).into_owned()));
        }
        let found_or_not = [
            ("pod", pod, pods, self.pods(), "NAMESPACE/NAME"),
            ("container", container, containers, self.containers(), "its id, or --pod with it"),
        ];
        for (kind, wanted, found, known, better) in found_or_not {
            let (Some(wanted), found) = (wanted, Vec::from_iter(found)) else { continue };
            let what = format!("{kind} {wanted}");
            return Err(match found.len() {
                0 if self.by_path.is_empty() => format!(
                    "there is no {what}: no container runtime of this host reports names (`cgscope doctor` says why)"
                ),
                0 => format!("there is no {what} on this host{}", near(wanted, known)),
                1 => continue,
                _ => format!("several have the name of {what}: {}; give {better}", found.join(", ")),
            });
        }
        Ok(())
    }

    /// Returns all pods, as `NAMESPACE/NAME`.
    pub fn pods(&self) -> BTreeSet<String> {
        let pods = self.by_path.values().filter_map(ContainerReading::pod);
        pods.map(|(namespace, pod)| format!("{namespace}/{pod}")).collect()
    }

    pub fn containers(&self) -> BTreeSet<String> {
        self.by_path.values().filter_map(|named| named.container.as_deref()).map(str::to_owned).collect()
    }

    /// Returns the displayed name of a cgroup, or its path if it has no name. Below a container or a unit, the rest of the path
    /// follows: `web.service/worker`.
    pub fn of<'a>(&'a self, path: &'a str) -> Cow<'a, str> {
        match self.owner(path) {
            Some((owner, name)) => format!("{name}{}", &path[owner.len()..]).into(),
            None => path.into(),
        }
    }

    /// Returns the name of a cgroup without its ancestors' names, as in a tree: `cart` for a container within its pod.
    pub fn leaf<'a>(&'a self, path: &'a str) -> Cow<'a, str> {
        let last = || path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path);
        let Some((owner, name)) = self.owner(path).filter(|(owner, _)| owner.len() == path.len()) else {
            return last().into();
        };
        let named = self.by_path.get(owner);
        let in_pod = path_and_ancestors(owner).nth(1).is_some_and(|above| self.by_path.contains_key(above));
        match named.and_then(|named| named.container.as_deref()).filter(|_| in_pod) {
            Some(container) => container.into(),
            None => name.into(),
        }
    }

    /// Returns the cgroup of the container, pod or unit that contains a path, and the name of the container, pod or unit.
    fn owner<'p>(&self, path: &'p str) -> Option<(&'p str, String)> {
        if self.only_paths {
            return None;
        }
        let named = |above| Some((above, self.by_path.get(above)?.words()?));
        if let Some(owner) = path_and_ancestors(path).find_map(named) {
            return Some(owner);
        }
        let CgroupName { unit: Some(unit), container: None, .. } = CgroupName::of(path) else { return None };
        // The first part with this name is the unit, because no ancestor of the unit has a name.
        let ends = path.match_indices('/').map(|(end, _)| end).skip(1).chain([path.len()]);
        let is_unit =
            |above: &&str| above.rsplit('/').next().and_then(cgroup_name::unit).as_ref() == Some(&unit);
        Some((ends.map(|end| &path[..end]).find(is_unit)?, unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let reading = |cgroup_id, container: &str, pod: &str| ContainerReading {
            cgroup_id,
            container: Some(container).filter(|name| !name.is_empty()).map(Into::into),
            pod: Some(pod).filter(|name| !name.is_empty()).map(Into::into),
            namespace: Some("shop").filter(|_| !pod.is_empty()).map(Into::into),
        };
        let cgroups = [
            (2, "/kubepods/pod1"),
            (3, "/kubepods/pod1/c"),
            (4, "/docker/d"),
            (5, "/kubepods/pod1/nameless"),
        ];
        let containers =
            [reading(2, "", "cart"), reading(3, "api", "cart"), reading(4, "web", ""), reading(5, "", "")];
        Names::new(&cgroups.map(|(id, path)| (id, path.into())), &containers)
    }

    #[test]
    fn containers_pods_and_units_have_short_names() {
        let names = names();
        for (path, name, leaf) in [
            ("/kubepods/pod1", "shop/cart", "shop/cart"),
            ("/kubepods/pod1/c", "shop/cart (api)", "api"),
            ("/kubepods/pod1/c/init", "shop/cart (api)/init", "init"),
            ("/kubepods/pod1/nameless", "shop/cart/nameless", "nameless"),
            ("/docker/d", "container web", "container web"),
            ("/system.slice/web.service", "web.service", "web.service"),
            ("/system.slice/web.service/a/b", "web.service/a/b", "b"),
            ("/system.slice/a\\x2db.service", "a-b.service", "a-b.service"),
            ("/system.slice", "/system.slice", "system.slice"),
            ("/kubepods/pod2", "/kubepods/pod2", "pod2"),
            ("/", "/", "/"),
        ] {
            assert_eq!((&*names.of(path), &*names.leaf(path)), (name, leaf), "{path}");
        }
        let paths = Names { only_paths: true, ..names };
        assert_eq!(paths.of("/system.slice/web.service"), "/system.slice/web.service");
        assert_eq!((&*paths.of("/docker/d"), &*paths.leaf("/docker/d")), ("/docker/d", "d"));
    }

    #[test]
    fn a_pod_is_selected_by_its_name_and_a_container_by_name_or_id() {
        let names = names();
        let (pod, inside) = ("/kubepods/pod1", "/kubepods/pod1/c/init");
        for wanted in ["shop/cart", "cart"] {
            assert_eq!(names.cgroup_of_pod(inside, wanted), Some(pod), "{wanted}");
            assert_eq!(names.cgroup_of_pod("/docker/d", wanted), None);
        }
        for wanted in ["shop/cart2", "shopcart", "sho/pcart", "shop", "/cart", ""] {
            assert_eq!(names.cgroup_of_pod(inside, wanted), None, "{wanted}");
        }
        assert_eq!(names.cgroup_of_container(inside, "api"), Some("/kubepods/pod1/c"));
        let id = "0123456789abcdef".repeat(4);
        let path = format!("/docker/{id}/x");
        assert_eq!(names.cgroup_of_container(&path, &id[..SHORTEST_ID]), Some(&path[..path.len() - 2]));
        for wanted in ["0123", "123456789abc", "api"] {
            assert_eq!(names.cgroup_of_container(&path, wanted), None, "{wanted}");
        }
    }

    #[test]
    fn a_name_that_is_unknown_or_ambiguous_is_one_sentence() {
        let reading = |cgroup_id, namespace: &str, container: Option<&str>| ContainerReading {
            cgroup_id,
            container: container.map(Into::into),
            pod: Some("cart".into()),
            namespace: Some(namespace.into()),
        };
        let paths = ["/kubepods/a", "/kubepods/a/c", "/kubepods/b", "/kubepods/b/c"];
        let cgroups: Vec<(u64, Arc<str>)> = (1..).zip(paths.map(Into::into)).collect();
        let containers = [
            reading(1, "dev", None),
            reading(2, "dev", Some("api")),
            reading(3, "shop", None),
            reading(4, "shop", Some("api")),
        ];
        let names = Names::new(&cgroups, &containers);
        let said = |pod: Option<&str>, container: Option<&str>| {
            names.check(pod, container, paths.iter()).err().unwrap_or_default()
        };
        for (pod, container, sentence) in [
            (None, None, ""),
            (Some("shop/cart"), None, ""),
            (Some("shop/cart"), Some("api"), ""),
            (Some("shop/cast"), None, "there is no pod shop/cast on this host; similar: shop/cart"),
            (
                Some("cart"),
                None,
                "several have the name of pod cart: dev/cart, shop/cart; give NAMESPACE/NAME",
            ),
            (
                None,
                Some("api"),
                "several have the name of container api: dev/cart (api), shop/cart (api); give its id, or --pod with it",
            ),
            (Some("shop/cart"), Some("app"), "there is no container app on this host; similar: api"),
            (None, Some("zzz"), "there is no container zzz on this host"),
        ] {
            assert_eq!(said(pod, container), sentence);
        }
        let nobody = Names::default().check(Some("a/b"), None, paths.iter()).unwrap_err();
        assert!(nobody.contains("no container runtime of this host reports names"), "{nobody}");
    }
}
