//! Switches of the simulated scheduler.

extern crate std;

use std::vec::Vec;

use super::{
    Flavour, Kernel, ROOT, Simulated, TASKS,
    task::{Fate, State},
};
use crate::{
    history::{FOLD_NS, KERNEL},
    segment, waits,
};

impl Kernel {
    pub(super) fn pick(&mut self, cpu: u32) {
        let next = self.next(cpu);
        let fate = match self.below(8) {
            0..4 => Fate::Preempted,
            4 => Fate::PreemptedUnstamped,
            5..7 => Fate::Sleeps,
            _ => Fate::SleepsOnQueue,
        };
        self.switch(cpu, next, fate);
    }

    /// Returns a task that can run on the CPU. Sometimes returns no task, so that the CPU goes idle.
    pub(super) fn next(&mut self, cpu: u32) -> Option<usize> {
        let mut able: Vec<usize> = (0..TASKS).filter(|at| self.can_run(*at, cpu)).collect();
        able.retain(|at| !self.is_starved(*at));
        match able.len() as u64 {
            0 => None,
            count => Some(able[self.below(count) as usize]).filter(|_| self.below(8) != 0),
        }
    }

    /// Gives the CPU to a task that the kernel hides from the hook. The hook does not run when that task switches out.
    pub(super) fn hide(&mut self, cpu: u32) {
        let (at, is_hidden) = (cpu as usize, self.is_hidden[cpu as usize]);
        if self.misses_moves || is_hidden {
            return;
        }
        if self.current[at].is_some() {
            self.switch(cpu, None, Fate::Sleeps);
        }
        self.settle(cpu, None);
        // The hidden task is in the root.
        let (now_ns, clock_ns) = (self.now_ns, self.clock_ns(cpu));
        let ring = <Simulated as crate::waits::WaitHost>::ring(cpu).expect("a CPU");
        if !ring.latest_is(ROOT) && !ring.fold(ROOT, clock_ns) {
            ring.push(ROOT, clock_ns);
        }
        self.log.ran(cpu, now_ns, ROOT);
        (self.is_hidden[at], self.since_ns[at]) = (true, now_ns);
    }

    pub(super) fn switch(&mut self, cpu: u32, next: Option<usize>, fate: Fate) {
        let prev = self.current[cpu as usize];
        let is_hidden = core::mem::take(&mut self.is_hidden[cpu as usize]);
        if prev == next && !is_hidden {
            return;
        }
        // One nanosecond passes, because a wait of 0 ns would not change the kernel's sum.
        self.now_ns += u64::from(is_hidden);
        // The history merges shorter runs of kernel threads. With these, the result is exact only to a 64th (see `history`).
        let since_ns = self.since_ns[cpu as usize];
        if self.who(prev) == KERNEL && self.now_ns < since_ns + FOLD_NS {
            self.now_ns = since_ns + FOLD_NS;
        }
        prev.into_iter().for_each(|prev| self.tasks[prev].switches += 1);
        if fate == Fate::Preempted && self.below(2) == 0 {
            prev.into_iter()
                .for_each(|prev| self.tasks[prev].is_out_of_runtime = self.tasks[prev].is_real_time);
        }
        if !is_hidden {
            self.settle(cpu, prev);
            self.on_switch(cpu, prev, next, fate);
        }
        self.is_unseen[cpu as usize] = is_hidden;
        let (now_ns, clock_ns, who) = (self.now_ns, self.clock_ns(cpu), self.who(next));
        if let Some(prev) = prev {
            self.depart(prev, fate);
        }
        if let Some(next) = next {
            self.count_first_wait(next);
            self.end_segment(next, true);
            let task = &mut self.tasks[next];
            if task.last_queued_ns != 0 {
                task.run_delay_ns += clock_ns - task.last_queued_ns;
            }
            (task.last_queued_ns, task.ended_ns) = (0, 0);
            (task.state, task.ran) = (State::Running, (now_ns, cpu, task.cgroup));
        }
        self.log.ran(cpu, now_ns, who);
        (self.current[cpu as usize], self.since_ns[cpu as usize]) = (next, now_ns);
    }

