//! How wait segments start and end other than at switches.

use super::{CGROUPS, Facts, Flavour, Kernel, STARVED, Segment, Simulated, place, task::State};
use crate::{ByCause, Cause, waits};

impl Kernel {
    pub(super) fn wake(&mut self, at: usize, cpu: u32) {
        if self.tasks[at].state == State::Exited {
            return self.fork(at, cpu);
        }
        let now_ns = self.now_ns;
        let stays = self.tasks[at].state == State::SleepingOnQueue || self.tasks[at].last_queued_ns != 0;
        let cpu = if stays { self.tasks[at].cpu } else { cpu };
        let clock_ns = self.clock_ns(cpu);
        let throttles_tasks = self.flavour == Flavour::ThrottlesTasks;
        // A task that sleeps on its queue can leave the queue without a wakeup.
        let falls_asleep = self.tasks[at].state == State::SleepingOnQueue && self.below(2) == 0;
        let task = &mut self.tasks[at];
        if falls_asleep {
            task.state = State::Sleeping;
        } else if matches!(task.state, State::Sleeping | State::SleepingOnQueue) {
            (task.state, task.cpu) = (State::Queued, cpu);
            if task.last_queued_ns == 0 {
                task.last_queued_ns = clock_ns;
                (task.since_ns, task.is_phantom, task.is_seen) = (Some(now_ns), false, false);
                (task.has_no_clock, task.began_out_of_runtime) = (false, false);
                task.base = task.ran.2;
                let is_base = !throttles_tasks && task.ran.1 == cpu;
                task.throttled_since_ns = is_base.then_some(task.ran.0);
            }
        }
    }

    pub(super) fn change_cpu(&mut self, at: usize, to: u32) {
        let on_queue = matches!(self.tasks[at].state, State::Queued | State::SleepingOnQueue);
        // The history of this CPU lacks the current task until the next switch.
        let is_unseen = self.is_unseen[self.tasks[at].cpu as usize];
        if !on_queue || self.tasks[at].cpu == to || is_unseen {
            return;
        }
        let (now_ns, old_clock_ns) = (self.now_ns, self.clock_ns(self.tasks[at].cpu));
        let is_missed = self.misses_moves
            && self.tasks[at].is_seen
            && self.tasks[at].state == State::Queued
            && self.below(3) == 0;
        let task = &mut self.tasks[at];
        if task.last_queued_ns != 0 {
            task.run_delay_ns += old_clock_ns - task.last_queued_ns;
        }
        (task.last_queued_ns, task.ended_ns) = (0, 0);
        if is_missed {
            task.missed_ns += now_ns - task.since_ns.unwrap_or(now_ns);
            task.unstamped_since_ns = None;
        } else {
            let facts = self.facts(at);
            waits::change_cpu::<Simulated>(facts, &mut self.tasks[at].storage, to);
            let task = &mut self.tasks[at];
            if let Some(since_ns) = task.unstamped_since_ns.take() {
                task.unstamped_ns += now_ns - since_ns;
                task.unstamped_count += 1;
            }
        }
        self.end_segment(at, false);
        self.tasks[at].is_seen = !is_missed;
        self.begin_segment(at, to);
    }

    /// Begins the segment of a task that has moved to the CPU `to`.
    fn begin_segment(&mut self, at: usize, to: u32) {
        let clock_ns = self.clock_ns(to);
        (self.tasks[at].cpu, self.tasks[at].last_queued_ns) = (to, clock_ns);
        self.begin_in(at);
    }

    /// Begins the segment of a task that has moved to its current CPU or to its current cgroup.
    fn begin_in(&mut self, at: usize) {
        let (now_ns, cgroup, cpu) = (self.now_ns, self.tasks[at].cgroup, self.tasks[at].cpu);
        let throttles_tasks = self.flavour == Flavour::ThrottlesTasks;
        let stays_throttled = self.is_queue_throttled(cgroup, cpu);
        let clock_stands = self.stopped[place(cgroup)][cpu as usize];
        let has_sum = self.log.ran_ns(cgroup, cpu, now_ns) != 0;
        let task = &mut self.tasks[at];
        (task.is_throttled, task.has_sum) = (task.is_throttled && stays_throttled, has_sum);
        task.since_ns = Some(now_ns);
        (task.is_phantom, task.base) = (task.state == State::SleepingOnQueue, task.cgroup);
        task.throttled_since_ns = (!throttles_tasks || task.is_throttled).then_some(now_ns);
        task.has_no_clock = task.is_throttled && clock_stands;
        task.began_out_of_runtime = task.is_deadline && task.is_out_of_runtime;
    }

