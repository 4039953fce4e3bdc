//! Compares waiting beyond fair shares with a reference: a simulated fair scheduler of one CPU that sees every tick. The
//! reference applies the definition. In each tick in which the victim can run, weights divide the tick on each level among the
//! cgroups that can run. A neighbour's share is the sum over these ticks, and the rest of its run time is beyond the share. The
//! formula knows only the sums of the interval.

use std::collections::BTreeMap;

use cgscope_model::{
    Blame, ByCause, Cause, CgroupReading, ExitedInterval, Interval, PairReading, Scheduling, TaskInterval,
    TaskReading, Totals, Tree, Wait,
};
use oorandom::Rand32;

const TICK_NS: u64 = 1_000_000;

/// A task that runs for `burst` ticks and then sleeps for `sleep` ticks (0: never sleeps).
#[derive(Clone, Copy, Debug, Default)]
struct Task {
    cgroup: usize,
    burst: u64,
    sleep: u64,
    /// Ticks until the task sleeps or wakes.
    left: u64,
    is_asleep: bool,
    virtual_time: f64,
    ran: u64,
    waited_own: u64,
    waited_other: u64,
}

/// A cgroup below `parent`. The first cgroup is the root.
#[derive(Clone, Debug, Default)]
struct Cgroup {
    path: String,
    parent: usize,
    /// Weight in the cgroup's files.
    weight: u64,
    /// Weight that the scheduler uses.
    used_weight: f64,
    virtual_time: f64,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    cgroups: Vec<Cgroup>,
    tasks: Vec<Task>,
    /// Number of ticks for which a task keeps the CPU.
    slice: u64,
    /// Ticks that victims waited for culprits, by the cgroups of both tasks.
    pairs: BTreeMap<(usize, usize), u64>,
    /// Ticks to which weights entitle a sibling, by victim and sibling. A sibling is one of the victim or of one of its
    /// ancestors.
    fair: BTreeMap<(usize, usize), f64>,
    ticks: u64,
}

impl Cpu {
    fn new(slice: u64) -> Self {
        let root = Cgroup { path: "/".into(), ..Cgroup::default() };
        Self { cgroups: vec![root], slice, ..Self::default() }
    }

    fn cgroup(&mut self, parent: usize, weight: u64) -> usize {
        let above = self.cgroups[parent].path.trim_end_matches('/');
        let path = format!("{above}/{}", self.cgroups.len());
        self.cgroups.push(Cgroup { path, parent, weight, used_weight: weight as f64, virtual_time: 0.0 });
        self.cgroups.len() - 1
    }

    fn task(&mut self, cgroup: usize, burst: u64, sleep: u64) {
        let left = if sleep == 0 { u64::MAX } else { burst };
        self.tasks.push(Task { cgroup, burst, sleep, left, ..Task::default() });
    }

    /// Returns a cgroup and its ancestors without the root.
    fn path(&self, cgroup: usize) -> Vec<usize> {
        let path = std::iter::successors(Some(cgroup), |at| Some(self.cgroups[*at].parent));
        path.take_while(|at| *at != 0).collect()
    }

    /// Returns for each cgroup whether a task in the cgroup or in a descendant can run.
    fn runnable(&self) -> Vec<bool> {
        let mut runnable = vec![false; self.cgroups.len()];
        for task in self.tasks.iter().filter(|task| !task.is_asleep) {
            self.path(task.cgroup).into_iter().for_each(|at| runnable[at] = true);
        }
        runnable
    }

