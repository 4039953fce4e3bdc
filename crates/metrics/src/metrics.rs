//! Sums intervals, and renders pages from the sums.

use std::collections::HashMap;

use cgscope_model::{CgroupReading, GroupSum, Interval, path};

use crate::{
    Config, Family, Kind,
    cgroup::{Cgroup, Host},
    choice::{self, Newcomers, choose},
    culprits, family,
    forest::{Forest, Places},
    protobuf::Protobuf,
    text::Text,
    value::{Labels, Value},
    waits::WaitSeries,
};

/// All exported figures of a host since the first interval.
#[derive(Debug)]
pub struct Metrics {
    config: Config,
    pub(crate) forest: Forest,
    /// The exported cgroups, sorted by path. The root is first, and parents precede their children.
    pub(crate) cgroups: Vec<Cgroup>,
    pub(crate) host: Host,
    /// Limits how many new cgroups an interval can add of each family: a service, a user or a pod. Only root can create new
    /// families. `None` until the first interval with this configuration: no limit.
    newcomers: Option<HashMap<Box<str>, Newcomers>>,
}

impl Metrics {
    pub fn new(config: Config) -> Self {
        Self { config, forest: Forest::new(), cgroups: Vec::new(), host: Host::default(), newcomers: None }
    }

    /// Changes the configuration. Drops cgroups that are no longer exported. The next interval adds cgroups that the new
    /// configuration selects. All other figures stay.
    pub fn set_config(&mut self, config: Config) {
        (self.config, self.newcomers) = (config, None);
        self.forest.judge(&self.config);
        let exported = self.cgroups.iter().map(|cgroup| &cgroup.path);
        let chosen = choose(&self.forest, exported, &self.config, &mut |_| true);
        self.cgroups.retain(|cgroup| *cgroup.path == *"/" || chosen.contains(&cgroup.path));
        for cgroup in &mut self.cgroups {
            cgroup.culprits.limit(self.config.culprits);
            cgroup.wakers.limit(self.config.culprits);
        }
        self.forest.settle(self.cgroups.iter().map(|cgroup| &cgroup.path));
    }

    pub fn add(&mut self, interval: &Interval) {
        let places = self.forest.observe(interval, &self.config);
        self.choose(interval);
        let above = self.above();
        self.add_tasks(interval, &places, &above);
        self.add_limits(interval);
        let (forest, most) = (&self.forest, self.config.culprits);
        let culprits = culprits::parts(culprits::ran(interval), interval, forest, &places, &above);
        let wakers = culprits::parts(culprits::woke(interval), interval, forest, &places, &above);
        for ((cgroup, culprits), wakers) in self.cgroups.iter_mut().zip(culprits).zip(wakers) {
            // In coarse mode there are neither pairs nor chains, so both are empty.
            cgroup.culprits.add(&culprits, forest, most, interval);
            cgroup.wakers.add(&wakers, forest, most, interval);
            cgroup.name(&interval.names);
        }
        self.host.add(interval);
        self.forest.drop_removed();
    }

    fn choose(&mut self, interval: &Interval) {
        let most = self.config.newcomers();
        let mut comes = |cgroup: &str| {
            let Some(families) = &mut self.newcomers else { return true };
            families.entry(path::family(cgroup).into()).or_default().comes(most)
        };
        let exported = self.cgroups.iter().map(|cgroup| &cgroup.path);
        let mut chosen = choose(&self.forest, exported, &self.config, &mut comes);
        let newcomers = self.newcomers.get_or_insert_default();
        newcomers.retain(|_, newcomers| !newcomers.pass(interval.duration_ns));
        chosen.insert("/".into());
        // This removes the paths of exported cgroups from `chosen`, so that only new paths remain there.
        self.cgroups.retain(|cgroup| chosen.take(&cgroup.path).is_some());
        self.cgroups.extend(chosen.into_iter().map(|path| Cgroup::new(path, interval.start_unix_ns)));
        self.cgroups.sort_unstable_by(|a, b| (*a.path != *"/", &a.path).cmp(&(*b.path != *"/", &b.path)));
        self.forest.settle(self.cgroups.iter().map(|cgroup| &cgroup.path));
    }

