//! Bits of `task_struct.__state` (TASK_* and __TASK_* in include/linux/sched.h). These values hold since Linux 4.14, which
//! renumbered the bits from TASK_PARKED on. TASK_RTLOCK_WAIT (5.15) and TASK_FROZEN (6.1) use bits that were free before.

pub const INTERRUPTIBLE: u32 = 0x1;
pub const UNINTERRUPTIBLE: u32 = 0x2;
pub const STOPPED: u32 = 0x4;
pub const TRACED: u32 = 0x8;
pub const PARKED: u32 = 0x40;
/// TASK_DEAD: the state of a task at its last switch.
pub const DEAD: u32 = 0x80;
/// TASK_NOLOAD. Together with TASK_UNINTERRUPTIBLE, it is the state of a kernel thread that has no work.
pub const NOLOAD: u32 = 0x400;
/// TASK_NEW: the state of a task before it first waits for a CPU.
pub const NEW: u32 = 0x800;
pub const RTLOCK_WAIT: u32 = 0x1000;
pub const FROZEN: u32 = 0x8000;
/// TASK_IDLE. Since 4.14 this state has its own letter.
pub const IDLE: u32 = UNINTERRUPTIBLE | NOLOAD;
