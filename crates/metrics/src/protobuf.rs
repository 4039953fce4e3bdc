//! Pages as messages, each after its length.

use prost::Message;

use crate::{
    Family, Kind,
    labels::Labels,
    native,
    page::{Last, Writer},
    proto::{Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType, Timestamp},
    value::Value,
    waits::Series,
};

/// A page in the making.
#[derive(Default)]
pub(crate) struct Protobuf {
    out: Vec<u8>,
    family: MetricFamily,
}

impl Protobuf {
    fn flush(&mut self) {
        if !self.family.metric.is_empty() {
            self.out.extend(self.family.encode_length_delimited_to_vec());
        }
    }
}

impl Writer for Protobuf {
    fn begin(&mut self, family: &Family) {
        self.flush();
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        self.family = MetricFamily {
            name: Some(family.sample_name()),
            help: Some(family.help.into()),
            r#type: Some(kind.into()),
            metric: Vec::new(),
            unit: family.unit.map(Into::into),
        };
    }

    fn sample(&mut self, labels: &Labels, last: Last<'_>, value: Value, created_unix_ns: Option<u64>) {
        let mut metric = Metric { label: pairs(labels, last), ..Metric::default() };
        let value = Some(value.as_f64());
        if self.family.r#type == Some(MetricType::Counter.into()) {
            let created_timestamp = created_unix_ns.map(timestamp);
            metric.counter = Some(Counter { value, created_timestamp });
        } else {
            metric.gauge = Some(Gauge { value });
        }
        self.family.metric.push(metric);
    }

    fn histogram(&mut self, labels: &Labels, last: Last<'_>, series: &Series, created_unix_ns: u64) {
        let created_timestamp = Some(timestamp(created_unix_ns));
        let histogram = Some(Histogram { created_timestamp, ..native::histogram(series) });
        self.family.metric.push(Metric { label: pairs(labels, last), histogram, ..Metric::default() });
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }
}

fn pairs(labels: &Labels, last: Last<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): (&str, &str)| LabelPair { name: Some(name.into()), value: Some(value.into()) };
    labels.pairs().chain(last).map(pair).collect()
}

fn timestamp(unix_ns: u64) -> Timestamp {
    const NS: u64 = 1_000_000_000;
    Timestamp { seconds: (unix_ns / NS) as i64, nanos: (unix_ns % NS) as i32 }
}
