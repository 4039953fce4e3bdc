//! A page: all families, in the same order in each format.

use crate::{
    Family, Format, Kind, Metrics, choice, family,
    protobuf::Protobuf,
    text::Text,
    value::{Labels, Value},
    waits::WaitSeries,
};

/// A family with figures of the caller.
#[derive(Clone, Debug)]
pub struct Given {
    /// A counter or a gauge that no Interval has; a histogram is omitted.
    pub family: Family,
    /// Its samples; a family without any is omitted.
    pub samples: Vec<GivenSample>,
}

/// A figure of the caller.
#[derive(Clone, Debug)]
pub struct GivenSample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// In the unit of the family.
    pub value: f64,
}

impl Given {
    /// A family with one figure and no labels.
    pub fn one(family: Family, value: f64) -> Self {
        Self { family, samples: vec![GivenSample { labels: Vec::new(), value }] }
    }
}

/// The last label of a series, after those that it shares with others.
pub(crate) type Last<'a> = Option<(&'static str, &'a str)>;

/// A family with one series for each `T`; `None`: not known, so omitted.
pub(crate) type Figure<T> = (&'static Family, fn(&T) -> Option<Value>);

/// Writes a page. A family without samples leaves nothing on it.
pub(crate) trait Writer {
    /// Samples of this family follow.
    fn begin(&mut self, family: &Family);
    /// Writes a figure, for a counter with the moment it began at, ns since 1970.
    fn sample(&mut self, labels: &Labels, last: Last<'_>, value: Value, created_unix_ns: Option<u64>);
    /// Writes the waits of a cgroup and cause.
    fn histogram(&mut self, labels: &Labels, last: Last<'_>, series: &WaitSeries, created_unix_ns: u64);
    fn finish(self) -> Vec<u8>;
}

impl Metrics {
    /// The page of all exported figures and of `more`. The configuration bounds its length, however many cgroups the host has.
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
                page.sample(&cgroup.labels, last, Value::Ns(series.ns), created);
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
            for sample in &given.samples {
                page.sample(&Labels::new(sample.labels.clone()), None, Value::Float(sample.value), None);
            }
        }
        page.finish()
    }
}
