//! Commands that change the limits of a systemd unit.

use super::{container_id, unit};

/// The `systemctl` command that sets a property of the unit whose cgroup this is, without the value.
///
/// `None`: systemd does not set the limits of this cgroup. It overwrites limits that are written to the files of a unit, but
/// container runtimes set those of their scopes and slices.
pub fn set_property(path: &str, property: &str) -> Option<String> {
    let (above, last) = path.rsplit_once('/')?;
    // A user's own manager has all units below `user@UID.service`.
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

/// The name as a shell reads it: users choose the names of their units. `None`: it has a quote or a control character.
fn quoted(name: &str) -> Option<String> {
    if name.bytes().all(|c| c.is_ascii_alphanumeric() || b"@:._-".contains(&c)) {
        return Some(name.to_owned());
    }
    (!name.contains(|c: char| c == '\'' || c.is_control())).then(|| format!("'{name}'"))
}

#[cfg(test)]
mod tests {
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
