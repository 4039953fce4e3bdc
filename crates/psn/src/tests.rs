use std::{sync::Arc, time::Duration};

use cgscope_ledger::Loss;
use cgscope_model::{Losses, Mode, Names, Selection};

use crate::{
    GroupBy, GroupCell, GroupRow, RoundEnd, Rounds, Tally, ThreadFilter, ThreadNames, ThreadReading,
    ThreadState,
};

fn text(words: &str) -> Option<GroupCell> {
    Some(GroupCell::Text(words.into()))
}

pub fn rounds(rounds: u64) -> Rounds {
    let row = |samples, comm, state, tid: Option<u64>, wchan| GroupRow {
        samples,
        cells: vec![text(comm), Some(GroupCell::State(state)), tid.map(GroupCell::Number), wchan],
    };
    let mut losses = Losses::default();
    losses.add(Loss::ReadingCutShort, 1);
    Rounds {
        tally: Tally {
            columns: vec![GroupBy::Comm, GroupBy::State, GroupBy::Tid, GroupBy::Wchan],
            rounds,
            threads: (0..22).collect(),
            processes: (0..3).collect(),
            ..Tally::default()
        },
        rows: vec![
            row(1_980, "render-*", ThreadState::Throttled, Some(12), None),
            row(99, "backup", ThreadState::Iowait, Some(70_001), text("folio_wait_bit_common")),
            row(3, "sh", ThreadState::OnCpu, None, None),
        ],
        all_states: false,
        mode: Mode::Bpf,
        start_unix_ns: 1_795_000_000_000_000_000,
        took: Duration::from_nanos(5_000_400_000),
        end: RoundEnd::Finished,
        skipped: 0,
        nameless: None,
        expected: 100,
        looked_at: 99 * 340,
        cpu_ns: 99 * 412_000,
        losses,
    }
}

fn written(write: impl Fn(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_table_is_as_psn_prints_it() {
    insta::assert_snapshot!(written(|out| rounds(99).write_text(&Names::default(), out).unwrap()));
}

#[test]
fn the_json_object_has_the_same_figures() {
    let json = written(|out| rounds(99).write_json(out).unwrap());
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn an_empty_table_reports_that_no_thread_was_seen() {
    let mut rounds = rounds(99);
    rounds.rows.clear();
    let active = written(|out| rounds.write_text(&Names::default(), out).unwrap());
    assert!(active.contains("no active thread was seen; use -a to see all threads\n"), "{active}");
    rounds.all_states = true;
    let all = written(|out| rounds.write_text(&Names::default(), out).unwrap());
    assert!(all.starts_with("=== Threads ===") && all.contains("no thread was seen\n"), "{all}");
}

/// CPU 3 is on node 1. Cgroup 5 is `/a/b`, and cgroup 6 is `/c`.
struct Host;

impl ThreadNames for Host {
    fn name(&self, column: GroupBy, reading: &ThreadReading) -> Option<Arc<str>> {
        assert_eq!(column, GroupBy::Cgroup);
        match reading.cgroup_id? {
            5 => Some("/a/b".into()),
            6 => Some("/c".into()),
            _ => None,
        }
    }

    fn node(&self, cpu: u32) -> Option<u32> {
        (cpu == 3).then_some(1)
    }
}

#[test]
fn threads_outside_the_selection_are_left_out() {
    let reading = |cpu, cgroup_id, name: &[u8]| {
        let mut comm = [0; 16];
        comm[..name.len()].copy_from_slice(name);
        ThreadReading {
            tid: 1,
            tgid: 1,
            comm,
            state: ThreadState::OnCpu,
            cpu: Some(cpu),
            cgroup_id: Some(cgroup_id),
            uid: None,
            syscall: None,
            place: 0,
        }
    };
    let threads = [reading(3, 5, b"web-1"), reading(0, 6, b"db"), reading(0, 7, b"web-2")];
    let wanted = |selection: Selection| -> Vec<bool> {
        let mut filter = ThreadFilter::new(&selection, Names::default()).unwrap();
        assert_eq!(filter.is_open(), selection.is_whole_host());
        threads.iter().map(|thread| filter.wants(thread, &Host)).collect()
    };
    assert_eq!(wanted(Selection::default()), [true, true, true]);
    assert_eq!(wanted(Selection { comm: Some("^web".into()), ..Default::default() }), [true, false, true]);
    assert_eq!(wanted(Selection { cpus: vec![0], ..Default::default() }), [false, true, true]);
    assert_eq!(wanted(Selection { nodes: vec![1], ..Default::default() }), [true, false, false]);
    assert_eq!(wanted(Selection { cgroup: Some("/a".into()), ..Default::default() }), [true, false, false]);
}
