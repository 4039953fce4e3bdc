use std::{fs, path::PathBuf, sync::Arc};

use cgscope_model::{
    Accounts, BlockedState, ByState, ExitedInterval, StackReading, TaskInterval, TaskReading,
    table::interval::Appended,
};

use super::*;

const SYMBOLS: &str = "\
1000 T __sched_text_start
1000 T __schedule
1100 T schedule
2000 T __sched_text_end
2000 t tcp_recvmsg
3000 T __sys_recvfrom
4000 T futex_wait
5000 T do_syscall_64
";
const RECEIVES: &[u64] = &[0x1010, 0x1110, 0x2010, 0x3010, 0x5010];
const LOCKS: &[u64] = &[0x1010, 0x1110, 0x4010, 0x5010];
const MS: u64 = 1_000_000;

fn task(serial: u64, comm: &str, blocked: [u64; 5]) -> TaskInterval {
    let accounts = Some(Arc::new(Accounts { blocked: Some(ByState(blocked)), ..Accounts::default() }));
    let reading = TaskReading {
        serial,
        tid: serial as u32,
        tgid: 1,
        comm: comm.into(),
        accounts: accounts.clone(),
        ..TaskReading::default()
    };
    TaskInterval { reading, accounts, ..TaskInterval::default() }
}

fn stack(serial: u64, comm: &str, frames: &[u64], ns: u64) -> StackReading {
    let (tid, state) = (serial as u32, BlockedState::Sleeping);
    StackReading { serial, state, stack: frames.into(), tid, tgid: 1, comm: comm.into(), ns, count: 2 }
}

/// Returns two intervals. Besides a thread pool, they have a thread that receives, one that waits for a lock, and one without a
/// stack.
fn pool(more: impl IntoIterator<Item = Interval>) -> Interval {
    let interval = Interval {
        duration_ns: 500 * MS,
        tasks: vec![
            task(1, "pool", [400 * MS, 0, 0, 0, 0]),
            task(2, "pool;2", [300 * MS, 0, 0, 0, 0]),
            task(3, "disk", [0, 50 * MS, 0, 0, 0]),
        ],
        stacks: vec![stack(1, "pool", RECEIVES, 390 * MS), stack(2, "pool;2", LOCKS, 300 * MS)],
        ..Interval::default()
    };
    let mut whole = Appended::default();
    [interval.clone(), interval].into_iter().chain(more).for_each(|interval| whole.push(interval));
    whole.into_interval()
}

fn offcpu(output: Option<Output>, target: &str) -> Offcpu<'static> {
    let symbols = Box::leak(Box::new(KernelSymbols::of_text(SYMBOLS).unwrap()));
    Offcpu { output, target: target.into(), symbols }
}

fn rendered(whole: &Interval, is_svg: bool) -> String {
    offcpu(None, "command pool").rendered(&Stacks::new(whole), is_svg).unwrap()
}

fn text(whole: &Interval) -> String {
    offcpu(None, "command pool").finish(whole).unwrap().unwrap()
}