    /// Returns the current segment, as if it ended at this moment.
    pub(super) fn segment(&self, at: usize) -> Option<Segment> {
        let task = &self.tasks[at];
        let since_ns = task.since_ns?;
        let counts =
            task.base == task.cgroup && !(task.is_real_time && self.flavour == Flavour::ThrottlesQueues);
        Some(Segment {
            victim: task.cgroup,
            limit: task.base,
            cpu: task.cpu,
            span: (since_ns, self.now_ns),
            throttled_since_ns: task.throttled_since_ns.filter(|_| counts),
            is_phantom: task.is_phantom,
            has_no_clock: task.has_no_clock,
            began_out_of_runtime: task.began_out_of_runtime,
            is_doubtful: task.is_real_time && !(task.is_seen && task.is_deadline),
            is_seen: task.is_seen && task.has_sum,
        })
    }

    pub(super) fn end_segment(&mut self, at: usize, is_last: bool) {
        let Some(segment) = self.segment(at) else {
            // The kernel does not record when this wait begins.
            let now_ns = self.now_ns;
            let task = &mut self.tasks[at];
            if let Some(since_ns) = task.unstamped_since_ns.take() {
                task.unstamped_ns += now_ns - since_ns;
                task.unstamped_count += 1;
            }
            return;
        };
        self.events.out_of_runtime += u64::from(segment.began_out_of_runtime);
        let parts = self.log.split(&segment, true);
        self.log.press(&segment, &parts);
        let uncertain_ns = if self.starves_one == 0 { 0 } else { self.log.uncertain_ns(&segment) };
        let is_beyond = segment.is_seen && !segment.is_phantom && self.log.is_beyond_history(&segment);
        let task = &mut self.tasks[at];
        task.beyond += u64::from(is_beyond);
        task.uncertain_ns += uncertain_ns;
        task.since_ns = None;
        task.moved.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += ns);
        if is_last {
            task.parts.iter_mut().zip(task.moved).for_each(|(sum, ns)| *sum += ns);
            task.throttled_waits += u64::from(task.moved[Cause::Throttled as usize] != 0);
            task.waits.push(task.moved.iter().sum());
            task.moved = ByCause::default();
        }
    }

    pub(super) fn change_cgroup(&mut self, at: usize) {
        let to = self.cgroups[self.below(CGROUPS.len() as u64) as usize];
        if self.is_plain && at == STARVED || self.tasks[at].state == State::Exited {
            return;
        }
        let task = &self.tasks[at];
        let (state, from) = (task.state, task.cgroup);
        // The history of this CPU lacks the current task until the next switch.
        let needs_history = state == State::Running || task.last_queued_ns != 0;
        let is_unseen = needs_history && self.is_unseen[task.cpu as usize];
        if task.is_kernel_thread || is_unseen || from == to {
            return;
        }
        let waits = task.last_queued_ns != 0 && state != State::Sleeping;
        if task.is_real_time {
            // The kernel calls no function of the fair class here. A wait of the task would still count for the previous cgroup.
            if !waits {
                (self.tasks[at].cgroup, self.tasks[at].storage.cgroup_id) = (to, to);
            }
            return;
        }
        if waits {
            self.events.moved_waits += 1;
            self.events.moved_throttled += u64::from(task.is_throttled);
            let facts = Facts { bound_for: to, ..self.facts(at) };
            waits::leave_group::<Simulated>(facts, &mut self.tasks[at].storage);
            // From now on, the sum is the run time of another group.
            self.tasks[at].has_sum = false;
            self.end_segment(at, true);
        }
        let (now_ns, clock_ns) = (self.now_ns, self.clock_ns(self.tasks[at].cpu));
        let task = &mut self.tasks[at];
        (task.cgroup, task.storage.cgroup_id) = (to, to);
        let facts = self.facts(at);
        waits::enter_group::<Simulated>(facts, &mut self.tasks[at].storage.start);
        if waits {
            self.tasks[at].ended_ns = clock_ns - self.tasks[at].last_queued_ns;
            self.tasks[at].is_seen = true;
            self.begin_in(at);
        } else if self.tasks[at].last_queued_ns == 0 {
            let task = &mut self.tasks[at];
            task.ran = (now_ns, task.cpu, to);
        }
        if state == State::Running {
            let cpu = self.tasks[at].cpu;
            let ring = <Simulated as crate::waits::WaitHost>::ring(cpu).expect("a CPU");
            ring.push(to, clock_ns);
            self.log.ran(cpu, now_ns, to);
        }
        // In a kernel that throttles whole queues, a task in a throttled queue cannot run.
        if state == State::Running && self.flavour == Flavour::ThrottlesQueues {
            self.hold(self.tasks[at].cpu);
        }
    }
}
