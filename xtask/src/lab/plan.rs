//! Selects which tests run on which kernels. Tests that are not named in this file run on every supported kernel.
use crate::lab::kernels::{BUILT, SYSTEMD, Series};
use crate::lanes::{BUILT_KERNEL, LONG, SYSTEMD_HOST};

/// The oldest kernel that cgscope fully supports, see `Feature::LoopHelper`.
const OLDEST_SUPPORTED: Series = Series(5, 17);

/// Tests that run only on the host, by the prefixes of their full names.
const HOST_ONLY: [&str; 5] = [
    // They assert times or shares of time, or compare readings of the same seconds, and emulation is too slow for that. On other
    // kernels, `offcpu::` checks the same as `stat_classes::a_pool_that_waits`.
    "bad_input::a_target_that_exits coarse::five_thousand coarse::the_sums_equal_those_of_the_exact_mode cost:: cures:: \
     kill::a_kill_at_any_instant_loses kill::a_kill_with_bpf offcpu::beside_offcputime sample::a_sample_of_5000_threads \
     screen_cost:: serve::hostile:: serve::intervals:: serve::many:: serve::scale:: stat::objects_and_text_agree \
     stat::side_by_side stat_classes::a_command_that_sleeps stat_classes::a_pool_that_waits stat_classes::sleepers_that_exit \
     stat_command_unseen::the_terminal stat_offcpu::the_stacks_of_a_command whatif::",
    // They assert that the screen answers within seconds; the screen is the same on every kernel.
    "overview:: screen:: views::",
    // It runs fifty commands and screens, which depend on the kernel in other tests.
    "documented::",
    // They need a block device or a kernel module, which the machine lacks.
    "chains::paths::a_sleep_in_a_tcp_socket_between chains::timers::a_sleep_that_a_disk offcpu::writes_to_a_disk \
     sample::a_walk_of_proc sample::every_thread_of_a_blend",
    // They need large programs, such as Python, a browser or the Debian archive; the result is the same on every kernel.
    "export:: field_case_2:: fleet:: metrics_page:: packages:: report:: runtimes:: serve::access::a_request \
     serve::access::requests_for serve::prometheus:: shared::a_task_is",
];

/// Tests that also run on unsupported kernels, which are older. On supported kernels, these tests run on the same kernels as
/// [`ENDS`].
const BELOW_AND_ENDS: &str = "coarse:: coarse_fallback:: sample::the_coarse_mode";

/// Tests that hardly depend on the kernel. They run only on the oldest and the newest kernel; with `--all` they run on every
/// kernel.
const ENDS: &str = "serve:: bad_input:: record:: bytes::";

/// Tests that expect no wait with the cause `irq`. On the built kernel, interrupts take a part of the shares that they assert.
const WITHOUT_IRQ_TIME: &str =
    "ledger::far::a_long_wait_after_a_wakeup ledger::moved::six_loops_in_three_cgroups";

/// The test in which a thread hardly gets CPU time, and the oldest kernel on which it runs. On 6.1, which is preemptible, cgscope
/// ends only when that thread has run: the kernel waits for all tasks before it frees a trampoline.
const STARVES: (&str, Series) = ("ledger::a_thread_that_gets_no_cpu_time", Series(6, 12));

/// Returns whether a test runs on this kernel.
///
/// `ends` is true if the kernel is the oldest or newest supported kernel of the run, or if the user requested every test.
pub(crate) fn runs(test: &str, kernel: Series, ends: bool) -> bool {
    let begins = |beginnings: &str| beginnings.split(' ').any(|beginning| test.starts_with(beginning));
    let (is_below, is_of_ends) = (begins(BELOW_AND_ENDS), begins(ENDS));
    match kernel {
        _ if test.starts_with(SYSTEMD_HOST) => kernel == SYSTEMD,
        SYSTEMD => false,
        _ if test.contains(LONG) => false,
        _ if test.starts_with(BUILT_KERNEL) => kernel == BUILT,
        BUILT if begins(WITHOUT_IRQ_TIME) => false,
        _ if begins(STARVES.0) && kernel < STARVES.1 => false,
        _ if HOST_ONLY.into_iter().any(begins) => false,
        _ if !is_supported(kernel) => is_below,
        _ => ends || !(is_below || is_of_ends),
    }
}

pub(crate) fn is_supported(kernel: Series) -> bool {
    kernel >= OLDEST_SUPPORTED
}

#[cfg(test)]
mod tests {
    use super::runs;
    use crate::lab::kernels::{BUILT, SYSTEMD, Series};

    #[test]
    fn the_ledger_runs_on_every_supported_kernel() {
        for kernel in [Series(6, 1), Series(6, 12), Series(7, 2)] {
            assert!(runs("ledger::a", kernel, false) && !runs("coarse::a", kernel, false));
        }
        assert!(!runs("ledger::a", Series(5, 10), true) && runs("coarse::a", Series(5, 10), false));
    }

    #[test]
    fn tests_that_hardly_depend_on_the_kernel_run_on_the_oldest_and_the_newest() {
        assert!(runs("record::b", Series(6, 1), true) && !runs("record::b", Series(6, 12), false));
    }

    #[test]
    fn tests_of_a_machine_run_only_there() {
        assert!(runs("built_kernel::a::b", BUILT, false) && runs("systemd_host::a", SYSTEMD, false));
        for (test, kernel) in [
            ("built_kernel::a::b", Series(7, 2)),
            ("systemd_host::a", Series(7, 2)),
            ("ledger::a", SYSTEMD),
            ("built_kernel::a", SYSTEMD),
        ] {
            assert!(!runs(test, kernel, true), "{test}");
        }
    }

    #[test]
    fn times_are_measured_only_on_the_host() {
        assert!(!runs("cost::a", Series(7, 2), true));
    }
}
