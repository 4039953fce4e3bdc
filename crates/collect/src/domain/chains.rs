//! Reads for whom tasks slept: the table of sleepers and wakers. [`cgscope_ledger::chains`] explains what is counted.
#![allow(non_upper_case_globals, reason = "libc names system calls like this")]

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

use cgscope_ledger::{
    chains::{CALL_BITS, MODE_SHIFT, PAIRS, PairKey, PairSums, Waker},
    wire::names,
};
use cgscope_model::{BlockedKind, ByCause, ChainKey, ChainReading, comm};

use crate::domain::{Domain, Draft, Setup};
use crate::kernel_side::{if_there, step};
use crate::{Failure, bpf_calls::Raw};

#[derive(Default)]
pub(crate) struct Chains {
    /// The number of sleeps of each entry in the latest reading.
    counts: HashMap<PairKey, u64>,
}

impl Domain for Chains {
    fn start(setup: &Setup<'_>) -> Option<(Self, u32)> {
        (setup.config.chains != 0).then(|| (Self::default(), PAIRS as u32))
    }

    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        let mut entries: Vec<(PairKey, PairSums)> = Vec::with_capacity(self.counts.len());
        draft.side.each_entry("read the sleepers and wakers", names::CHAIN_PAIRS, |key, sums| {
            entries.push((*key, *sums));
        })?;
        let before = mem::take(&mut self.counts);
        let old = if entries.len() > PAIRS / 2 { take_old(&mut entries, &before) } else { Vec::new() };
        step("free the table of sleepers and wakers", || {
            let mut table = draft.side.hash_table::<Raw<PairKey>, Raw<PairSums>>(names::CHAIN_PAIRS)?;
            Ok(old.iter().try_for_each(|(key, _)| if_there(table.remove(&Raw(*key))).map(drop))?)
        })?;
        self.counts = entries.iter().map(|(key, sums)| (*key, sums.count)).collect();
        let mut rows: BTreeMap<ChainKey, ChainReading> = BTreeMap::new();
        for (key, sums) in &entries {
            let row = reading(key, sums);
            rows.entry(row.key()).and_modify(|before| before.append(row.clone())).or_insert(row);
        }
        draft.sample.chains = rows.into_values().collect();
        draft.sample.has_chains = true;
        Ok(())
    }
}

/// Removes the entries of the rows that have not changed since the reading before, whose counts are `before`. If such a row
/// vanishes, no interval misses anything. When it comes again, it counts from 0. Some system calls share a row, which must never
/// decrease.
fn take_old(
    entries: &mut Vec<(PairKey, PairSums)>,
    before: &HashMap<PairKey, u64>,
) -> Vec<(PairKey, PairSums)> {
    let is_same = |(key, sums): &(PairKey, PairSums)| before.get(key) == Some(&sums.count);
    let row_of = |(key, sums): &(PairKey, PairSums)| reading(key, sums).key();
    let changed: HashSet<ChainKey> = entries.iter().filter(|entry| !is_same(entry)).map(row_of).collect();
    entries.extract_if(.., |entry| !changed.contains(&row_of(entry))).collect()
}

fn reading(key: &PairKey, sums: &PairSums) -> ChainReading {
    let waker = *Waker::ALL.get(key.waker as usize).unwrap_or(&Waker::Unknown);
    let did_ns = sums.did.sums.total() + sums.did.unknown_ns;
    ChainReading {
        sleeper: key.sleeper,
        sleeper_tid: key.sleeper_tid,
        kind: kind_of(key.call),
        waker,
        waker_cgroup: key.waker_cgroup,
        waker_tid: key.waker_tid,
        comm: comm(sums.comm.map(u64::to_ne_bytes).as_flattened()),
        count: sums.count,
        slept_ns: sums.slept_ns,
        ran_ns: if waker == Waker::Task { sums.slept_ns.saturating_sub(did_ns) } else { 0 },
        by_cause: ByCause(sums.did.sums.by_cause),
        waker_slept_ns: sums.did.sums.slept_ns,
        unknown_ns: sums.did.unknown_ns,
        estimated_ns: sums.did.estimated_ns,
    }
}

/// Returns what a task in this system call waits for; `None`: the number alone does not say it.
fn kind_of_call(call: libc::c_long) -> Option<BlockedKind> {
    use libc::*;
    #[cfg(target_arch = "x86_64")]
    match call {
        SYS_poll | SYS_select | SYS_epoll_wait => return Some(BlockedKind::Poll),
        SYS_pause => return Some(BlockedKind::Signal),
        _ => {}
    }
    Some(match call {
        SYS_futex | SYS_futex_waitv | SYS_semop | SYS_semtimedop => BlockedKind::Lock,
        SYS_flock | SYS_fcntl => BlockedKind::FileLock,
        SYS_recvfrom | SYS_recvmsg | SYS_recvmmsg | SYS_sendto | SYS_sendmsg | SYS_sendmmsg => {
            BlockedKind::Network
        }
        SYS_connect | SYS_sendfile | SYS_shutdown => BlockedKind::Network,
        SYS_accept | SYS_accept4 => BlockedKind::Accept,
        SYS_ppoll | SYS_pselect6 | SYS_epoll_pwait | SYS_epoll_pwait2 => BlockedKind::Poll,
        SYS_nanosleep | SYS_clock_nanosleep => BlockedKind::Timer,
        SYS_wait4 | SYS_waitid => BlockedKind::Child,
        SYS_rt_sigsuspend | SYS_rt_sigtimedwait => BlockedKind::Signal,
        SYS_io_uring_enter => BlockedKind::IoUring,
        SYS_fsync | SYS_fdatasync | SYS_sync_file_range | SYS_msync | SYS_io_getevents => BlockedKind::Disk,
        SYS_msgrcv | SYS_msgsnd | SYS_mq_timedreceive | SYS_mq_timedsend => BlockedKind::Pipe,
        _ => return None,
    })
}

