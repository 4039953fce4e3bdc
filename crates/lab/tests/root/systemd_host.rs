//! Tests on a host with systemd as the first process and cgroup v2: units, slices, users and containers.
//!
//! `cargo xtask lab systemd` boots such a host. Nothing else runs on this host, so tests can give their services simple names.

mod containers;
mod guide;
mod users;

use std::{fs, process::Command, thread};

use serde_json::{Value, json};

use crate::{
    bench::{stderr, stdout},
    runtimes::{
        BUSY, COMMANDS, QUOTA_US, assert_is_throttled, assert_is_throttled_in_all_commands, cgroups, measure,
    },
};

/// Runs a program to its end. Returns its standard output, trimmed.
fn done(words: &[&str]) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    assert!(output.status.success(), "{words:?}: {}\n{}", output.status, stderr(&output));
    stdout(&output).trim().to_owned()
}

/// Services that a test has started, and units whose settings the test has changed. Drop stops the services and restores the
/// settings.
#[derive(Default)]
struct Units {
    services: Vec<String>,
    limited: Vec<String>,
}

impl Units {
    /// Starts a service with a busy loop. `settings` are options of systemd-run.
    fn busy(name: &str, settings: &[&str]) -> Self {
        Self::service(name, settings, BUSY)
    }

    fn service(name: &str, settings: &[&str], script: &str) -> Self {
        // Escape `$`, because systemd expands variables in commands.
        let script = script.replace('$', "$$");
        done(&[&["systemd-run", "--quiet", "--unit", name], settings, &["sh", "-c", &script]].concat());
        Self { services: vec![name.to_owned()], limited: Vec::new() }
    }

    fn limit(&mut self, unit: &str, properties: &[&str]) {
        done(&[&["systemctl", "set-property", "--runtime", unit], properties].concat());
        self.limited.push(unit.to_owned());
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        for (word, units) in [("stop", &self.services), ("revert", &self.limited)] {
            if !units.is_empty() {
                let _ = Command::new("systemctl").arg(word).args(units).output();
            }
        }
    }
}

fn at_the_same_time<const N: usize>(commands: [Vec<&str>; N]) -> [Value; N] {
    thread::scope(|scope| {
        let running = commands.map(|command| scope.spawn(move || measure(&command)));
        running.map(|one| one.join().expect("an interval"))
    })
}

fn row<'i>(interval: &'i Value, path: &str) -> &'i Value {
    let [row] = cgroups(interval, "path", path)[..] else { panic!("not one row of {path}: {interval}") };
    row
}

fn rows(interval: &Value) -> Vec<(&str, &str)> {
    let all = interval["cgroups"].as_array().expect("cgroups").iter();
    all.map(|row| (row["path"].as_str().expect("a path"), row["name"].as_str().expect("a name"))).collect()
}

/// Returns the finding about a cgroup that ran out of quota.
fn finding<'i>(interval: &'i Value, path: &str) -> &'i Value {
    let findings = interval["findings"].as_array().expect("findings");
    let found = findings.iter().find(|one| one["rule"] == "throttled" && one["cgroup"] == path);
    found.unwrap_or_else(|| panic!("{path}: {findings:?}"))
}

/// Runs the command in the advice of the finding. Checks that this command doubles the limit of the cgroup.
fn assert_advice_helps(interval: &Value, path: &str) {
    let advice = finding(interval, path)["advice"].as_str().expect("a text");
    let command = advice.strip_prefix("raise its limit: ").unwrap_or_else(|| panic!("no command: {advice}"));
    done(&["sh", "-c", command.split([';', ',']).next().expect("a command")]);
    let limit = fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.max")).expect("a limit");
    assert_eq!(limit.trim(), format!("{} 100000", 2 * QUOTA_US), "{advice}");
}

fn says<'i>(interval: &'i Value, path: &str) -> &'i str {
    finding(interval, path)["says"].as_str().expect("a sentence")
}

