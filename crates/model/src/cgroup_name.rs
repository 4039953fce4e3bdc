//! Finds the owner of a cgroup in its path, and the command that changes the limits of a systemd unit. systemd, container
//! runtimes and Kubernetes write the owner into the path.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Names found in a path; `None`: not in the path. The owner of a cgroup may create child cgroups named like another owner's pod,
/// container or service. So a name counts only where systemd or a container runtime creates it: below the parents of `is_parent`.
/// If names of one kind are nested, the outermost name counts. Everything inside a container (a kind node, a pod of Docker in
/// Docker) belongs to that container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupName {
    /// The systemd unit (`nginx.service`); not a slice, and not the scope of a container. With a container: the unit that runs
    /// inside the container, or the user manager that owns it (see `is_rootless`).
    pub unit: Option<String>,
    /// The container's id: 64 hexadecimal digits.
    pub container: Option<String>,
    /// The pod's uid, with dashes.
    pub pod_uid: Option<String>,
    /// True if a user, not a runtime of root, chose the container's id: its cgroup is below `user@UID.service`.
    pub is_rootless: bool,
}

/// Replaces the path of a cgroup that was removed before its path was read, or that the kernel did not report.
pub const UNNAMED: &str = "(unnamed cgroup)";

/// Services of runtimes that create container cgroups below their own cgroup. containerd does this if its cgroup driver differs
/// from the kubelet's (`/system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID`).
const RUNTIMES: [&str; 3] = ["containerd.service", "crio.service", "docker.service"];
/// Parents of containers and pods with the cgroupfs driver: Docker, the kubelet, Podman, containerd and ECS.
const PARENTS: &[&str] = &["docker", "kubepods", "burstable", "besteffort", "libpod_parent", "k8s.io", "ecs"];

impl CgroupName {
    pub fn of(path: &str) -> Self {
        let mut name = Self::default();
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let (mut above, mut is_kubepods) = ("", false);
        while let Some(part) = parts.next() {
            if let Some(id) = container_id(part).filter(|_| !is_podman_pod(part, above)) {
                let inside = parts.take_while(|part| container_id(part).is_none()).find_map(unit);
                return Self { container: Some(id.to_owned()), unit: inside, ..name };
            }
            if name.pod_uid.is_some() {
                break;
            }
            if let Some(uid) = pod_uid(part).filter(|_| is_kubepods) {
                name.pod_uid = Some(uid);
            } else if let Some(unit) = unit(part) {
                name.unit = Some(unit);
                // All cgroups below `user@1000.service` belong to that user.
                if part.strip_prefix("user@").is_some_and(|rest| rest.ends_with(".service")) {
                    name.container = parts.find_map(container_id).map(str::to_owned);
                    name.is_rootless = name.container.is_some();
                }
                if !RUNTIMES.contains(&part) {
                    break;
                }
            } else if !is_parent(part, above) {
                break;
            }
            is_kubepods |= matches!(part, "kubepods" | "kubepods.slice");
            above = part;
        }
        name
    }
}

/// True if only root, systemd and the runtimes create cgroups directly below this one: slices (`Delegate=` does not apply to
/// them), [`PARENTS`], Podman pods, and ECS tasks, which are below `ecs`.
fn is_parent(part: &str, above: &str) -> bool {
    part.ends_with(".slice") || PARENTS.contains(&part) || above == "ecs" || is_podman_pod(part, above)
}

/// True for the cgroup of a Podman pod with the cgroupfs driver: `libpod_parent/<id of the pod>/libpod-<id>`.
fn is_podman_pod(part: &str, above: &str) -> bool {
    above == "libpod_parent" && container_id(part) == Some(part)
}

/// Returns the name of a container without its runtime: `container 0123456789ab`. `None`: not a container's cgroup. crun adds one
/// more cgroup, named `container`, for the container's processes.
pub(crate) fn container_words(path: &str) -> Option<String> {
    let own = path.strip_suffix("/container").unwrap_or(path);
    let id = CgroupName::of(own)
        .container
        .filter(|id| own.rsplit('/').next().and_then(container_id) == Some(id))?;
    Some(format!("container {}", &id[..12]))
}

/// Replaces the parts of a path that change with each start: container ids (`<container>`), pod uids (`<pod>`), and the numbers
/// of systemd sessions and transient units (`<n>`). Two paths that become equal are likely the same service.
pub fn without_ids(path: &str) -> String {
    path.split('/').map(part_without_ids).collect::<Vec<_>>().join("/")
}