/// Kinds of files in `i_mode`, shifted as [`CALL_BITS`](cgscope_ledger::chains::CALL_BITS) says, with what a reader waits for.
const FILES: [(u32, BlockedKind); 6] = [
    (libc::S_IFSOCK, BlockedKind::Network),
    (libc::S_IFIFO, BlockedKind::Pipe),
    (libc::S_IFCHR, BlockedKind::Terminal),
    (libc::S_IFREG, BlockedKind::Disk),
    (libc::S_IFBLK, BlockedKind::Disk),
    // Files without an inode of their own: eventfd, timerfd, inotify.
    (0, BlockedKind::Poll),
];

/// Returns what a sleeping task waited for. `call`: see [`PairKey::call`].
fn kind_of(call: i32) -> BlockedKind {
    if call < 0 {
        return BlockedKind::Unknown;
    }
    let (number, file) = (call & ((1 << CALL_BITS) - 1), call >> CALL_BITS);
    let by_file = || {
        let mode = (file as u32).checked_sub(1)? << MODE_SHIFT;
        FILES.iter().find(|(file, _)| *file == mode).map(|(_, kind)| *kind)
    };
    kind_of_call(number.into()).or_else(by_file).unwrap_or(BlockedKind::Other)
}

/// Returns one bit for each system call in which a task may send something to another one. (A read frees space in the receive
/// buffer, for which the sender may wait.)
pub(crate) fn sending_calls() -> [u64; 8] {
    use libc::*;
    bits(|call| {
        matches!(
            call,
            SYS_write | SYS_writev | SYS_pwritev2 | SYS_sendto | SYS_sendmsg | SYS_sendmmsg | SYS_sendfile
        ) || matches!(
            call,
            SYS_splice | SYS_connect | SYS_close | SYS_shutdown | SYS_accept4 | SYS_io_uring_enter
        ) || matches!(call, SYS_read | SYS_readv | SYS_recvfrom | SYS_recvmsg | SYS_recvmmsg | SYS_exit_group)
    })
}

/// The system calls whose first argument is the file that a task waits for, if the number alone does not say it.
pub(crate) fn file_calls() -> [u64; 8] {
    use libc::*;
    bits(|call| {
        matches!(
            call,
            SYS_read | SYS_readv | SYS_write | SYS_writev | SYS_pread64 | SYS_pwrite64 | SYS_splice
        ) || matches!(call, SYS_preadv2 | SYS_pwritev2)
    })
}

/// Returns one bit for each system call that is one of these, by number.
fn bits(is_one: impl Fn(libc::c_long) -> bool) -> [u64; 8] {
    let mut bits = [0; 8];
    (0..512).filter(|call| is_one(*call)).for_each(|call| bits[call as usize / 64] |= 1 << (call % 64));
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_waits_for_is_in_its_call_or_in_its_file() {
        let call = |number: libc::c_long, mode: Option<u32>| {
            let file = mode.map_or(0, |mode| (mode >> MODE_SHIFT) + 1);
            kind_of(number as i32 | (file << CALL_BITS) as i32)
        };
        assert_eq!(call(libc::SYS_futex, None), BlockedKind::Lock);
        assert_eq!(call(libc::SYS_flock, None), BlockedKind::FileLock);
        assert_eq!(call(libc::SYS_read, Some(libc::S_IFSOCK)), BlockedKind::Network);
        assert_eq!(call(libc::SYS_read, Some(libc::S_IFIFO)), BlockedKind::Pipe);
        assert_eq!(call(libc::SYS_read, Some(0)), BlockedKind::Poll);
        assert_eq!(call(libc::SYS_read, None), BlockedKind::Other);
        assert_eq!(kind_of(-1), BlockedKind::Unknown);
    }
    #[test]
    fn a_row_of_several_calls_is_kept_as_a_whole_if_one_of_them_changes() {
        let entry = |call: libc::c_long, waker_tid, count| {
            let key = PairKey { call: call as i32, waker_tid, ..PairKey::default() };
            (key, PairSums { count, ..PairSums::default() })
        };
        let (sent, received) = (libc::SYS_sendto, libc::SYS_recvfrom);
        let earlier =
            [entry(sent, 1, 5), entry(received, 1, 6), entry(sent, 2, 7), entry(libc::SYS_futex, 1, 8)];
        let before = earlier.iter().map(|(key, sums)| (*key, sums.count)).collect();
        let mut entries = earlier.to_vec();
        entries[1].1.count += 1;
        entries.push(entry(sent, 3, 1));
        let gone = take_old(&mut entries, &before);
        let calls = |entries: &[(PairKey, PairSums)]| -> Vec<(i32, u32)> {
            entries.iter().map(|(key, _)| (key.call, key.waker_tid)).collect()
        };
        assert_eq!(calls(&gone), [(sent as i32, 2), (libc::SYS_futex as i32, 1)]);
        assert_eq!(calls(&entries), [(sent as i32, 1), (received as i32, 1), (sent as i32, 3)]);
    }
}