#[test]
fn a_service_has_its_name_and_quota_and_is_selected_by_both_name_and_path() {
    let _web = Units::busy("web.service", &["--property=CPUQuota=20%"]);
    let path = "/system.slice/web.service";
    assert_is_throttled_in_all_commands(path, None, None);
    let expected = [("/", "/"), ("/system.slice", "/system.slice"), (path, "web.service")];
    let selections = [["--unit", "web.service"], ["--unit", "web"], ["--cgroup", path]];
    let intervals = at_the_same_time(selections.map(|selection| [COMMANDS[0], &selection].concat()));
    let figures = |interval: &Value| {
        let of = |key: &str| row(interval, path)[key].as_f64().expect("a figure");
        ["usage_ns", "throttled_ns", "nr_periods", "nr_throttled"].map(of)
    };
    for (selection, interval) in selections.iter().zip(&intervals) {
        assert_eq!(rows(interval), expected, "{selection:?}");
        for (by_name, by_path) in figures(interval).into_iter().zip(figures(&intervals[2])) {
            assert!((0.7..1.4).contains(&(by_name / by_path)), "{selection:?}: {by_name}, not {by_path}");
        }
        assert_is_throttled(interval, path, None, None);
        let web = row(interval, path);
        assert_eq!((&web["unit"], &web["threads"]), (&"web.service".into(), &1.into()), "{web}");
        assert!(says(interval, path).starts_with("web.service: its quota (0.2 CPUs: "), "{interval}");
    }
}

#[test]
fn a_slice_limits_the_services_below_it_whose_own_quotas_are_larger() {
    let mut units = Units::busy("cart.service", &["--slice=shop-cart.slice", "--property=CPUQuota=150%"]);
    let _web = Units::busy("shop-web.service", &["--slice=shop.slice"]);
    units.limit("shop.slice", &["CPUQuota=20%"]);
    let (shop, cart) = ("/shop.slice", "/shop.slice/shop-cart.slice/cart.service");
    for command in COMMANDS {
        let interval = measure(command);
        assert_is_throttled(&interval, shop, None, None);
        let figures =
            |path| ["quota_us", "limited_by", "effective_cores"].map(|key| row(&interval, path)[key].clone());
        assert_eq!(figures(cart), [json!(150_000), json!(shop), json!(0.2)]);
        for path in ["/shop.slice/shop-cart.slice", "/shop.slice/shop-web.service"] {
            assert_eq!(figures(path), [Value::Null, json!(shop), json!(0.2)], "{path}");
        }
        let throttled = |path| row(&interval, path)["wait"]["by_cause"]["throttled_ns"].as_u64();
        assert!(throttled(cart) > Some(0), "{interval}");
        let duration_ns = interval["duration_ns"].as_u64().expect("a duration");
        assert!(throttled(shop) > Some(duration_ns / 2), "{interval}");
        assert!(says(&interval, shop).starts_with("/shop.slice: its quota"), "{interval}");
        assert_eq!(row(&interval, cart)["nr_throttled"], 0, "its own quota is never used up");
    }
    assert_advice_helps(&measure(COMMANDS[0]), shop);
}

#[test]
fn weights_are_those_of_the_units() {
    let _units = [
        Units::busy("heavy.service", &["--property=CPUWeight=300"]),
        Units::busy("plain.service", &[]),
        Units::busy("idle.service", &["--property=CPUWeight=idle"]),
    ];
    let interval = measure(COMMANDS[0]);
    let weight = |unit: &str| &row(&interval, &format!("/system.slice/{unit}.service"))["weight"];
    assert_eq!([weight("heavy"), weight("plain")], [&json!(300), &json!(100)], "{interval}");
    // For this service, systemd writes to `cpu.idle`, and then the kernel reports the smallest weight.
    assert_eq!(weight("idle"), &1, "{interval}");
}

#[test]
fn a_service_with_delegated_cgroups_has_a_row_and_a_quota_for_each() {
    let script = "own=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
        mkdir $own/pool && echo $$ > $own/pool/cgroup.procs &&
        echo +cpu > $own/cgroup.subtree_control && echo '20000 100000' > $own/pool/cpu.max
        BUSY"
        .replace("BUSY", BUSY);
    let _units = Units::service("builder.service", &["--property=Delegate=yes"], &script);
    let (service, pool) = ("/system.slice/builder.service", "/system.slice/builder.service/pool");
    assert_is_throttled_in_all_commands(pool, None, None);
    let interval = measure(&[COMMANDS[0], &["--unit", "builder"]].concat());
    let paths: Vec<&str> = rows(&interval).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/", "/system.slice", service, pool]);
    let units = |path| &row(&interval, path)["unit"];
    assert_eq!([units(service), units(pool)], [&json!("builder.service"); 2]);
    assert_eq!(row(&interval, service)["quota_us"], Value::Null);
    assert!(says(&interval, pool).starts_with("builder.service/pool: its quota"), "{interval}");
}
