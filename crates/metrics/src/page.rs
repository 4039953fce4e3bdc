//! A page: all families, in the same order in every format.

use crate::{
    Family, Format, Kind, Metrics, choice, family,
    protobuf::Protobuf,
    text::Text,
    value::{Labels, Value},
    waits::WaitSeries,
};

/// A family whose figures the caller provides.
#[derive(Clone, Debug)]
pub struct Given {
    /// A counter or a gauge that no Interval has. A histogram is omitted.
    pub family: Family,
    /// The samples of the family. A family without samples is omitted.
    pub samples: Vec<GivenSample>,
}

/// A figure that the caller provides.
#[derive(Clone, Debug)]
pub struct GivenSample {
    /// Label names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value, in the unit of the family.
    pub value: f64,
}

impl Given {
    /// Creates a family with one figure and no labels.
    pub fn one(family: Family, value: f64) -> Self {
        Self { family, samples: vec![GivenSample { labels: Vec::new(), value }] }
    }
}

/// The last label of a series, after the labels that it shares with others.
pub(crate) type Last<'a> = Option<(&'static str, &'a str)>;

/// A family with one series for each `T`. A series is omitted if its value is `None`, which means unknown.
pub(crate) type Figure<T> = (&'static Family, fn(&T) -> Option<Value>);

/// Writes a page. A family without samples is omitted.
pub(crate) trait Writer {
    /// Starts a family, whose samples follow.
    fn begin(&mut self, family: &Family);
    /// Writes a figure. A counter also has its creation time, ns since 1970.
    fn sample(&mut self, labels: &Labels, last: Last<'_>, value: Value, created_unix_ns: Option<u64>);
    /// Writes the waits of one cgroup for one cause.
    fn histogram(&mut self, labels: &Labels, last: Last<'_>, series: &WaitSeries, created_unix_ns: u64);
    fn finish(self) -> Vec<u8>;
}

impl Metrics {
    /// Renders a page with all exported figures and with `more`. The configuration limits its length, even on a host with many
    /// cgroups.
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
