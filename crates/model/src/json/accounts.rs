//! The objects of where time goes beside waits. Null where that was not asked for.

use serde::Serialize;

use cgscope_layout::BlockedState;

use crate::{Accounts, Gone};

/// Time on a CPU in user space and in the kernel, of cgroups and of the whole: our own sums over tasks. A cgroup's `user_ns` and
/// `system_ns` are those of its `cpu.stat`.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct CpuTimesObject {
    pub cpu_user_ns: Option<u64>,
    pub cpu_system_ns: Option<u64>,
    pub cpu_guest_ns: Option<u64>,
}

impl CpuTimesObject {
    pub(super) fn of(accounts: Option<&Accounts>) -> Self {
        let cpu = accounts.map(|accounts| accounts.cpu);
        Self {
            cpu_user_ns: cpu.map(|cpu| cpu.user_ns),
            cpu_system_ns: cpu.map(|cpu| cpu.system_ns),
            cpu_guest_ns: cpu.map(|cpu| cpu.guest_ns),
        }
    }
}

/// Time off a CPU without waiting for one, by [`BlockedState`].
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct BlockedObject {
    pub sleeping_ns: u64,
    pub iowait_ns: u64,
    pub uninterruptible_ns: u64,
    pub idle_ns: u64,
    pub stopped_ns: u64,
}

impl BlockedObject {
    pub(super) fn of(accounts: Option<&Accounts>) -> Option<Self> {
        let blocked = accounts?.blocked?;
        Some(Self {
            sleeping_ns: blocked.get(BlockedState::Sleeping),
            iowait_ns: blocked.get(BlockedState::Iowait),
            uninterruptible_ns: blocked.get(BlockedState::Uninterruptible),
            idle_ns: blocked.get(BlockedState::Idle),
            stopped_ns: blocked.get(BlockedState::Stopped),
        })
    }
}

/// What threads of a process did that exited in the interval, told with its main thread.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct GoneObject {
    pub on_cpu_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub guest_ns: u64,
    pub voluntary: u64,
    pub involuntary: u64,
}

impl GoneObject {
    pub(super) fn of(accounts: Option<&Accounts>) -> Option<Self> {
        let gone = accounts.map(|accounts| accounts.gone).filter(|gone| *gone != Gone::default())?;
        let Gone { user_ns, system_ns, guest_ns, on_cpu_ns, voluntary, involuntary } = gone;
        Some(Self { on_cpu_ns, user_ns, system_ns, guest_ns, voluntary, involuntary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByState;

    #[test]
    fn blocked_time_has_the_names_of_its_states() {
        let accounts = Accounts { blocked: Some(ByState([1, 2, 3, 4, 5])), ..Accounts::default() };
        let object = serde_json::to_value(BlockedObject::of(Some(&accounts))).unwrap();
        let object = object.as_object().unwrap();
        assert_eq!(object.len(), BlockedState::ALL.len());
        for (at, state) in BlockedState::ALL.iter().enumerate() {
            assert_eq!(object[&format!("{}_ns", state.name())], at + 1, "{}", state.name());
        }
        assert!(BlockedObject::of(Some(&Accounts::default())).is_none(), "the coarse mode does not see it");
        assert!(GoneObject::of(Some(&accounts)).is_none(), "nobody exited");
    }
}
