//! Which tests run where. Every test has a place, and each that does not run on a kernel is in the table with the reason.
use crate::lab::kernels::Series;
use crate::lanes::LONG;

/// The oldest kernel that cgscope supports in full: see `Feature::LoopHelper`.
const OLDEST_SUPPORTED: Series = Series(5, 17);

/// Where the tests of a module run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On every supported kernel.
    EveryKernel,
    /// On the oldest and the newest, as they depend on the kernel little; on all with `--all`.
    Ends,
    /// On the host alone, for this reason.
    Host(&'static str),
    /// On kernels below the supported ones, and as above.
    BelowAndEnds,
}

const SERVES_MANY: &str = "asserts shares of time beside thousands, which mean nothing under emulation";
const WITH_PYTHON: &str =
    "its client is in Python, which is not in the machine; what the socket tells is the same on every kernel";

/// By how a test's full name begins; the first that fits. A test that is not named here runs everywhere.
const PLACES: [(&str, Place); 44] = [
    (
        "coarse::the_sums_are_those_of_the_exact_mode",
        Place::Host("reads two ways at one moment, which emulation draws out to many"),
    ),
    ("coarse::five_thousand", Place::Host("asserts times, which mean nothing under emulation")),
    ("coarse::", Place::BelowAndEnds),
    ("coarse_fallback::", Place::BelowAndEnds),
    ("cost::", Place::Host("asserts times, which mean nothing under emulation")),
    ("export::", Place::Host("reads with Java, Go and Python what is the same on every kernel")),
    ("metrics_page::", Place::Host("Prometheus is 200 MB; a page is the same on every kernel")),
    ("serve::hostile::", Place::Host(SERVES_MANY)),
    ("serve::intervals::", Place::Host("compares readings over the same seconds, which emulation draws out")),
    ("serve::many::", Place::Host(SERVES_MANY)),
    ("serve::prometheus::", Place::Host("Prometheus is 200 MB; a page is the same on every kernel")),
    ("serve::scale::", Place::Host(SERVES_MANY)),
    ("serve::access::no_request", Place::Host(WITH_PYTHON)),
    ("serve::access::a_request", Place::Host(WITH_PYTHON)),
    ("serve::limits::ids_of", Place::Host(WITH_PYTHON)),
    ("serve::", Place::Ends),
    (
        "shared::a_task_is",
        Place::Host("changes users with Python; the fields are read the same on every kernel"),
    ),
    ("fleet::", Place::Host("reads with Python what is the same on every kernel")),
    (
        "packages::",
        Place::Host("installs in a root of Debian, which needs its archive; no kernel has a part in it"),
    ),
    ("field_case_2::", Place::Host("ffmpeg and its libraries are 250 MB")),
    ("record::a_kill_loses_at_most_the_last_interval", Place::Host("asserts how soon a recording starts")),
    ("bad_input::a_target_that_exits", Place::Host("ends its load a fixed time after the start")),
    ("bad_input::", Place::Ends),
    ("record::", Place::Ends),
    ("offcpu::writes_to_a_disk", Place::Host("needs a block device, and the kernels of the lab have none")),
    (
        "offcpu::beside_offcputime",
        Place::Host("compares two tools over the same seconds, which emulation draws out"),
    ),
    ("report::", Place::Host("chromium and its libraries are 400 MB; the page is the same on every kernel")),
    (
        "screen::",
        Place::Host("asserts that the screen answers within seconds; it is the same on every kernel"),
    ),
    ("screen_cost::", Place::Host("asserts times, which mean nothing under emulation")),
    ("views::", Place::Host("reads the screen after each of many keys; it is the same on every kernel")),
    (
        "overview::",
        Place::Host("asserts that an answer is read within seconds; it is the same on every kernel"),
    ),
    ("bytes::", Place::Ends),
    (
        "stat::side_by_side",
        Place::Host("reads beside pidstat, which is not in the machine, over the same seconds"),
    ),
    (
        "stat::objects_and_text_agree",
        Place::Host("compares two runs over the same seconds, which emulation draws out"),
    ),
    (
        "stat_command_unseen::the_terminal",
        Place::Host(
            "asserts that a job is stopped and continued within seconds; it is the same on every kernel",
        ),
    ),
    (
        "stat_classes::a_pool_that_waits",
        Place::Host(
            "asserts shares of seconds that emulation draws out; of any kernel it is asserted by offcpu::",
        ),
    ),
    ("stat_classes::a_command_that_sleeps", Place::Host("asserts times, which mean nothing under emulation")),
    ("stat_classes::sleepers_that_exit", Place::Host("starts a load that has to be over within two seconds")),
    ("stat_offcpu::the_stacks_of_a_command", Place::Host("asserts how long a start takes beside a sleep")),
    (
        "sample::every_thread_of_a_blend",
        Place::Host("needs a block device, and the kernels of the lab have none"),
    ),
    ("sample::a_walk_of_proc", Place::Host("needs a block device and Python, which are not in the machine")),
    (
        "sample::a_sample_of_5000_threads",
        Place::Host("asserts times beside Python's, which mean nothing under emulation"),
    ),
    ("sample::the_coarse_mode", Place::BelowAndEnds),
    ("", Place::EveryKernel),
];

/// What becomes of a test on a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    /// On the host alone, for this reason.
    HostOnly(&'static str),
    /// Not on this kernel, for this reason.
    Not(&'static str),
}

/// `ends`: whether the kernel is the oldest or the newest supported of those that run, or everything was asked for.
pub(crate) fn fate(test: &str, kernel: Series, ends: bool) -> Fate {
    if test.contains(LONG) {
        return Fate::HostOnly("takes minutes");
    }
    let place = PLACES.iter().find(|(beginning, _)| test.starts_with(beginning));
    let place = place.map_or(Place::EveryKernel, |(_, place)| *place);
    match place {
        Place::Host(reason) => Fate::HostOnly(reason),
        Place::BelowAndEnds if !is_supported(kernel) => Fate::Runs,
        _ if !is_supported(kernel) => Fate::Not("the kernel is below the supported ones"),
        Place::Ends | Place::BelowAndEnds if !ends => {
            Fate::Not("on the oldest and the newest kernel; on all with --all")
        }
        Place::Ends | Place::BelowAndEnds | Place::EveryKernel => Fate::Runs,
    }
}

pub(crate) fn is_supported(kernel: Series) -> bool {
    kernel >= OLDEST_SUPPORTED
}

#[cfg(test)]
mod tests {
    use super::{Fate, fate};
    use crate::lab::kernels::Series;

    #[test]
    fn the_ledger_runs_on_every_supported_kernel() {
        for kernel in [Series(6, 1), Series(6, 12), Series(7, 2)] {
            assert_eq!(fate("ledger::a", kernel, false), Fate::Runs);
            assert_ne!(fate("coarse::a", kernel, false), Fate::Runs);
        }
        assert_ne!(fate("ledger::a", Series(5, 10), true), Fate::Runs);
        assert_eq!(fate("coarse::a", Series(5, 10), false), Fate::Runs);
    }

    #[test]
    fn what_depends_on_the_kernel_little_runs_at_the_ends() {
        assert_eq!(fate("record::b", Series(6, 1), true), Fate::Runs);
        assert_ne!(fate("record::b", Series(6, 12), false), Fate::Runs);
    }

    #[test]
    fn times_are_measured_on_the_host_alone() {
        assert!(matches!(fate("cost::a", Series(7, 2), true), Fate::HostOnly(_)));
    }
}