fn part_without_ids(part: &str) -> String {
    if let Some(id) = container_id(part) {
        return part.replace(id, "<container>");
    }
    if pod_uid(part).is_some()
        && let Some(at) = part.rfind("pod")
    {
        let end = if part.ends_with(".slice") { ".slice" } else { "" };
        return format!("{}<pod>{end}", &part[..at + 3]);
    }
    TRANSIENT.replace(part, "$1<n>.$2").into()
}

/// Systemd sessions and transient units.
static TRANSIENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)^(session-|run-[urp]?)[[:xdigit:]]+(?:-.*)?\.(scope|service)$")
        .expect("a valid expression")
});

/// Returns the uid in `pod<uid>` (cgroupfs driver) or `kubepods-burstable-pod<uid with underscores>.slice` (systemd driver).
fn pod_uid(part: &str) -> Option<String> {
    let inner = part.strip_suffix(".slice").filter(|inner| inner.starts_with("kubepods")).unwrap_or(part);
    let (before, uid) = inner.rsplit_once("pod")?;
    if !before.is_empty() && !before.starts_with("kubepods") {
        return None;
    }
    let uid = uid.replace('_', "-");
    // A static pod's uid is a hash without dashes.
    let digits = uid.chars().filter(|c| *c != '-').count();
    let is_uid = digits == 32 && uid.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    is_uid.then_some(uid)
}

/// Returns the 64-digit id, alone or in `docker-<id>.scope`, `cri-containerd-<id>.scope`, `crio-<id>.scope`, `libpod-<id>.scope`.
fn container_id(part: &str) -> Option<&str> {
    let id = part.strip_suffix(".scope").unwrap_or(part).rsplit(['-', ':']).next()?;
    (id.len() == 64 && id.bytes().all(|c| c.is_ascii_hexdigit())).then_some(id)
}

/// Returns the name of a unit that runs processes. systemd writes special characters as `\x2d`.
pub(crate) fn unit(part: &str) -> Option<String> {
    let is_unit = [".service", ".scope", ".socket", ".mount", ".swap"].iter().any(|end| part.ends_with(end));
    let unescaped =
        |code: &Captures| char::from(u8::from_str_radix(&code[1], 16).unwrap_or(b'?')).to_string();
    is_unit.then(|| ESCAPED.replace_all(part, unescaped).into())
}

/// Codes of printable characters.
static ESCAPED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\\x([2-6][[:xdigit:]]|7[0-9a-eA-E])").expect("a valid expression"));

/// Returns the `systemctl` command, without the value, that sets a property of a cgroup's unit. systemd overwrites limits that
/// are written to a unit's files. `None`: systemd does not set its limits, as those of container runtimes' scopes and slices.
pub fn set_property(path: &str, property: &str) -> Option<String> {
    let (above, last) = path.rsplit_once('/')?;
    // The user's own manager is the parent of all units below `user@UID.service`.
    let (above, manager, below) = match above.split_once("/user@") {
        Some((above, user)) => {
            let is_end = |rest: &str| rest.is_empty() || rest.starts_with('/');
            let (uid, below) = user.split_once(".service").filter(|(_, below)| is_end(below))?;
            (above, format!("systemctl --user -M {}@", uid.parse::<u32>().ok()?), below)
        }
        None => (above, "systemctl".to_owned(), ""),
    };
    let is_slice = |part: &str| part.ends_with(".slice") && !part.starts_with("kubepods");
    let are_slices = above.split('/').chain(below.split('/')).all(|part| part.is_empty() || is_slice(part));
    let is_set = (is_slice(last) || unit(last).is_some()) && container_id(last).is_none();
    (are_slices && is_set).then_some(())?;
    Some(format!("{manager} set-property {} {property}=", quoted(last)?))
}

