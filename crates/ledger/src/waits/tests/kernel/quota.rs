//! Quotas that run out and are refilled.

use super::{CPUS, Flavour, Kernel, TASKS, place, task::Fate};

impl Kernel {
    pub(super) fn throttle(&mut self, cgroup: u64, cpu: u32) {
        if self.is_queue_throttled(cgroup, cpu) || self.is_plain {
            return;
        }
        let current = self.current[cpu as usize].map(|at| self.tasks[at].cgroup);
        // In Linux 6.18, the clock starts only when the kernel throttles the first task on the queue.
        if self.flavour == Flavour::ThrottlesTasks && current != Some(cgroup) && self.below(2) == 0 {
            self.stopped[place(cgroup)][cpu as usize] = true;
            return;
        }
        self.start_clock(cgroup, cpu);
        self.hold(cpu);
    }

    pub(super) fn replenish(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.is_out_of_runtime = false);
    }

    fn start_clock(&mut self, cgroup: u64, cpu: u32) {
        self.queues[place(cgroup)][cpu as usize].1 = self.now_ns;
        self.log.throttle(cgroup, cpu, self.now_ns);
    }

    /// Takes the current task off the CPU if its quota is used up.
    pub(super) fn hold(&mut self, cpu: u32) {
        let Some(at) = self.current[cpu as usize] else { return };
        let task = &mut self.tasks[at];
        let cgroup = task.cgroup;
        if task.is_real_time || task.is_kernel_thread || !self.is_queue_throttled(cgroup, cpu) {
            return;
        }
        self.tasks[at].is_throttled = self.flavour == Flavour::ThrottlesTasks;
        if core::mem::take(&mut self.stopped[place(cgroup)][cpu as usize]) {
            self.start_clock(cgroup, cpu);
        }
        let next = (0..TASKS).find(|at| self.can_run(*at, cpu) && !self.is_starved(*at));
        self.switch(cpu, next, Fate::Preempted);
        // The task may also be moved in the same nanosecond.
        if self.misses_moves && self.below(4) == 0 {
            let to = self.below(CPUS as u64) as u32;
            self.change_cpu(at, to);
        }
    }

    pub(super) fn unthrottle(&mut self, cgroup: u64, cpu: u32) {
        // If an unseen task was throttled and runs during a whole throttled phase, that phase would count as the task's.
        let is_unseen = self.is_unseen[cpu as usize];
        if !self.is_queue_throttled(cgroup, cpu) || is_unseen {
            return;
        }
        if !core::mem::take(&mut self.stopped[place(cgroup)][cpu as usize]) {
            let queue = &mut self.queues[place(cgroup)][cpu as usize];
            queue.0 += self.now_ns - queue.1;
            queue.1 = 0;
            self.log.unthrottle(cgroup, cpu, self.now_ns);
        }
        let held = self.tasks.iter_mut().filter(|task| (task.cgroup, task.cpu) == (cgroup, cpu));
        held.for_each(|task| task.is_throttled = false);
    }
}
