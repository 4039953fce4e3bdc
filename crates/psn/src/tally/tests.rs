use std::collections::BTreeSet;

use super::*;

fn comm(name: &str) -> [u8; 16] {
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    comm
}

fn reading(tid: u32, name: &str, state: ThreadState) -> ThreadReading {
    ThreadReading {
        tid,
        tgid: tid / 10,
        comm: comm(name),
        state,
        cpu: Some(tid % 4),
        cgroup_id: Some(7),
        uid: Some(0),
        syscall: Some(202),
        place: tid,
    }
}

/// Turns numbers into names. All code positions with an odd number are in the same function.
struct Said;

impl ThreadNames for Said {
    fn name(&self, column: GroupBy, reading: &ThreadReading) -> Option<Arc<str>> {
        let (call, uid, place) = (reading.syscall, reading.uid, reading.place);
        Some(match column {
            GroupBy::Syscall => format!("call {}", call.filter(|number| *number >= 0)?).into(),
            GroupBy::Wchan | GroupBy::Kstack if place == 0 => return None,
            GroupBy::Wchan => {
                if place % 2 == 1 {
                    "odd".into()
                } else {
                    "even".into()
                }
            }
            GroupBy::Kstack => format!("stack {place}").into(),
            GroupBy::Cgroup => format!("/{}", reading.cgroup_id?).into(),
            GroupBy::Username => uid.filter(|uid| *uid == 0).map(|_| "root".into())?,
            GroupBy::Cmdline => format!("command {}", reading.tgid).into(),
            _ => return None,
        })
    }

    fn node(&self, cpu: u32) -> Option<u32> {
        Some(cpu / 2)
    }
}

fn reported(rows: &[GroupRow]) -> Vec<(u64, Vec<String>)> {
    let cell = |cell: &Option<GroupCell>| match cell {
        None => "-".to_owned(),
        Some(GroupCell::Number(number)) => number.to_string(),
        Some(GroupCell::State(state)) => state.name().to_owned(),
        Some(GroupCell::Text(text)) => text.to_string(),
    };
    rows.iter().map(|row| (row.samples, row.cells.iter().map(cell).collect())).collect()
}

#[test]
fn digits_in_a_name_are_folded_as_psn_folds_them() {
    for (name, expected) in [
        ("kworker/0:1H", "kworker/*:*H"),
        ("worker-123", "worker-*"),
        ("1234567890123456", "*"),
        ("", ""),
        ("a1b22c333", "a*b*c*"),
    ] {
        assert_eq!(folded(comm(name)), comm(expected), "{name}");
    }
}

#[test]
fn threads_that_are_equal_in_the_columns_are_one_row() {
    let mut tally = Tally::new(&GroupBy::DEFAULT);
    for _ in 0..2 {
        for tid in 10..13 {
            tally.add(&reading(tid, &format!("pool-{tid}"), ThreadState::OnCpu));
        }
        tally.add(&reading(20, "main", ThreadState::Sleeping));
        tally.rounds += 1;
    }
    let rows = tally.rows(&Said);
    let (pool, main) = (vec!["pool-*".into(), "on_cpu".into()], vec!["main".into(), "sleeping".into()]);
    assert_eq!(reported(&rows), [(6, pool), (2, main)]);
    assert_eq!((tally.rounds, tally.threads.len(), tally.processes.len()), (2, 4, 2));
}

#[test]
fn groups_with_equal_names_are_one_row() {
    let mut tally = Tally::new(&[GroupBy::Wchan, GroupBy::Node, GroupBy::Wchan]);
    for tid in [1, 5, 9, 2] {
        tally.add(&reading(tid, "x", ThreadState::Uninterruptible));
    }
    tally.rounds += 1;
    assert_eq!(
        reported(&tally.rows(&Said)),
        [(3, vec!["odd".to_owned(), "0".to_owned()]), (1, vec!["even".to_owned(), "1".to_owned()])]
    );
}

#[test]
fn a_thread_that_is_not_blocked_has_no_wchan() {
    let mut tally = Tally::new(&[GroupBy::State, GroupBy::Wchan, GroupBy::Kstack]);
    tally.add(&reading(1, "x", ThreadState::Throttled));
    tally.rounds += 1;
    let row = vec!["throttled".to_owned(), "-".to_owned(), "stack 1".to_owned()];
    assert_eq!(reported(&tally.rows(&Said)), [(1, row)]);
}

#[test]
fn unknown_values_are_absent() {
    let unknown = ThreadReading {
        cpu: None,
        cgroup_id: None,
        uid: Some(5),
        syscall: Some(-1),
        place: 0,
        ..reading(30, "x", ThreadState::Sleeping)
    };
    let columns = [
        GroupBy::Syscall,
        GroupBy::Wchan,
        GroupBy::Kstack,
        GroupBy::Cgroup,
        GroupBy::Node,
        GroupBy::Cpu,
        GroupBy::Username,
        GroupBy::Exe,
    ];
    let mut tally = Tally::new(&columns);
    tally.add(&unknown);
    tally.rounds += 1;
    assert_eq!(reported(&tally.rows(&Said)), [(1, vec!["-".to_owned(); columns.len()])]);
}

#[test]
fn a_tally_without_readings_is_an_empty_table() {
    assert_eq!(Tally::new(&GroupBy::DEFAULT).rows(&Said), []);
}

#[test]
fn names_without_end_make_a_bounded_number_of_groups() {
    let mut tally = Tally::new(&[GroupBy::Comm, GroupBy::State]);
    let letters = |mut number: u32| -> String {
        let next = |_| {
            let letter = char::from(b'a' + (number % 26) as u8);
            number /= 26;
            letter
        };
        (0..8).map(next).collect()
    };
    for number in 0..MOST_GROUPS as u32 + 1_000 {
        tally.add(&reading(1, &letters(number), ThreadState::OnCpu));
    }
    tally.add(&reading(1, &letters(5), ThreadState::OnCpu));
    let rows = tally.rows(&Said);
    assert_eq!((rows.len(), tally.nameless), (MOST_GROUPS + 1, 1_000));
    assert_eq!(rows.iter().map(|row| row.samples).sum::<u64>(), MOST_GROUPS as u64 + 1_001);
    assert_eq!(reported(&rows)[0], (1_000, vec![String::new(), "on_cpu".into()]));
}

#[test]
fn columns_are_found_by_their_names() {
    for column in GroupBy::ALL {
        assert_eq!(GroupBy::by_name(column.name()), Some(column));
    }
    assert_eq!(GroupBy::by_name("pid"), Some(GroupBy::Tgid));
    assert_eq!(GroupBy::by_name("nothing"), None);
}

#[test]
fn every_state_has_its_own_name_and_words() {
    let names: BTreeSet<&str> = ThreadState::ALL.iter().map(|state| state.name()).collect();
    let words: BTreeSet<&str> = ThreadState::ALL.iter().map(|state| state.words()).collect();
    assert_eq!((names.len(), words.len()), (ThreadState::ALL.len(), ThreadState::ALL.len()));
}

#[test]
fn a_state_from_a_letter_keeps_the_letter() {
    for state in TaskState::ALL.iter().copied() {
        assert_eq!(ThreadState::of_letter(Some(state)).letter(), state.letter());
    }
    assert_eq!(ThreadState::of_letter(None), ThreadState::Unknown);
}

/// psn's condition: `not(state_id IN ('S', 'Z', 'I', 'P'))`.
#[test]
fn active_is_what_psn_calls_active() {
    for state in ThreadState::ALL {
        assert_eq!(state.is_active(), !"SZIP".contains(state.letter()), "{state:?}");
    }
}