/// Quotes a name for a shell, because users name their units. `None`: the name has a quote or a control character.
fn quoted(name: &str) -> Option<String> {
    if name.bytes().all(|c| c.is_ascii_alphanumeric() || b"@:._-".contains(&c)) {
        return Some(name.to_owned());
    }
    (!name.contains(|c: char| c == '\'' || c.is_control())).then(|| format!("'{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "7f3a1b2c-0d4e-4f5a-8b6c-9d0e1f2a3b4c";

    fn words(path: &str) -> Option<String> {
        let name = CgroupName::of(path);
        let container = name.container.as_ref().map(|id| format!("container {}", &id[..12]));
        let pod = name.pod_uid.as_ref().map(|uid| format!("pod {uid}"));
        let placed = match (container, pod) {
            (Some(container), Some(pod)) => Some(format!("{container} of {pod}")),
            (one, other) => one.or(other),
        };
        match (name.unit, placed) {
            (Some(unit), Some(placed)) if name.is_rootless => Some(format!("{placed} of {unit}")),
            (Some(unit), Some(placed)) => Some(format!("{unit} in {placed}")),
            (unit, placed) => unit.or(placed),
        }
    }

    #[test]
    fn services_are_named_by_their_unit() {
        assert_eq!(words("/system.slice/nginx.service").as_deref(), Some("nginx.service"));
        assert_eq!(words("/system.slice/a\\x2db.service/pool").as_deref(), Some("a-b.service"));
        assert_eq!(words("/user.slice/user-1000.slice"), None);
        assert_eq!(words("/"), None);
    }

    #[test]
    fn containers_of_all_runtimes_and_drivers_are_named_by_id_and_pod() {
        let short = "container 0123456789ab";
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
        ] {
            assert_eq!(words(&path).as_deref(), Some(short), "{path}");
        }
        for path in [
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{ID}.scope",
                UID.replace('-', "_")
            ),
        ] {
            assert_eq!(words(&path), Some(format!("{short} of pod {UID}")), "{path}");
        }
        let static_pod = "/kubepods/pod0123456789abcdef0123456789abcdef";
        assert_eq!(words(static_pod).as_deref(), Some("pod 0123456789abcdef0123456789abcdef"));
    }

    #[test]
    fn similar_names_are_not_recognised() {
        for path in ["/podium", "/podman", "/abc-pod-1", "/0123456789abcdef", "/a\\xzz"] {
            assert_eq!(words(path), None, "{path}");
        }
        assert_eq!(words("/a\\xzz\\x2d.service").as_deref(), Some("a\\xzz-.service"));
        assert_eq!(words("/é\\x").as_deref(), None);
    }

    #[test]
    fn only_parts_that_change_with_each_start_are_removed_from_a_path() {
        let other = UID.replace('7', "8");
        for (path, form) in [
            (format!("/docker/{ID}"), "/docker/<container>"),
            (format!("/system.slice/docker-{ID}.scope"), "/system.slice/docker-<container>.scope"),
            (format!("/kubepods/burstable/pod{UID}/{ID}"), "/kubepods/burstable/pod<pod>/<container>"),
            (
                format!("/kubepods-besteffort-pod{}.slice", other.replace('-', "_")),
                "/kubepods-besteffort-pod<pod>.slice",
            ),
            ("/user.slice/session-12.scope".into(), "/user.slice/session-<n>.scope"),
            ("/system.slice/run-u47.service".into(), "/system.slice/run-u<n>.service"),
            ("/system.slice/run-r0f3c.scope".into(), "/system.slice/run-r<n>.scope"),
            ("/system.slice/web-1.service".into(), "/system.slice/web-1.service"),
            ("/system.slice/run-tests.service".into(), "/system.slice/run-tests.service"),
            ("/".into(), "/"),
        ] {
            assert_eq!(without_ids(&path), form);
        }
    }

    #[test]
    fn a_container_without_a_runtime_is_named_by_its_id() {
        let own = format!("/machine.slice/libpod-{ID}.scope");
        for path in [own.clone(), format!("{own}/container"), format!("/docker/{ID}")] {
            assert_eq!(container_words(&path).as_deref(), Some("container 0123456789ab"), "{path}");
        }
        for path in [format!("{own}/jobs"), format!("/libpod_parent/{ID}"), "/jobs/container".into()] {
            assert_eq!(container_words(&path), None, "{path}");
        }
    }

    #[test]
    fn a_unit_inside_a_container_is_named_with_the_container() {
        let path = format!("/docker/{ID}/system.slice/db.service");
        assert_eq!(words(&path).as_deref(), Some("db.service in container 0123456789ab"));
    }

    #[test]
    fn a_delegated_cgroup_belongs_to_its_owner_whatever_its_name() {
        let other = UID.replace('7', "8");
        let other_id = ID.replace('0', "f");
        let own = "/kubepods/burstable";
        let pod = format!("kubepods/pod{other}/{other_id}");
        for (path, said) in [
            (format!("{own}/pod{UID}/{ID}/{pod}"), Some(format!("container 0123456789ab of pod {UID}"))),
            (format!("{own}/pod{UID}/{pod}"), Some(format!("pod {UID}"))),
            (format!("/docker/{ID}/{pod}"), Some("container 0123456789ab".into())),
            (format!("/system.slice/ci.service/{pod}"), Some("ci.service".into())),
            (
                format!("/system.slice/ci.service/docker-{other_id}.scope/nginx.service"),
                Some("ci.service".into()),
            ),
            (format!("/user.slice/user-9.slice/session-2.scope/{pod}"), Some("session-2.scope".into())),
            (
                "/user.slice/user-9.slice/user@9.service/app.slice/nginx.service".into(),
                Some("user@9.service".into()),
            ),
            // Subtrees that root delegated to a user by hand.
            (format!("/jobs/{pod}"), None),
            (format!("/jobs/docker-{other_id}.scope"), None),
            ("/jobs/system.slice/nginx.service".into(), None),
            (format!("/lxc.payload.a/{pod}"), None),
            // Names that no kubelet created.
            (format!("/a.slice/pod{other}"), None),
        ] {
            assert_eq!(words(&path), said, "{path}");
        }
    }

    #[test]
    fn the_outermost_of_nested_runtimes_counts() {
        let inner = ID.replace('0', "f");
        let short = Some("container 0123456789ab");
        for path in [
            // kind runs a kubelet in a container.
            format!(
                "/system.slice/docker-{ID}.scope/kubelet.slice/kubelet-kubepods.slice/\
                 kubelet-kubepods-pod{}.slice/cri-containerd-{inner}.scope",
                UID.replace('-', "_")
            ),
            format!("/docker/{ID}/kubelet/kubepods/pod{UID}/{inner}"),
            format!("/docker/{ID}/docker/{inner}"),
            format!("/machine.slice/machine-libpod_pod_{inner}.slice/libpod-{ID}.scope/container"),
            format!("/libpod_parent/{inner}/libpod-{ID}"),
            format!("/libpod_parent/libpod-{ID}/{inner}"),
            format!("/ecs/0123456789abcdef0123456789abcdef/{ID}"),
            format!("/system.slice/containerd.service/kubepods-besteffort-pod1.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!(words(&path).as_deref(), short, "{path}");
        }
    }

    #[test]
    fn a_pod_of_podman_is_not_a_container() {
        assert_eq!(words(&format!("/libpod_parent/{ID}")), None);
        assert_eq!(words(&format!("/libpod_parent/{ID}/conmon")), None);
    }

    #[test]
    fn a_rootless_container_is_named_with_its_user() {
        for scope in
            [format!("user.slice/libpod-{ID}.scope/container"), format!("app.slice/docker-{ID}.scope")]
        {
            let path = format!("/user.slice/user-1000.slice/user@1000.service/{scope}");
            assert!(CgroupName::of(&path).is_rootless, "{scope}");
            assert_eq!(words(&path).as_deref(), Some("container 0123456789ab of user@1000.service"));
        }
        assert!(!CgroupName::of(&format!("/docker/{ID}")).is_rootless);
    }
}

#[cfg(test)]
mod systemctl_tests {
    use super::set_property;

    #[test]
    fn limits_of_units_are_set_by_the_manager_that_owns_them() {
        let command = |path: &str| set_property(path, "CPUQuota");
        for (path, words) in [
            ("/system.slice/web.service", "systemctl set-property web.service CPUQuota="),
            ("/shop.slice", "systemctl set-property shop.slice CPUQuota="),
            ("/shop.slice/a\\x2db.service", "systemctl set-property 'a\\x2db.service' CPUQuota="),
            ("/user.slice/user-9.slice/session-2.scope", "systemctl set-property session-2.scope CPUQuota="),
            ("/user.slice/user-9.slice/user@9.service", "systemctl set-property user@9.service CPUQuota="),
            (
                "/user.slice/user-9.slice/user@9.service/app.slice/burn.service",
                "systemctl --user -M 9@ set-property burn.service CPUQuota=",
            ),
            (
                "/user.slice/user-9.slice/user@9.service/$(reboot).service",
                "systemctl --user -M 9@ set-property '$(reboot).service' CPUQuota=",
            ),
        ] {
            assert_eq!(command(path).as_deref(), Some(words), "{path}");
        }
        let id = "0123456789abcdef".repeat(4);
        for path in [
            "/",
            "/render",
            "/system.slice/web.service/pool",
            "/docker/web.service",
            "/kubepods.slice/kubepods-burstable.slice",
            &format!("/system.slice/docker-{id}.scope"),
            &format!("/machine.slice/libpod-{id}.scope/container"),
            "/user.slice/user-9.slice/user@9.service/ci.service/jobs.service",
            "/user.slice/user-9.slice/user@9.service/'.service",
            "/system.slice/ci.service/user@0.service/jobs.service",
            "/user.slice/user@x.service/jobs.service",
            "/user.slice/user@9.services/jobs.service",
        ] {
            assert_eq!(command(path), None, "{path}");
        }
    }
}