    fn children(&self, of: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.cgroups.len()).filter(move |at| self.cgroups[*at].parent == of)
    }

    /// Returns the task to run: chooses the cgroup with the least virtual time on each level, and its task with the least virtual
    /// time.
    fn pick(&self, runnable: &[bool]) -> Option<usize> {
        let mut at = 0;
        let by_time =
            |a: &usize, b: &usize| self.cgroups[*a].virtual_time.total_cmp(&self.cgroups[*b].virtual_time);
        while let Some(next) = self.children(at).filter(|child| runnable[*child]).min_by(by_time) {
            at = next;
        }
        let tasks = (0..self.tasks.len())
            .filter(|task| self.tasks[*task].cgroup == at && !self.tasks[*task].is_asleep);
        tasks.min_by(|a, b| self.tasks[*a].virtual_time.total_cmp(&self.tasks[*b].virtual_time))
    }

    /// Wakes tasks. The virtual time of a woken task or cgroup becomes at least that of its siblings' minimum, so sleep earns no
    /// credit.
    fn wake(&mut self) {
        for at in 0..self.tasks.len() {
            let task = &mut self.tasks[at];
            if !task.is_asleep || task.left != 0 {
                task.left -= u64::from(task.is_asleep);
                continue;
            }
            let before = self.runnable();
            let (cgroup, burst) = (self.tasks[at].cgroup, self.tasks[at].burst);
            for level in self.path(cgroup).into_iter().filter(|level| !before[*level]) {
                let siblings = self.children(self.cgroups[level].parent).filter(|at| before[*at]);
                let least = siblings.map(|at| self.cgroups[at].virtual_time).min_by(f64::total_cmp);
                let time = &mut self.cgroups[level].virtual_time;
                *time = time.max(least.unwrap_or(*time));
            }
            let others = self.tasks.iter().filter(|task| task.cgroup == cgroup && !task.is_asleep);
            let least = others.map(|task| task.virtual_time).min_by(f64::total_cmp);
            let task = &mut self.tasks[at];
            task.virtual_time = task.virtual_time.max(least.unwrap_or(task.virtual_time));
            (task.is_asleep, task.left) = (false, burst);
        }
    }

    fn run(&mut self, ticks: u64) {
        let mut on_cpu: Option<(usize, u64)> = None;
        for _ in 0..ticks {
            self.wake();
            let runnable = self.runnable();
            let kept = on_cpu.filter(|(task, left)| *left != 0 && !self.tasks[*task].is_asleep);
            on_cpu = kept.or_else(|| Some((self.pick(&runnable)?, self.slice)));
            if let Some((task, left)) = &mut on_cpu {
                *left -= 1;
                self.count(*task, &runnable);
                self.advance(*task);
            }
        }
        self.ticks += ticks;
    }

    fn advance(&mut self, task: usize) {
        for at in self.path(self.tasks[task].cgroup) {
            let cgroup = &mut self.cgroups[at];
            cgroup.virtual_time += 1.0 / cgroup.used_weight;
        }
        let task = &mut self.tasks[task];
        (task.ran, task.virtual_time) = (task.ran + 1, task.virtual_time + 1.0);
        if task.sleep != 0 {
            task.left -= 1;
            if task.left == 0 {
                (task.is_asleep, task.left) = (true, task.sleep);
            }
        }
    }

    fn count(&mut self, running: usize, runnable: &[bool]) {
        let culprit = self.tasks[running].cgroup;
        let above: Vec<usize> = [self.path(culprit), vec![0]].concat();
        for at in 0..self.tasks.len() {
            let Task { cgroup: victim, is_asleep, .. } = self.tasks[at];
            if is_asleep {
                continue;
            }
            for ours in self.path(victim) {
                // The weights of a level divide the time of the parent.
                let parent = self.cgroups[ours].parent;
                if !above.contains(&parent) {
                    continue;
                }
                let level: Vec<usize> = self.children(parent).filter(|child| runnable[*child]).collect();
                let weight = |at: &usize| self.cgroups[*at].weight as f64;
                let all: f64 = level.iter().map(weight).sum();
                for theirs in level.iter().filter(|theirs| **theirs != ours) {
                    *self.fair.entry((victim, *theirs)).or_default() += weight(theirs) / all;
                }
            }
            let task = &mut self.tasks[at];
            if at == running {
            } else if victim == culprit {
                task.waited_own += 1;
            } else {
                task.waited_other += 1;
                *self.pairs.entry((victim, culprit)).or_default() += 1;
            }
        }
    }

    /// Returns ticks beyond the share of the sibling that contains the culprit, by victim and culprit, according to the
    /// definition.
    fn beyond(&self) -> BTreeMap<(usize, usize), f64> {
        let mut ran: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        let sibling = |victim, culprit| {
            let ours = [self.path(victim), vec![0]].concat();
            self.path(culprit).into_iter().find(|at| ours.contains(&self.cgroups[*at].parent)).expect("one")
        };
        for ((victim, culprit), ticks) in &self.pairs {
            *ran.entry((*victim, sibling(*victim, *culprit))).or_default() += *ticks as f64;
        }
        let beyond = |(victim, culprit): (usize, usize), ticks: u64| {
            let key = (victim, sibling(victim, culprit));
            ticks as f64 * (1.0 - self.fair[&key] / ran[&key]).max(0.0)
        };
        self.pairs.iter().map(|(key, ticks)| (*key, beyond(*key, *ticks))).collect()
    }

    /// Returns the interval that cgscope would measure.
    fn interval(&self) -> Interval {
        let id = |cgroup: usize| cgroup as u64 + 1;
        let wait = |task: &Task| {
            let mut by_cause = ByCause::only(Cause::OwnCgroup, task.waited_own * TICK_NS);
            by_cause.add(&ByCause::only(Cause::OtherCgroup, task.waited_other * TICK_NS));
            Wait { count: 1, total_ns: by_cause.total(), by_cause, ..Wait::default() }
        };
        let tasks = self.tasks.iter().zip(1..).map(|(task, serial)| TaskInterval {
            reading: TaskReading {
                serial,
                tid: serial as u32,
                tgid: serial as u32,
                cgroup_id: id(task.cgroup),
                scheduling: Some(Scheduling::default()),
                ..TaskReading::default()
            },
            totals: Totals { on_cpu_ns: task.ran * TICK_NS, ..Totals::default() },
            wait: wait(task),
            ..TaskInterval::default()
        });
        let pair = |((victim, culprit), ticks): (&(usize, usize), &u64)| PairReading {
            victim: id(*victim),
            culprit: id(*culprit),
            blame: Blame::Ran,
            tid: 0,
            comm: "".into(),
            ns: ticks * TICK_NS,
        };
        let limits = (1..self.cgroups.len()).map(|at| CgroupReading {
            id: id(at),
            weight: Some(self.cgroups[at].weight),
            ..CgroupReading::default()
        });
        Interval {
            duration_ns: self.ticks * TICK_NS,
            tasks: tasks.collect(),
            pairs: self.pairs.iter().map(pair).collect(),
            limits: limits.collect(),
            cgroups: (0..self.cgroups.len())
                .map(|at| (id(at), self.cgroups[at].path.as_str().into()))
                .collect(),
            ..Interval::default()
        }
    }

    /// Returns ticks beyond the culprit's share, by victim and culprit, according to the formula.
    fn formula(&self) -> BTreeMap<(usize, usize), f64> {
        let interval = self.interval();
        let tree = Tree::new(&interval);
        let path = |cgroup: usize| self.cgroups[cgroup].path.as_str();
        let of = |(victim, culprit): (usize, usize)| {
            let node = &tree.nodes()[tree.find(path(victim)).expect("a cgroup with tasks")];
            let found = node.culprits.iter().find(|found| found.path.as_deref() == Some(path(culprit)));
            found.expect("a culprit").beyond_ns.expect("weights are known") as f64 / TICK_NS as f64
        };
        self.pairs.keys().map(|key| (*key, of(*key))).collect()
    }

    /// Returns for each victim the number of ticks in which its tasks could run.
    fn could_run(&self) -> BTreeMap<usize, f64> {
        let mut all = BTreeMap::new();
        for task in &self.tasks {
            *all.entry(task.cgroup).or_default() += (task.ran + task.waited_own + task.waited_other) as f64;
        }
        all
    }
}