fn sum(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn folded_stacks_sum_to_the_blocked_time() {
    let folded = rendered(&pool([]), false);
    assert_eq!(
        folded,
        "disk;[disk, iowait];[no stack] 100000000\n\
         pool:2;[lock, sleeping];do_syscall_64;futex_wait;schedule;__schedule 600000000\n\
         pool;[network, sleeping];do_syscall_64;__sys_recvfrom;tcp_recvmsg;schedule;__schedule 780000000\n\
         pool;[unknown, sleeping];[no stack] 20000000\n"
    );
    assert_eq!(sum(&folded), 1_500 * MS);
}

#[test]
fn threads_that_exited_count_once() {
    let accounts = Accounts { blocked: Some(ByState([70, 0, 0, 0, 0])), ..Accounts::default() };
    let exited = ExitedInterval {
        cgroup_id: 0,
        tasks: 1,
        totals: Default::default(),
        accounts: Some(accounts),
        wait: Default::default(),
    };
    let stacks = vec![stack(9, "gone", LOCKS, 60)];
    let more = Interval { exited: vec![exited], stacks, ..Interval::default() };
    let folded = rendered(&pool([more]), false);
    assert_eq!(sum(&folded), 1_500 * MS + 70);
    assert!(
        folded.contains("gone;[lock, sleeping];do_syscall_64;futex_wait;schedule;__schedule 60\n"),
        "{folded}"
    );
}

#[test]
fn stacks_with_more_time_than_was_blocked_count_in_full() {
    let stacks = vec![stack(1, "pool", RECEIVES, 500 * MS)];
    let whole = pool([Interval { stacks, ..Interval::default() }]);
    let folded = rendered(&whole, false);
    assert_eq!((sum(&folded), Stacks::new(&whole).total_ns), (1_880 * MS, 1_880 * MS));
    assert!(!folded.contains("[no stack]"), "{folded}");
}

#[test]
fn the_text_names_the_largest_stacks() {
    insta::assert_snapshot!(text(&pool([])));
}

#[test]
fn the_largest_stacks_are_listed_and_the_rest_is_summed() {
    let stacks = (10..22).map(|serial| stack(serial, &format!("thread-{serial}"), LOCKS, MS)).collect();
    let text = text(&pool([Interval { stacks, ..Interval::default() }]));
    assert!(text.contains("  6 other stacks\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains('%') && line.contains(": ")).count(), 11, "{text}");
}

#[test]
fn the_flame_graph_is_a_picture_of_the_folded_stacks() {
    let svg = rendered(&pool([]), true);
    assert!(svg.starts_with(marked("").as_str()), "{}", &svg[..200]);
    for part in [
        "Blocked: command pool, 1.00s",
        "1.50s summed over 3 threads; 92.0% of this time has a stack",
        "tcp_recvmsg (780 ms, 52.00%)",
        "[no stack] (100 ms, 6.67%)",
        "pool:2",
    ] {
        assert!(svg.contains(part), "{part} is not in the picture");
    }
    assert_eq!(svg, rendered(&pool([]), true), "the same stacks give the same picture");
    assert_eq!(svg.matches("<?xml").count(), 1);
}

#[test]
fn a_run_without_blocked_time_and_the_coarse_mode_are_errors() {
    let dir = scratch("nothing");
    let file = dir.join("off.svg");
    let offcpu = offcpu(Some(Output::new(&file).unwrap()), "the whole host");
    let said = |mode| {
        let whole = Interval { duration_ns: MS, mode, ..Interval::default() };
        offcpu.finish(&whole).unwrap_err().sentence
    };
    assert!(said(Mode::Bpf).starts_with("no task was blocked in 1.00ms (the whole host)"));
    assert!(said(Mode::Coarse).starts_with("--offcpu needs the exact mode"));
    assert!(!file.exists());
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn only_a_file_with_our_stacks_is_replaced() {
    let dir = scratch("file");
    for name in ["off.svg", "off.SVG", "off.folded"] {
        let file = dir.join(name);
        let written = |times: usize| {
            let offcpu = offcpu(Some(Output::new(&file).unwrap()), "command pool");
            let stacks = vec![stack(9, "more", LOCKS, MS)];
            let more = Interval { stacks, ..Interval::default() };
            let whole = pool(std::iter::repeat_n(more, times - 1));
            assert_eq!(offcpu.finish(&whole).unwrap(), None);
            fs::read_to_string(&file).unwrap()
        };
        assert_ne!(written(1), written(2), "{name} is replaced");
        for foreign in ["<svg></svg>", "bash;main;write 12", "notes\n"] {
            fs::write(&file, foreign).unwrap();
            let error = Output::new(&file).unwrap_err().sentence;
            assert!(error.contains("it holds something other than stacks of cgscope"), "{error}");
            assert!(error.ends_with("name another file with --offcpu=FILE"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), foreign);
        }
    }
    assert!(Output::new(&dir.join("nowhere/off.svg")).is_err());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3, "no temporary file remains");
    fs::remove_dir_all(dir).unwrap();
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cgscope-offcpu-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}