    /// Does what the hook does at the next switch if it did not see the previous switch.
    fn settle(&mut self, cpu: u32, prev: Option<usize>) {
        if !core::mem::take(&mut self.is_unseen[cpu as usize]) {
            return;
        }
        let clock_ns = self.clock_ns(cpu);
        let since_ns = self.since_ns[cpu as usize] + Self::offset_ns(cpu);
        let ring = <Simulated as crate::waits::WaitHost>::ring(cpu).expect("a CPU");
        ring.push(self.who(prev), since_ns);
        if let Some(prev) = prev {
            let facts = self.facts(prev);
            let storage = &mut self.tasks[prev].storage;
            waits::arrived_unseen::<Simulated>(facts, storage, cpu, since_ns);
            segment::run::<Simulated>(facts, &mut storage.start, cpu, clock_ns);
        }
    }

    /// Does the work of the hook at `sched_switch`.
    fn on_switch(&mut self, cpu: u32, prev: Option<usize>, next: Option<usize>, fate: Fate) {
        let clock_ns = self.clock_ns(cpu);
        let ring = <Simulated as crate::waits::WaitHost>::ring(cpu).expect("a CPU");
        if let Some(prev) = prev {
            let facts = self.facts(prev);
            let storage = &mut self.tasks[prev].storage;
            match fate {
                Fate::Preempted => {
                    segment::leave::<Simulated>(facts, storage, ring, cpu, clock_ns);
                }
                Fate::PreemptedUnstamped => waits::begin_unstamped(facts, storage, clock_ns),
                Fate::Sleeps | Fate::SleepsOnQueue => {}
                Fate::Exits => self.check_exit(prev),
            }
        }
        let who = self.who(next);
        if let Some(next) = next {
            let facts = self.facts(next);
            let storage = &mut self.tasks[next].storage;
            waits::arrive::<Simulated>(facts, storage, cpu, clock_ns, ring);
            segment::run::<Simulated>(facts, &mut storage.start, cpu, clock_ns);
        }
        if !ring.latest_is(who) && !ring.fold(who, clock_ns) {
            ring.push(who, clock_ns);
        }
    }

    /// Records that a task leaves its CPU (`sched_info_depart`).
    fn depart(&mut self, at: usize, fate: Fate) {
        let (now_ns, clock_ns) = (self.now_ns, self.clock_ns(self.tasks[at].cpu));
        let throttles_tasks = self.flavour == Flavour::ThrottlesTasks;
        let task = &mut self.tasks[at];
        let has_sum = self.log.ran_ns(task.cgroup, task.cpu, now_ns) != 0;
        task.state = match fate {
            Fate::Preempted | Fate::PreemptedUnstamped => State::Queued,
            Fate::Sleeps => State::Sleeping,
            Fate::SleepsOnQueue => State::SleepingOnQueue,
            Fate::Exits => State::Exited,
        };
        match fate {
            Fate::Preempted => {
                task.last_queued_ns = clock_ns;
                (task.since_ns, task.is_phantom, task.is_seen) = (Some(now_ns), false, true);
                (task.has_no_clock, task.has_sum) = (false, has_sum);
                task.began_out_of_runtime = task.is_out_of_runtime;
                // In a kernel that throttles whole queues, throttled time counts from the last switch in, and in the cgroup of
                // that time.
                let counts = !throttles_tasks || task.is_throttled;
                task.base = if throttles_tasks { task.cgroup } else { task.ran.2 };
                task.throttled_since_ns = counts.then_some(if throttles_tasks { now_ns } else { task.ran.0 });
            }
            Fate::PreemptedUnstamped => task.unstamped_since_ns = Some(now_ns),
            _ => {}
        }
    }
}