/// Differences between formula and reference, in percent of the time in which the victim could run: the largest positive and
/// negative difference, and the values for the mean of the absolute differences.
#[derive(Debug, Default)]
struct Errors {
    too_much: f64,
    too_little: f64,
    sum: f64,
    count: f64,
    /// The largest time beyond a share in the reference, in percent of the same time.
    most: f64,
}

impl Errors {
    fn add(&mut self, cpu: &Cpu) {
        let (formula, could_run) = (cpu.formula(), cpu.could_run());
        for (key, beyond) in cpu.beyond() {
            let percent = |ticks: f64| 100.0 * ticks / could_run[&key.0];
            let error = percent(formula[&key] - beyond);
            self.too_much = self.too_much.max(error);
            self.too_little = self.too_little.max(-error);
            (self.sum, self.count) = (self.sum + error.abs(), self.count + 1.0);
            self.most = self.most.max(percent(beyond));
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }
}

/// Returns cgroups on two levels, with one to three tasks in each leaf.
fn random(seed: u64, sleeps: bool, is_fair: bool) -> Cpu {
    let mut chance = Rand32::new(seed);
    let mut cpu = Cpu::new(u64::from(chance.rand_range(1..5)));
    for _ in 0..chance.rand_range(2..5) {
        let above = cpu.cgroup(0, u64::from(chance.rand_range(20..1000)));
        let leaves: Vec<usize> = match chance.rand_range(0..3) {
            0 => vec![above],
            count => (0..=count).map(|_| cpu.cgroup(above, u64::from(chance.rand_range(20..1000)))).collect(),
        };
        for leaf in leaves {
            for _ in 0..chance.rand_range(1..4) {
                let sleep = if sleeps { u64::from(chance.rand_range(0..100)) } else { 0 };
                cpu.task(leaf, u64::from(chance.rand_range(1..50)), sleep);
            }
        }
    }
    if !is_fair {
        for cgroup in &mut cpu.cgroups {
            cgroup.used_weight *= [0.1, 0.3, 1.0, 3.0, 10.0][chance.rand_range(0..5) as usize];
        }
    }
    cpu.run(4_000);
    cpu
}

fn errors(sleeps: bool, is_fair: bool) -> Errors {
    let mut errors = Errors::default();
    (0..40).for_each(|seed| errors.add(&random(seed, sleeps, is_fair)));
    println!("mean {:.2} of {errors:.2?}", errors.mean());
    errors
}

#[test]
fn tasks_that_never_sleep_are_within_their_weights_under_a_fair_scheduler() {
    let errors = errors(false, true);
    assert!(errors.most <= 0.1, "{errors:?}");
    assert!(errors.too_much <= 0.1 && errors.too_little <= 0.1, "{errors:?}");
}

#[test]
fn time_beyond_shares_is_exact_if_tasks_never_sleep() {
    let errors = errors(false, false);
    assert!(errors.most >= 30.0, "the schedules are not unfair: {errors:?}");
    assert!(errors.too_much <= 0.1 && errors.too_little <= 0.1, "{errors:?}");
}

/// docs/figures.md states these errors.
#[test]
fn sleeping_tasks_make_the_formula_inexact_within_bounds() {
    for is_fair in [true, false] {
        let errors = errors(true, is_fair);
        assert!(errors.mean() <= 0.3, "{} of {errors:?}", errors.mean());
        assert!(errors.too_much <= 7.0 && errors.too_little <= 12.0, "{errors:?}");
    }
}

/// Returns loops in a cgroup of weight 100 and in a cgroup of weight 300. `tasks` has the number of loops in each cgroup.
fn quarter(tasks: [usize; 2]) -> [f64; 2] {
    let mut cpu = Cpu::new(3);
    let (light, heavy) = (cpu.cgroup(0, 100), cpu.cgroup(0, 300));
    for (cgroup, count) in [light, heavy].into_iter().zip(tasks) {
        (0..count).for_each(|_| cpu.task(cgroup, 1, 0));
    }
    cpu.run(20_000);
    let (could_run, formula) = (cpu.could_run(), cpu.formula());
    let waited = cpu.pairs[&(light, heavy)] as f64 / could_run[&light];
    assert!((waited - 0.75).abs() < 0.01, "{waited}");
    [(light, heavy), (heavy, light)].map(|key| formula[&key] / cpu.pairs[&key] as f64)
}

#[test]
fn nothing_is_beyond_weights_of_100_and_300() {
    for tasks in [[1, 1], [4, 1], [1, 4], [3, 3]] {
        let beyond = quarter(tasks);
        assert!(beyond.iter().all(|share| *share < 0.02), "{tasks:?}: {beyond:?}");
    }
}

/// A cgroup of weight 10,000 runs for 20 ms after each 80 ms of sleep. Another cgroup of weight 100 has a loop. The scheduler has
/// slices of 4 ms, and does not preempt within a slice.
#[test]
fn bursts_of_a_heavy_cgroup_are_within_its_weight_and_its_own_waits_are_not() {
    const WEIGHTS: [f64; 2] = [100.0, 10_000.0];
    let all = WEIGHTS[0] + WEIGHTS[1];
    let mut cpu = Cpu::new(4);
    let (light, heavy) = (cpu.cgroup(0, 100), cpu.cgroup(0, 10_000));
    cpu.task(light, 1, 0);
    cpu.task(heavy, 20, 80);
    cpu.run(20_000);
    let (could_run, formula, beyond) = (cpu.could_run(), cpu.formula(), cpu.beyond());
    let waited = |key| cpu.pairs[&key] as f64;

    // The loop waits for 20 ms in each burst. By definition, the heavy cgroup is entitled to 10,000 / 10,100 of a burst. The
    // formula knows only sums, and entitles the heavy cgroup to 10,000 / 10,100 of the whole time, which is more than this cgroup
    // runs.
    let key = (light, heavy);
    let expected = (waited(key) - WEIGHTS[1] / all * could_run[&key.0]).max(0.0);
    assert_eq!((formula[&key], expected), (0.0, 0.0));
    let by_definition = beyond[&key] / waited(key);
    assert!(by_definition < 0.02, "{by_definition}");

    // The heavy cgroup can run while it runs or waits for the end of a slice. Weights entitle the loop to 100 / 10,100 of that
    // time.
    let key = (heavy, light);
    let expected = waited(key) - WEIGHTS[0] / all * could_run[&key.0];
    assert!(expected > 0.8 * waited(key), "{expected} of {}", waited(key));
    assert!((formula[&key] - expected).abs() < 0.01, "{} {expected}", formula[&key]);
    assert!((beyond[&key] - expected).abs() < 0.02 * waited(key), "{} {expected}", beyond[&key]);
}

fn two_loops() -> Interval {
    let mut cpu = Cpu::new(2);
    for _ in 0..2 {
        let cgroup = cpu.cgroup(0, 100);
        cpu.task(cgroup, 1, 0);
    }
    cpu.run(1_000);
    cpu.interval()
}

/// Returns the part of the first loop's waiting that is beyond the second loop's share, 0 to 1.
fn share_beyond(interval: &Interval) -> Option<f64> {
    let culprits = interval.culprits_of("/1");
    assert_eq!(culprits.len(), 1);
    Some(culprits[0].beyond_ns? as f64 / culprits[0].ns as f64)
}

#[test]
fn a_cgroup_divides_its_weight_among_the_cpus_that_it_uses() {
    let mut interval = two_loops();
    assert_eq!(share_beyond(&interval), Some(0.0));
    // If the neighbour has another loop on another CPU, only half of its weight applies to this CPU. Its share falls from 1/2 to
    // 1/3.
    let mut loop_there = interval.tasks[1].clone();
    (loop_there.reading.serial, loop_there.reading.cpu, loop_there.wait) = (3, 1, Wait::default());
    loop_there.totals.on_cpu_ns = interval.duration_ns;
    interval.tasks.push(loop_there);
    let beyond = share_beyond(&interval).expect("weights are known");
    assert!((beyond - (0.5 - 1.0 / 3.0) / 0.5).abs() < 0.01, "{beyond}");
    // On the same CPU, both loops share one weight.
    interval.tasks[2].reading.cpu = 0;
    assert_eq!(share_beyond(&interval), Some(0.0));
}

#[test]
fn exited_tasks_want_their_share_too() {
    let mut interval = two_loops();
    let loop_ = interval.tasks.remove(1);
    assert_eq!(share_beyond(&interval), None, "no task of the neighbour is known");
    interval.exited.push(ExitedInterval {
        cgroup_id: loop_.reading.cgroup_id,
        tasks: 1,
        totals: loop_.totals,
        accounts: None,
        wait: loop_.wait,
    });
    assert_eq!(share_beyond(&interval), Some(0.0));
}

#[test]
fn time_behind_real_time_tasks_is_beyond_any_weight() {
    let mut interval = two_loops();
    let fifo = Some(Scheduling { policy: 1, is_bound: false });
    interval.tasks[1].reading.scheduling = fifo;
    assert_eq!(share_beyond(&interval), Some(1.0));
    // Weights do not apply to a real-time victim either.
    interval.tasks[0].reading.scheduling = fifo;
    assert_eq!(share_beyond(&interval), None);
}

#[test]
fn without_a_weight_or_with_a_selection_the_part_beyond_is_unknown() {
    for at in 0..2 {
        let mut interval = two_loops();
        interval.limits[at].weight = None;
        assert_eq!(share_beyond(&interval), None);
    }
    let mut interval = two_loops();
    interval.is_selection = true;
    assert_eq!(share_beyond(&interval), None);
    let mut interval = two_loops();
    interval.pairs[0].tid = 7;
    assert_eq!(share_beyond(&interval), None, "pairs name tasks only in a selection");
}

#[test]
fn weights_do_not_divide_time_with_an_ancestor_or_within_a_cgroup() {
    let mut interval = two_loops();
    let id = interval.pairs[0].culprit;
    let at = interval.cgroups.iter().position(|(at, _)| *at == id).expect("named");
    for path in ["/", "/1", "/1/below"] {
        interval.cgroups[at].1 = path.into();
        let culprits = interval.culprits_of("/1");
        assert!(!culprits.is_empty() && culprits.iter().all(|culprit| culprit.beyond_ns.is_none()), "{path}");
    }
}

#[test]
fn a_cgroup_with_cpu_idle_has_a_small_share() {
    let mut interval = two_loops();
    interval.limits[1].weight = Some(0);
    let beyond = share_beyond(&interval).expect("weights are known");
    assert!((beyond - (1.0 - 2.0 * 3.0 / 1027.0)).abs() < 0.01, "{beyond}");
}