    /// Returns, for each exported cgroup, the index of its nearest exported ancestor; for the root, its own index.
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
        interval.tasks.iter().zip(&places.tasks).for_each(|(task, at)| sums[home(at)].add_task(task));
        places.idle.iter().for_each(|at| sums[home(at)].add_idle(1));
        let exited = interval.exited.iter().zip(&places.exited);
        exited.for_each(|(exited, at)| sums[home(at)].add_exited(exited));
        for at in (0..sums.len()).rev() {
            // Pass 0, because the number of processes is not exported.
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

/// A family whose figures come from the caller of [`Metrics::page`].
#[derive(Clone, Debug)]
pub struct Given {
    /// The family, which must be a counter or a gauge. Histograms are omitted from the page.
    pub family: Family,
    /// Labels and values of the series, in the unit of the family. A family without samples is omitted.
    pub samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Given {
    /// Creates a family with one figure and no labels.
    pub fn one(family: Family, value: f64) -> Self {
        Self { family, samples: vec![(Vec::new(), value)] }
    }
}

/// Name and value of the last label of a series. The labels before it are common to several series.
pub(crate) type Last<'a> = Option<(&'static str, &'a str)>;

/// Writes a page. A family without samples is omitted.
pub(crate) trait Writer {
    fn begin(&mut self, family: &Family);
    /// Writes a figure. For a counter, also writes its creation time, ns since 1970.
    fn sample(&mut self, labels: &Labels, last: Last<'_>, value: Value, created_unix_ns: Option<u64>);
    /// Writes the waits of one cgroup for one cause.
    fn histogram(&mut self, labels: &Labels, last: Last<'_>, series: &WaitSeries, created_unix_ns: u64);
    fn finish(self) -> Vec<u8>;
}

impl Metrics {
    /// Renders a page with all exported figures and the families in `more`. [`Config`] limits the length of the page.
    pub fn page(&self, format: Format, more: &[Given]) -> Vec<u8> {
        match format {
            Format::OpenMetrics => self.write(Text::new(true), more),
            Format::Text => self.write(Text::new(false), more),
            Format::Protobuf => self.write(Protobuf::default(), more),
        }
    }

    fn write<W: Writer>(&self, mut page: W, more: &[Given]) -> Vec<u8> {
        page.begin(&family::WAIT);
        for cgroup in &self.cgroups {
            for (cause, series) in cgroup.waits.series() {
                let last = Some(("cause", cause.name()));
                page.histogram(&cgroup.labels, last, series, cgroup.created_unix_ns);
            }
        }
        for family in family::ALL.iter().filter(|family| family.labels == [family::CGROUP]) {
            page.begin(family);
            for cgroup in &self.cgroups {
                if let Some(value) = cgroup.value(family) {
                    page.sample(&cgroup.labels, None, value, Some(cgroup.created_unix_ns));
                }
            }
        }
        page.begin(&family::CULPRIT_WAIT);
        for cgroup in &self.cgroups {
            for (culprit, series) in cgroup.culprits.series() {
                let (last, created) = (Some(("culprit", culprit)), Some(series.created_unix_ns));
                page.sample(&cgroup.labels, last, Value::Ns(series.ns[0]), created);
            }
        }
        page.begin(&family::SLEEP_FOR);
        for cgroup in &self.cgroups {
            for (waker, series) in cgroup.wakers.series() {
                let labels = cgroup.labels.with("waker_cgroup", waker);
                for (doing, ns) in culprits::DOINGS.into_iter().zip(series.ns) {
                    let (last, created) = (Some(("doing", doing)), Some(series.created_unix_ns));
                    page.sample(&labels, last, Value::Ns(ns), created);
                }
            }
        }
        self.host.write_nodes(&mut page);
        page.begin(&family::CGROUPS);
        for (state, count) in choice::states(&self.forest) {
            page.sample(&Labels::default(), Some(("state", state)), Value::Count(count), None);
        }
        self.host.write_cost(&mut page);
        for given in more.iter().filter(|given| given.family.kind != Kind::Histogram) {
            page.begin(&given.family);
            for (labels, value) in &given.samples {
                page.sample(&Labels::new(labels.clone()), None, Value::Float(*value), None);
            }
        }
        page.finish()
    }
}

cgscope_ledger::named! {
    /// A format of a page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Format (content_type,) {
        content_type: &'static str,
    }

    /// OpenMetrics 1.0: text with units and the creation times of counters.
    OpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    /// Prometheus text format, version 0.0.4, for people and older collectors.
    Text = "text/plain; version=0.0.4; charset=utf-8";
    /// Length-delimited `io.prometheus.client.MetricFamily` messages, with native histograms.
    Protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
}

impl Format {
    /// Returns the format that the `Accept` header of a request prefers. If it prefers several formats equally, returns the first
    /// of these. If it accepts no format, returns text, so that a scrape does not fail because of its header.
    pub fn for_accept(accept: Option<&str>) -> Self {
        let ranges = accept.unwrap_or_default().split(',').filter_map(range);
        ranges.fold((Self::Text, 0.0), |best, range| if range.1 > best.1 { range } else { best }).0
    }
}

/// Returns the format that a media range names, and its weight `q` (0 to 1). `None` if the format is not available.
fn range(range: &str) -> Option<(Format, f64)> {
    let mut parts = range.split(';');
    let media = parts.next()?.trim().to_ascii_lowercase();
    let parameter = |name: &str| {
        let mut pairs = parts.clone().filter_map(|part| part.split_once('='));
        let (_, value) = pairs.rfind(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
        Some(value.trim().trim_matches('"'))
    };
    let q = parameter("q").map_or(Ok(1.0), str::parse).ok().filter(|q| (0.0..=1.0).contains(q))?;
    let is_version = |ours: &str| parameter("version").is_none_or(|version| version == ours);
    let is_family = || parameter("proto") == Some("io.prometheus.client.MetricFamily");
    let format = match media.as_str() {
        "application/openmetrics-text" if is_version("1.0.0") => Format::OpenMetrics,
        "text/plain" if is_version("0.0.4") => Format::Text,
        "text/*" | "*/*" => Format::Text,
        "application/vnd.google.protobuf" if is_family() && parameter("encoding") == Some("delimited") => {
            Format::Protobuf
        }
        _ => return None,
    };
    Some((format, q))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(accept: &str) -> Format {
        Format::for_accept(Some(accept))
    }

    #[test]
    fn prometheus_gets_the_format_that_it_prefers() {
        // Headers of Prometheus 2.42, without and with native histograms, and of Prometheus 3.
        let text = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                    text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let third = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(
            [asked(text), asked(native), asked(third)],
            [Format::OpenMetrics, Format::Protobuf, Format::OpenMetrics]
        );
    }

    #[test]
    fn browsers_and_unsupported_headers_get_text() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for accept in [
            "*/*",
            browser,
            "",
            "image/png",
            "application/vnd.google.protobuf",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
        ] {
            assert_eq!(asked(accept), Format::Text, "{accept}");
        }
        assert_eq!(Format::for_accept(None), Format::Text);
    }

    #[test]
    fn the_highest_quality_wins_and_the_first_on_a_tie() {
        assert_eq!(asked("text/plain;q=0.4, application/openmetrics-text;q=0.5"), Format::OpenMetrics);
        assert_eq!(asked("text/plain; q=0.5, application/openmetrics-text; q=0.5"), Format::Text);
        assert_eq!(
            asked("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8"),
            Format::OpenMetrics
        );
        assert_eq!(asked("application/openmetrics-text;q=7,text/plain;q=0.1"), Format::Text);
        assert_eq!(asked("application/openmetrics-text;q=NaN,text/plain;q=0.1"), Format::Text);
    }

    #[test]
    fn the_content_type_of_a_format_selects_that_format() {
        for format in Format::ALL {
            assert_eq!(asked(format.content_type()), format);
        }
    }

    proptest! {
        #[test]
        fn any_header_is_answered(accept in "[a-z/*;=,. q0-9\"+-]{0,60}") {
            asked(&accept);
        }
    }
}
