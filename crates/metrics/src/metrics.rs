//! Sums over Intervals; pages are rendered from them.

use cgscope_model::{CgroupReading, GroupSum, Interval};

use crate::{
    Config,
    cgroup::Cgroup,
    choice::{Families, choose},
    culprits,
    forest::{Forest, Places},
    host::Host,
};

/// Everything exported for a host since the first Interval.
#[derive(Debug)]
pub struct Metrics {
    config: Config,
    pub(crate) forest: Forest,
    /// Sorted by path, the root first: parents precede their children.
    pub(crate) cgroups: Vec<Cgroup>,
    pub(crate) host: Host,
    /// `None` until the first Interval with this configuration, which may bring any number of cgroups.
    newcomers: Option<Families>,
}

impl Metrics {
    /// Creates metrics without any figures.
    pub fn new(config: Config) -> Self {
        Self { config, forest: Forest::new(), cgroups: Vec::new(), host: Host::default(), newcomers: None }
    }

    /// Changes the configuration. Cgroups that are no longer exported are dropped at once, and new ones are added with the next
    /// Interval. The figures of all others stay.
    pub fn set_config(&mut self, config: Config) {
        (self.config, self.newcomers) = (config, None);
        self.forest.judge(&self.config);
        let exported = self.cgroups.iter().map(|cgroup| &cgroup.path);
        let chosen = choose(&self.forest, exported, &self.config, &mut |_| true);
        self.cgroups.retain(|cgroup| *cgroup.path == *"/" || chosen.contains(&cgroup.path));
        self.cgroups.iter_mut().for_each(|cgroup| cgroup.culprits.limit(self.config.culprits));
        self.forest.settle(self.cgroups.iter().map(|cgroup| &cgroup.path));
    }

    /// Adds an Interval.
    pub fn add(&mut self, interval: &Interval) {
        let places = self.forest.observe(interval, &self.config);
        self.choose(interval);
        let above = self.above();
        self.add_tasks(interval, &places, &above);
        self.add_limits(interval);
        let parts = culprits::parts(interval, &self.forest, &places, &above);
        for (cgroup, parts) in self.cgroups.iter_mut().zip(parts) {
            // Coarse mode has no pairs with this blame.
            cgroup.culprits.add(&parts, &self.forest, self.config.culprits, interval);
            cgroup.name(&interval.names);
        }
        self.host.add(interval);
        self.forest.drop_removed();
    }

    fn choose(&mut self, interval: &Interval) {
        let most = self.config.newcomers();
        let mut families = self.newcomers.take();
        let mut comes = |path: &str| families.as_mut().is_none_or(|families| families.comes(path, most));
        let exported = self.cgroups.iter().map(|cgroup| &cgroup.path);
        let mut chosen = choose(&self.forest, exported, &self.config, &mut comes);
        let mut families = families.unwrap_or_default();
        families.pass(interval.duration_ns);
        self.newcomers = Some(families);
        chosen.insert("/".into());
        // The paths that remain in `chosen` are new.
        self.cgroups.retain(|cgroup| chosen.take(&cgroup.path).is_some());
        self.cgroups.extend(chosen.into_iter().map(|path| Cgroup::new(path, interval.start_unix_ns)));
        self.cgroups.sort_unstable_by(|a, b| (*a.path != *"/", &a.path).cmp(&(*b.path != *"/", &b.path)));
        self.forest.settle(self.cgroups.iter().map(|cgroup| &cgroup.path));
    }

    /// Returns, for each exported cgroup, the index of its nearest exported ancestor. The root's is the root itself.
    fn above(&self) -> Vec<usize> {
        let above = |cgroup: &Cgroup| {
            let at = self.forest.find(&cgroup.path).unwrap_or(crate::forest::ROOT);
            self.forest.nodes[self.forest.nodes[at].parent].now.home
        };
        self.cgroups.iter().map(above).collect()
    }

    fn add_tasks(&mut self, interval: &Interval, places: &Places, above: &[usize]) {
        let home = |at: &usize| self.forest.nodes[*at].now.home;
        let mut sums = vec![GroupSum::default(); self.cgroups.len()];
        for (task, at) in interval.tasks.iter().zip(&places.tasks) {
            sums[home(at)].add_task(task);
        }
        places.idle.iter().for_each(|at| sums[home(at)].add_idle(1));
        for (exited, at) in interval.exited.iter().zip(&places.exited) {
            sums[home(at)].add_exited(exited);
        }
        for at in (0..sums.len()).rev() {
            // 0 because the number of processes is not exported.
            let group = sums[at].take(0);
            self.cgroups[at].add(&group, interval.mode);
            if at != 0 {
                sums[above[at]].add_group(&group);
            }
        }
    }

    fn add_limits(&mut self, interval: &Interval) {
        let unread = CgroupReading::default();
        for cgroup in &mut self.cgroups {
            let Some(at) = self.forest.find(&cgroup.path) else { continue };
            let quotas =
                self.forest.upwards(at).filter_map(|node| interval.limits[node.now.limits?].quota_cores());
            let effective = quotas.min_by(f64::total_cmp);
            let limits = self.forest.nodes[at].now.limits.map_or(&unread, |at| &interval.limits[at]);
            cgroup.limit(limits, effective);
        }
    }
}
