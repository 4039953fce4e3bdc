//! The objects of where time goes beside waits. Null where that was not asked for.

use serde::{Serialize, Serializer};

use crate::{Accounts, ByState, Gone};

/// Time off a CPU without waiting for one, by [`BlockedState`](cgscope_layout::BlockedState).
pub struct BlockedObject(ByState);

impl BlockedObject {
    pub(super) fn of(accounts: Option<&Accounts>) -> Option<Self> {
        accounts?.blocked.map(Self)
    }
}

impl Serialize for BlockedObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(state, ns)| (format!("{}_ns", state.name()), ns)))
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
    use cgscope_layout::BlockedState;

    use super::*;

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
