//! The service of the package, in the sandbox that systemd creates for it. The test boots a clean Debian as a container on this
//! kernel.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::{CleanRoot, package};

/// Shell script with the checks that run in the booted container. A check fails if its commands fail.
const CHECKS: &str = r#"#!/bin/bash
check() { name=$1; shift; if "$@" >> /details 2>&1; then echo "ok $name"; else echo "failed $name"; fi >> /result; }
starts() { systemctl start cgscope.service && systemctl is-active cgscope.service; }
status_of_service() { cat "/proc/$(systemctl show -P MainPID cgscope.service)/status"; }
confined() {
    status_of_service > /status && cat /status &&
    grep -Eq "^Uid:[[:space:]]+$(id -u cgscope)[[:space:]]" /status &&
    grep -Eq '^Cap(Prm|Eff|Bnd|Amb):[[:space:]]+0+$' /status && ! grep -Eq '^Cap(Prm|Eff|Bnd|Amb):.*[1-9a-f]$' /status &&
    grep -Eq '^NoNewPrivs:[[:space:]]+1$' /status && grep -Eq '^Seccomp:[[:space:]]+2$' /status
}
in_a_group_of_its_own() {
    status_of_service > /status &&
    grep -Eq "^Gid:[[:space:]]+$(getent group cgscope-daemon | cut -d: -f3)[[:space:]]" /status &&
    ! grep -Eq "^Groups:.*[[:space:]]$(getent group cgscope-admin | cut -d: -f3)[[:space:]]" /status
}
serves() { cgscope hist --connect /run/cgscope.sock 0.5 1 | grep usecs; }
records() { cgscope record --connect /run/cgscope.sock -i 0.2 -d 1 -o /tmp/a.rec; [ -s /tmp/a.rec ]; }
lets_viewers_in() {
    useradd -G cgscope-admin alice && su alice -c 'cgscope top -b -n 1 -d 0.5' | grep 'whole host, through the daemon'
}
keeps_strangers_out() { useradd bob && ! su bob -c 'cgscope hist --connect /run/cgscope.sock 0.5 1'; }
# They were restricted viewers in older versions.
keeps_members_of_cgscope_out() {
    useradd -G cgscope carol && ! su carol -c 'cgscope hist --connect /run/cgscope.sock 0.5 1' 2> /said &&
    cat /said && grep 'ask an administrator to add you' /said
}
exports() {
    exec 3<> /dev/tcp/127.0.0.1/9753 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 &&
    grep '^cgscope_runqueue_wait_seconds_count' <&3
}
# The daemon reads its configuration after `systemctl reload` has ended.
says() {
    for _ in $(seq 50); do
        journalctl -u cgscope.service | grep "$1" && return
        sleep 0.2
    done
    false
}
reloads() { systemctl reload cgscope.service && says 'was read again'; }
# `htpasswd -nbB -C 5 prometheus secret`
warns_of_what_viewers_can_read() {
    echo 'prometheus:$2y$05$lLuTxFE7iYFzL8rEtGucWO8vRpMYD8VBC7IWogqswUzsfRhwYzk4O' > /etc/cgscope/users
    chgrp cgscope-admin /etc/cgscope/users && chmod 640 /etc/cgscope/users
    sed -i 's|^#users = |users = |' /etc/cgscope/cgscope.toml && systemctl reload cgscope.service
    says 'viewers (group cgscope-admin) can read /etc/cgscope/users' || return
    chgrp cgscope-daemon /etc/cgscope/users && systemctl restart cgscope.service &&
    ! su alice -c 'cat /etc/cgscope/users' &&
    journalctl -u cgscope.service -n 5 | grep 'serving viewers' && ! journalctl -u cgscope.service -n 5 | grep 'viewers (group'
}
comes_back() {
    systemctl kill -s KILL cgscope.service
    for _ in $(seq 50); do
        [ "$(systemctl show -P NRestarts cgscope.service)" = 1 ] && systemctl is-active cgscope.service && serves && return
        sleep 0.2
    done
    false
}
ends() { systemctl stop cgscope.socket cgscope.service && [ "$(systemctl show -P Result cgscope.service)" = success ]; }
# Where waiting connections are handed over.
starts_by_its_socket() { systemctl start cgscope.socket && serves && systemctl is-active cgscope.service; }

for name in starts confined in_a_group_of_its_own serves records lets_viewers_in keeps_strangers_out \
    keeps_members_of_cgscope_out exports reloads warns_of_what_viewers_can_read comes_back ends starts_by_its_socket; do
    check $name $name
done
journalctl -u cgscope.service >> /details
systemctl poweroff
"#;

const UNIT: &str =
    "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/checks\n[Install]\nWantedBy=multi-user.target\n";

/// Removes, on drop, the cgroups that the container of this test has left behind. A container leaves cgroups behind on a host
/// without systemd.
struct Leftovers(Vec<PathBuf>);

impl Leftovers {
    fn new() -> Self {
        let hierarchies =
            fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        let places = hierarchies.flat_map(|mount| ["payload", "supervisor"].map(|name| mount.join(name)));
        Self(places.filter(|place| !place.exists()).collect())
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.0.iter().for_each(|place| remove(place));
    }
}

fn remove(cgroup: &Path) {
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).for_each(|path| remove(&path));
    let _ = fs::remove_dir(cgroup);
}

/// Boots the container and waits until it has shut down. Returns its console output.
fn boot(root: &Path) -> String {
    let mut container = Command::new("timeout");
    container.args(["--kill-after=10", "150", "systemd-nspawn", "--quiet", "--private-network", "--boot"]);
    // By default, a container cannot use BPF.
    container.args(["--capability=CAP_BPF,CAP_PERFMON", "--system-call-filter=bpf perf_event_open"]);
    container.arg(format!("--machine=cgscope-test-{}", std::process::id())).arg("--directory").arg(root);
    if !Path::new("/run/systemd/system").exists() {
        // On a host without systemd, no service manager can register the container.
        container.args(["--register=no", "--keep-unit"]);
    }
    let output = container.output().expect("systemd-nspawn");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_service_works_in_its_sandbox() {
    let root = CleanRoot::new();
    fs::copy(package(".deb"), root.path("cgscope.deb")).expect("a package");
    root.done(&["dpkg", "-i", "/cgscope.deb"]);
    fs::write(root.path("checks"), CHECKS).expect("a root of ours");
    fs::set_permissions(root.path("checks"), fs::Permissions::from_mode(0o755)).expect("a file of ours");
    fs::write(root.path("etc/systemd/system/checks.service"), UNIT).expect("a root of ours");
    let wants = root.path("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).expect("a root of ours");
    symlink("/etc/systemd/system/checks.service", wants.join("checks.service")).expect("a root of ours");
    let _leftovers = Leftovers::new();

    let console = boot(root.0.path());
    let read = |file| fs::read_to_string(root.path(file)).unwrap_or_default();
    let result = read("result");
    eprintln!("{result}");
    let (_, checks) = CHECKS.split_once("for name in ").expect("a list");
    let (checks, _) = checks.split_once(';').expect("its end");
    let names = checks.split_whitespace().filter(|name| *name != "\\");
    let expected: Vec<String> = names.map(|name| format!("ok {name}")).collect();
    assert_eq!(result.lines().collect::<Vec<_>>(), expected, "{}\n{console}", read("details"));
}
