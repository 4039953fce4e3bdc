mod nodes;

use std::fs;

use super::*;

struct Fake(PathBuf);

impl Fake {
    fn new(name: &str, mountinfo: &str) -> Self {
        let root = std::env::temp_dir().join(format!("cgscope-limits-{}-{name}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root).file("proc/self/mountinfo", mountinfo)
    }

    fn file(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    fn files(self, directory: &str, files: &[(&str, &str)]) -> Self {
        files.iter().fold(self, |host, (name, text)| host.file(&format!("{directory}/{name}"), text))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn id(&self, directory: &str) -> u64 {
        fs::metadata(self.0.join(directory)).unwrap().ino()
    }

    fn limits(&self) -> LimitFiles {
        LimitFiles::new(&self.0)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset,clone_children
";

const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

const STAT_V2: &str = "usage_usec 900\nuser_usec 600\nsystem_usec 300\nnice_usec 1\ncore_sched.force_idle_usec 0\n\
    nr_periods 10\nnr_throttled 4\nthrottled_usec 70\nnr_bursts 2\nburst_usec 5\n";

const STAT_V1: &str =
    "nr_periods 10\nnr_throttled 4\nthrottled_time 70001\nwait_sum 9\nnr_bursts 2\nburst_time 5002\n";

const PRESSURE: &str = "some avg10=0.00 avg60=0.02 avg300=2.43 total=1046\n\
    full avg10=0.00 avg60=0.00 avg300=0.00 total=12\n";

const ALL_V2: [(&str, &str); 8] = [
    ("cpu.max", "250000 100000\n"),
    ("cpu.max.burst", "50000\n"),
    ("cpu.weight", "79\n"),
    ("cpu.idle", "0\n"),
    ("cpu.stat", STAT_V2),
    ("cpu.stat.local", "throttled_usec 33\n"),
    ("cpu.pressure", PRESSURE),
    ("cpuset.cpus.effective", "0-3,8\n"),
];

const ALL_V1: [(&str, &str); 10] = [
    ("cpu.cfs_quota_us", "250000\n"),
    ("cpu.cfs_period_us", "100000\n"),
    ("cpu.cfs_burst_us", "50000\n"),
    ("cpu.shares", "2048\n"),
    ("cpu.idle", "1\n"),
    ("cpu.rt_runtime_us", "950000\n"),
    ("cpu.stat", STAT_V1),
    ("cpuacct.usage", "900123\n"),
    ("cpuacct.usage_user", "600001\n"),
    ("cpuacct.usage_sys", "300002\n"),
];

#[test]
fn a_v2_cgroup_with_everything_is_read() {
    let host = Fake::new("v2", V2).files("sys/fs/cgroup/a/b", &ALL_V2);
    let id = host.id("sys/fs/cgroup/a/b");
    let expected = CgroupReading {
        made_after_ns: None,
        id,
        quota_us: Some(250_000),
        period_us: Some(100_000),
        burst_us: Some(50_000),
        weight: Some(79),
        idle: Some(0),
        cpus: Some(5),
        cpuset: Some("0-3,8".into()),
        memory_by_node: Vec::new(),
        usage_ns: Some(900_000),
        user_ns: Some(600_000),
        system_ns: Some(300_000),
        nr_periods: Some(10),
        nr_throttled: Some(4),
        throttled_ns: Some(70_000),
        nr_bursts: Some(2),
        burst_ns: Some(5_000),
        local_throttled_ns: Some(33_000),
        pressure_some_ns: Some(1_046_000),
        pressure_full_ns: Some(12_000),
        ..CgroupReading::default()
    };
    assert_eq!(host.limits().read(id, "/a/b", false), Some(expected));
}

#[test]
fn without_the_cpu_controller_there_is_no_limit_and_the_ancestors_cpuset_applies() {
    let host = Fake::new("bare", V2)
        .files("sys/fs/cgroup/a", &ALL_V2)
        .file("sys/fs/cgroup/a/b/c/cgroup.procs", "")
        .file("sys/fs/cgroup/a/b/c/cpu.stat", "usage_usec 9\nuser_usec 6\nsystem_usec 3\n");
    let id = host.id("sys/fs/cgroup/a/b/c");
    let settings = CgroupReading { id, cpus: Some(5), cpuset: Some("0-3,8".into()), ..Default::default() };
    let mut limits = host.limits();
    assert_eq!(limits.read(id, "/a/b/c", false), Some(settings.clone()));
    let times = (Some(9_000), Some(6_000), Some(3_000));
    let whole = CgroupReading { usage_ns: times.0, user_ns: times.1, system_ns: times.2, ..settings };
    assert_eq!(limits.read(id, "/a/b/c", true), Some(whole));
}

#[test]
fn the_root_of_v2_has_only_cpus() {
    let host = Fake::new("root", V2).file("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n");
    let id = host.id("sys/fs/cgroup");
    let expected = CgroupReading { id, cpus: Some(2), cpuset: Some("0-1".into()), ..Default::default() };
    assert_eq!(host.limits().read(id, "/", true), Some(expected));
}

#[test]
fn without_a_quota_effects_are_read_only_on_request() {
    let host = Fake::new("max", V2)
        .files("sys/fs/cgroup/a", &ALL_V2)
        .file("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    let id = host.id("sys/fs/cgroup/a");
    let mut limits = host.limits();
    let reading = limits.read(id, "/a", false).unwrap();
    assert_eq!((reading.quota_us, reading.period_us, reading.quota_cores()), (None, Some(100_000), None));
    assert_eq!((reading.usage_ns, reading.throttled_ns, reading.pressure_some_ns), (None, None, None));
    let whole = limits.read(id, "/a", true).unwrap();
    assert_eq!((whole.usage_ns, whole.pressure_full_ns), (Some(900_000), Some(12_000)));
    assert_eq!((whole.throttled_ns, whole.local_throttled_ns), (Some(70_000), Some(33_000)));
}

#[test]
fn a_v1_cgroup_is_read_with_cpuacct_in_its_directory_and_cpuset_in_another() {
    let host = Fake::new("v1", V1)
        .files("sys/fs/cgroup/cpu,cpuacct/a", &ALL_V1)
        .file("sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-7\n")
        .file("sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "0-2\n");
    let id = host.id("sys/fs/cgroup/cpu,cpuacct/a");
    let expected = CgroupReading {
        id,
        quota_us: Some(250_000),
        period_us: Some(100_000),
        burst_us: Some(50_000),
        weight: Some(200),
        idle: Some(1),
        rt_runtime_us: Some(950_000),
        cpus: Some(3),
        cpuset: Some("0-2".into()),
        usage_ns: Some(900_123),
        user_ns: Some(600_001),
        system_ns: Some(300_002),
        nr_periods: Some(10),
        nr_throttled: Some(4),
        throttled_ns: Some(70_001),
        nr_bursts: Some(2),
        burst_ns: Some(5_002),
        ..Default::default()
    };
    assert_eq!(host.limits().read(id, "/a", false), Some(expected.clone()));
    // Since Linux 6.6, cgroup v1 has this file, too.
    let host = host.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.stat.local", "throttled_time 31\n");
    let expected = CgroupReading { local_throttled_ns: Some(31), ..expected };
    assert_eq!(host.limits().read(id, "/a", false), Some(expected));
}

#[test]
fn on_a_hybrid_host_the_v1_cpu_hierarchy_is_used() {
    let host = Fake::new("hybrid", HYBRID)
        .file("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n")
        .file("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/cpu/a/cpu.shares", "1024\n")
        .file("sys/fs/cgroup/cpu/a/cpu.stat", STAT_V1)
        .file("sys/fs/cgroup/cpuacct/a/cpuacct.usage", "900123\n")
        .file("sys/fs/cgroup/unified/cpuset.cpus.effective", "0-3\n")
        .file("sys/fs/cgroup/unified/a/cpu.stat", STAT_V2)
        .file("sys/fs/cgroup/unified/a/cpu.pressure", PRESSURE);
    let id = host.id("sys/fs/cgroup/cpu/a");
    let settings = CgroupReading {
        id,
        period_us: Some(100_000),
        weight: Some(100),
        cpus: Some(4),
        cpuset: Some("0-3".into()),
        ..Default::default()
    };
    let mut limits = host.limits();
    assert_eq!(limits.read(id, "/a", false), Some(settings));
    let whole = limits.read(id, "/a", true).unwrap();
    assert_eq!((whole.usage_ns, whole.user_ns), (Some(900_123), None));
    assert_eq!((whole.throttled_ns, whole.pressure_some_ns), (Some(70_001), None));

    // If v2 does not have the cgroup, the limits of ancestors in v2 do not apply to it.
    fs::remove_dir_all(host.0.join("sys/fs/cgroup/unified/a")).unwrap();
    assert_eq!(host.limits().read(id, "/a", false).unwrap().cpus, None);
}

#[test]
fn files_of_a_later_kernel_may_be_missing() {
    let host = Fake::new("old", V2)
        .file("sys/fs/cgroup/a/cpu.max", "250000 100000\n")
        .file("sys/fs/cgroup/a/cpu.stat", "usage_usec 900\nnr_periods 10\n")
        .file("sys/fs/cgroup/a/cpu.pressure", "some avg10=0.00 avg60=0.02 avg300=2.43 total=1046\n");
    let id = host.id("sys/fs/cgroup/a");
    let reading = host.limits().read(id, "/a", false).unwrap();
    assert_eq!((reading.burst_us, reading.nr_bursts, reading.burst_ns), (None, None, None));
    assert_eq!((reading.quota_cores(), reading.nr_periods), (Some(2.5), Some(10)));
    assert_eq!((reading.pressure_some_ns, reading.pressure_full_ns), (Some(1_046_000), None));
}

#[test]
fn removed_and_replaced_cgroups_are_none_and_dropped() {
    let host = Fake::new("gone", V2).files("sys/fs/cgroup/a", &ALL_V2).files("sys/fs/cgroup/b", &ALL_V2);
    let (a, b) = (host.id("sys/fs/cgroup/a"), host.id("sys/fs/cgroup/b"));
    let mut limits = host.limits();
    assert!(limits.read(a, "/a", false).is_some() && limits.read(b, "/b", false).is_some());
    fs::remove_dir_all(host.0.join("sys/fs/cgroup/a")).unwrap();
    assert_eq!(limits.read(a, "/a", true), None);
    fs::rename(host.0.join("sys/fs/cgroup/b"), host.0.join("sys/fs/cgroup/a")).unwrap();
    assert_eq!(limits.read(a, "/a", true), None, "/a now names another cgroup");
    assert_eq!(limits.known.keys().collect::<Vec<_>>(), [&b]);
    assert!(limits.read(b, "/a", false).is_some());
}

#[test]
fn settings_are_re_read_every_fifth_time_and_effects_every_time() {
    let host = Fake::new("fifth", V2).files("sys/fs/cgroup/a", &ALL_V2);
    let id = host.id("sys/fs/cgroup/a");
    let mut limits = host.limits();
    let mut read = || limits.read(id, "/a", false).map(|reading| (reading.weight, reading.nr_throttled));
    assert_eq!(read(), Some((Some(79), Some(4))));
    host.write("sys/fs/cgroup/a/cpu.weight", "80\n");
    host.write("sys/fs/cgroup/a/cpu.stat", "nr_throttled 5\n");
    for _ in 2..=4 {
        assert_eq!(read(), Some((Some(79), Some(5))));
    }
    assert_eq!(read(), Some((Some(80), Some(5))));
    host.write("sys/fs/cgroup/a/cpu.weight", "81\n");
    for _ in 6..=9 {
        assert_eq!(read(), Some((Some(80), Some(5))));
    }
    assert_eq!(read(), Some((Some(81), Some(5))));
}

#[test]
fn cgroups_first_read_together_are_re_read_at_different_times() {
    let names = ["a", "b", "c", "d", "e"];
    let host = names
        .iter()
        .fold(Fake::new("turns", V2), |host, name| host.files(&format!("sys/fs/cgroup/{name}"), &ALL_V2));
    let ids = names.map(|name| host.id(&format!("sys/fs/cgroup/{name}")));
    let mut limits = host.limits();
    let mut changed = || {
        let readings = names.iter().zip(ids).map(|(name, id)| limits.read(id, name, false).unwrap());
        readings.filter(|reading| reading.weight == Some(80)).count()
    };
    assert_eq!(changed(), 0);
    names.iter().for_each(|name| host.write(&format!("sys/fs/cgroup/{name}/cpu.weight"), "80\n"));
    assert_eq!([1, 2, 3, 4, 5], [changed(), changed(), changed(), changed(), changed()]);
}

#[test]
fn many_cgroups_are_re_read_in_turn_a_limited_number_at_once() {
    const COUNT: usize = 60;
    const AT_ONCE: u64 = 4;
    let names: Vec<String> = (0..COUNT).map(|i| format!("c{i}")).collect();
    let host = names.iter().fold(Fake::new("many", V2), |host, name| {
        host.file(&format!("sys/fs/cgroup/{name}/cpu.weight"), "79\n")
    });
    let ids: Vec<u64> = names.iter().map(|name| host.id(&format!("sys/fs/cgroup/{name}"))).collect();
    let mut limits = LimitFiles { settings_at_once: AT_ONCE, ..host.limits() };
    let mut changed = || {
        let readings = names.iter().zip(&ids).map(|(name, id)| limits.read(*id, name, false).unwrap());
        let count = readings.filter(|reading| reading.weight == Some(80)).count() as u64;
        limits.drop_unread();
        count
    };
    assert_eq!(changed(), 0);
    names.iter().for_each(|name| host.write(&format!("sys/fs/cgroup/{name}/cpu.weight"), "80\n"));
    let rounds = COUNT as u64 / AT_ONCE;
    let counts: Vec<u64> = (0..rounds).map(|_| changed()).collect();
    assert_eq!(counts, (1..=rounds).map(|round| round * AT_ONCE).collect::<Vec<_>>());
}

#[test]
fn deferred_settings_are_read_between_two_reads() {
    let host = Fake::new("deferred", V2).files("sys/fs/cgroup/a", &ALL_V2);
    let id = host.id("sys/fs/cgroup/a");
    let mut limits = host.limits();
    limits.read_deferred();
    let weight = |limits: &mut LimitFiles| limits.read(id, "/a", false).map(|reading| reading.weight);
    assert_eq!(weight(&mut limits), Some(Some(79)), "a new cgroup is read at once");
    host.write("sys/fs/cgroup/a/cpu.weight", "80\n");
    for _ in 2..=4 {
        limits.read_deferred();
        assert_eq!(weight(&mut limits), Some(Some(79)));
    }
    limits.read_deferred();
    assert_eq!(weight(&mut limits), Some(Some(80)), "the fifth read, as without deferring");
}

#[test]
fn removal_is_noticed_when_deferred_settings_are_read() {
    let host = Fake::new("gone-deferred", V2).file("sys/fs/cgroup/a/cpu.weight", "79\n");
    let id = host.id("sys/fs/cgroup/a");
    let mut limits = host.limits();
    limits.read_deferred();
    assert!(limits.read(id, "/a", false).is_some());
    fs::remove_dir_all(host.0.join("sys/fs/cgroup/a")).unwrap();
    let read = |limits: &mut LimitFiles| limits.read(id, "/a", false).is_some();
    let reads: Vec<bool> = (2..=4).map(|_| read(&mut limits)).collect();
    assert_eq!(reads, [true; 3]);
    limits.read_deferred();
    assert!(!read(&mut limits) && limits.known.is_empty());
}

#[test]
fn removal_of_a_cgroup_without_a_quota_is_noticed_when_its_settings_are_read() {
    let host = Fake::new("gone-later", V2).file("sys/fs/cgroup/a/cpu.weight", "79\n");
    let id = host.id("sys/fs/cgroup/a");
    let mut limits = host.limits();
    assert!(limits.read(id, "/a", false).is_some());
    fs::remove_dir_all(host.0.join("sys/fs/cgroup/a")).unwrap();
    let reads: Vec<bool> = (0..5).map(|_| limits.read(id, "/a", false).is_some()).collect();
    assert_eq!(reads, [true, true, true, false, false]);
}

#[test]
fn cgroups_not_read_between_two_calls_are_dropped() {
    let host = Fake::new("forget", V2).files("sys/fs/cgroup/a", &ALL_V2).files("sys/fs/cgroup/b", &ALL_V2);
    let (a, b) = (host.id("sys/fs/cgroup/a"), host.id("sys/fs/cgroup/b"));
    let mut limits = host.limits();
    assert!(limits.read(a, "/a", false).is_some() && limits.read(b, "/b", false).is_some());
    limits.drop_unread();
    assert_eq!(limits.known.len(), 2);
    assert!(limits.read(a, "/a", false).is_some());
    limits.drop_unread();
    assert_eq!(limits.known.keys().collect::<Vec<_>>(), [&a]);
    limits.drop_unread();
    assert!(limits.known.is_empty());
}

#[test]
fn invalid_and_too_long_files_are_none() {
    let names = ALL_V2.map(|(name, _)| name);
    let long = "9".repeat(1 << 20);
    let texts = ["", "\n", "nonsense", "-3 -4\n", "max\n", "99999999999999999999 1\n", &long];
    for (case, text) in texts.into_iter().enumerate() {
        let host = Fake::new(&format!("garbage{case}"), V2)
            .files("sys/fs/cgroup/a", &names.map(|name| (name, text)));
        fs::write(host.0.join("sys/fs/cgroup/a/cpu.pressure"), [0xff, 0xfe]).unwrap();
        let id = host.id("sys/fs/cgroup/a");
        let nothing = CgroupReading { id, ..Default::default() };
        assert_eq!(host.limits().read(id, "/a", true), Some(nothing), "{case}");
    }
}

#[test]
fn a_path_never_leads_out_of_the_mount() {
    let host = Fake::new("dots", V2)
        .files("sys/fs/cgroup/a", &ALL_V2)
        .files("sys/fs/cgroup/..a", &ALL_V2)
        .files("elsewhere", &ALL_V2);
    let mut limits = host.limits();
    let (a, elsewhere) = (host.id("sys/fs/cgroup/a"), host.id("elsewhere"));
    assert_eq!(limits.read(a, "/a/../a", true), None);
    assert_eq!(limits.read(elsewhere, "/../../../elsewhere", true), None);
    assert_eq!(limits.read(elsewhere, &format!("/{}", host.0.join("elsewhere").display()), true), None);
    assert_eq!(limits.read(a, "/a\0", true), None);
    assert_eq!(limits.read(host.id("sys/fs/cgroup/a/cpu.max"), "/a/cpu.max", true), None);
    assert!(limits.read(a, "//a/", true).is_some());
    assert!(limits.read(host.id("sys/fs/cgroup/..a"), "/..a", true).is_some());
}

#[test]
fn a_host_without_cgroups_has_no_limits() {
    let host = Fake::new("none", "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n");
    assert_eq!(host.limits().read(host.id("proc"), "/", true), None);
    assert_eq!(LimitFiles::new(&host.0.join("nowhere")).read(1, "/", true), None);
}

#[test]
fn each_line_is_parsed_separately() {
    assert_eq!(cpu_max("max 100000\n"), (None, Some(100_000)));
    assert_eq!(cpu_max("50000 100000\n"), (Some(50_000), Some(100_000)));
    for other in ["", "max", "max x", "x 100000", "50000", "50000 100000 1", "50000  100000"] {
        assert_eq!(cpu_max(other), (None, None), "{other}");
    }
    assert_eq!(cpu_pressure(PRESSURE), (Some(1_046_000), Some(12_000)));
    assert_eq!(cpu_pressure("full avg10=0.00 total=7\nsomewhat total=1\n"), (None, Some(7_000)));
    assert_eq!(cpu_pressure("some total=99999999999999999999\n"), (None, None));
    assert_eq!(cpu_stat_local("throttled_usec 18446744073709551615\n"), None, "the value in ns is too large");
    assert_eq!(cpu_stat_local("throttled_time 18446744073709551615\n"), Some(u64::MAX));
    let mut reading = CgroupReading::default();
    cpu_stat("nr_periods 1\nnr_periods x\nnr_periods\nnr_bursts -1\nusage_usec 1 2\n", &mut reading);
    assert_eq!(reading, CgroupReading { nr_periods: Some(1), ..Default::default() });
    assert_eq!(
        (cpu_count("0-3,8\n"), cpu_count("0\n"), cpu_count("\n"), cpu_count("3-1")),
        (Some(5), Some(1), None, None)
    );
}

/// Generates strings from valid and invalid parts of these files. The strings are the same in every run (xorshift64).
fn arbitrary_texts() -> impl Iterator<Item = String> {
    const PARTS: &str = "max| |\n|-|,|=|0|7|100000|18446744073709551615|4294967295|65535|+|.|some|full|total=|\
        usage_usec|throttled_usec|throttled_time|nr_periods|\0|ß|\u{fffd}";
    let parts: Vec<_> = PARTS.split('|').collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = move |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % end as u64).unwrap()
    };
    std::iter::repeat_with(move || (0..below(12)).map(|_| parts[below(parts.len())]).collect()).take(50_000)
}

#[test]
fn the_parsers_accept_any_text() {
    for text in arbitrary_texts() {
        let mut reading = CgroupReading::default();
        cpu_stat(&text, &mut reading);
        (reading.quota_us, reading.period_us) = cpu_max(&text);
        assert!(reading.quota_us.is_none() || reading.period_us.is_some(), "{text:?}");
        assert!(reading.quota_cores().is_none_or(f64::is_finite), "{text:?}");
        assert_ne!(cpu_count(&text), Some(0), "{text:?}");
        let _ = (cpu_stat_local(&text), cpu_pressure(&text), number(&text));
        let _ = mount_v1(&text, "cpuset");
    }
}

#[test]
fn a_changed_quota_is_read_as_soon_as_counters_reveal_it() {
    let host = Fake::new("changed", V2)
        .file("sys/fs/cgroup/a/cpu.max", "50000 100000\n")
        .file("sys/fs/cgroup/a/cpu.stat", "usage_usec 0\nnr_periods 10\nnr_throttled 0\n");
    let id = host.id("sys/fs/cgroup/a");
    let mut limits = host.limits();
    let mut quota = |max: Option<&str>, stat: &str| {
        if let Some(max) = max {
            host.write("sys/fs/cgroup/a/cpu.max", max);
        }
        host.write("sys/fs/cgroup/a/cpu.stat", stat);
        limits.read(id, "/a", false).unwrap().quota_us
    };
    assert_eq!(quota(None, "usage_usec 0\nnr_periods 10\nnr_throttled 0\n"), Some(50_000));
    // The new quota is lower, and the cgroup exhausts it.
    let less = quota(Some("20000 100000\n"), "usage_usec 20000\nnr_periods 11\nnr_throttled 1\n");
    assert_eq!(less, Some(20_000));
    // The cgroup used more time than the old quota allows, so the quota was raised.
    let more = quota(Some("400000 100000\n"), "usage_usec 900000\nnr_periods 13\nnr_throttled 1\n");
    assert_eq!(more, Some(400_000));
    assert_eq!(quota(Some("max 100000\n"), "usage_usec 9000000\nnr_periods 13\nnr_throttled 1\n"), None);
    // A throttled task shows that there is a new quota.
    host.write("sys/fs/cgroup/a/cpu.max", "30000 100000\n");
    limits.was_out_of_quota(id);
    assert_eq!(limits.read(id, "/a", false).unwrap().quota_us, Some(30_000));
}
