//! Renders pages as length-delimited protobuf messages, and converts our histogram buckets to Prometheus buckets.
//!
//! A classic bucket is the sum of whole rows of our buckets, so nothing is rounded. The edges of classic buckets are 1 µs, 2 µs,
//! 4 µs and so on. The edges of our rows differ from these edges by at most 2e-6 of their length.
//!
//! A native bucket of schema 3 is 2^(1/8) times as long as the previous bucket. No edge of a native bucket matches an edge of our
//! buckets. Therefore the whole count of each of our buckets goes to the native bucket that contains the middle of our bucket.
//! The error of a quantile is at most the width of our bucket ([`RELATIVE_ERROR`](cgscope_ledger::bucket::RELATIVE_ERROR), 12.5
//! %) plus the width of the native bucket (9.05 %). Below 1 µs, the error is at most one of our buckets, 125 ns, plus
//! 9.05 %.

use std::sync::LazyLock;

use cgscope_ledger::{BUCKETS, high_ns, low_ns};
use cgscope_model::sum;
use prost::Message;

use crate::metrics::{Last, Writer};
use crate::value::{Labels, NS, Value};
use crate::{Family, Kind, waits::WaitSeries};
use proto::{Bucket, BucketSpan, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, Timestamp};

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
        self.family = MetricFamily {
            name: Some(family.sample_name()),
            help: Some(family.help.into()),
            r#type: Some(family.kind.number()),
            metric: Vec::new(),
            unit: family.unit.map(Into::into),
        };
    }

    fn sample(&mut self, labels: &Labels, last: Last<'_>, value: Value, created_unix_ns: Option<u64>) {
        let mut metric = Metric { label: pairs(labels, last), ..Metric::default() };
        let value = Some(value.as_f64());
        if self.family.r#type == Some(Kind::Counter.number()) {
            let created_timestamp = created_unix_ns.map(timestamp);
            metric.counter = Some(Counter { value, created_timestamp });
        } else {
            metric.gauge = Some(Gauge { value });
        }
        self.family.metric.push(metric);
    }

    fn histogram(&mut self, labels: &Labels, last: Last<'_>, series: &WaitSeries, created_unix_ns: u64) {
        let created_timestamp = Some(timestamp(created_unix_ns));
        let histogram = Some(Histogram { created_timestamp, ..buckets(series) });
        self.family.metric.push(Metric { label: pairs(labels, last), histogram, ..Metric::default() });
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }
}

fn pairs(labels: &Labels, last: Last<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): (&str, &str)| LabelPair { name: Some(name.into()), value: Some(value.into()) };
    let own = labels.pairs.iter().map(|(name, value)| (*name, value.as_str()));
    own.chain(last).map(pair).collect()
}

fn timestamp(unix_ns: u64) -> Timestamp {
    Timestamp { seconds: (unix_ns / NS) as i64, nanos: (unix_ns % NS) as i32 }
}

/// Number of classic buckets with a finite upper edge: from 1 µs to 67 s.
pub(crate) const CLASSIC: usize = 27;

/// Schema of the native buckets: 2^3 buckets for each factor of two.
const SCHEMA: i32 = 3;

/// Upper edge of the native zero bucket, seconds (119 ns). The zero bucket contains the waits of our first bucket.
const ZERO_THRESHOLD: f64 = 1.0 / (1 << 23) as f64;

/// Returns the upper edge of a classic bucket, seconds.
pub(crate) fn upper_seconds(row: usize) -> f64 {
    (1u64 << row) as f64 / 1e6
}

/// Index of the native bucket for each of our buckets except the first. Native bucket `i` holds lengths above 2^((i-1)/8) and up
/// to 2^(i/8) seconds.
static INDEX: LazyLock<[i32; BUCKETS]> = LazyLock::new(|| {
    std::array::from_fn(|bucket| {
        let middle = low_ns(bucket).midpoint(high_ns(bucket)) as f64 / 1e9;
        (middle.log2() * f64::from(1 << SCHEMA)).ceil() as i32
    })
});

/// Returns a histogram with both kinds of buckets, the count and the sum.
fn buckets(series: &WaitSeries) -> Histogram {
    let bucket =
        |(row, count)| Bucket { cumulative_count: Some(count), upper_bound: Some(upper_seconds(row)) };
    let mut histogram = Histogram {
        sample_count: Some(series.count()),
        sample_sum: Some(series.ns as f64 / 1e9),
        bucket: series.classic().enumerate().map(bucket).collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(ZERO_THRESHOLD),
        zero_count: Some(series.counts[0]),
        ..Histogram::default()
    };
    add_native(series, &mut histogram);
    histogram
}

/// Adds the native buckets that are not empty. Consecutive buckets form a span. Each count is written as the difference from the
/// count of the previous bucket.
fn add_native(series: &WaitSeries, histogram: &mut Histogram) {
    let counts = series.counts.iter().enumerate().skip(1).filter(|(_, count)| **count != 0);
    let mut native: Vec<(i32, u64)> = counts.map(|(bucket, count)| (INDEX[bucket], *count)).collect();
    sum::merge(&mut native, |bucket| bucket.0, |bucket| &mut bucket.1);
    let (mut end, mut before) = (0, 0u64);
    for (index, count) in native {
        match histogram.positive_span.last_mut() {
            Some(BucketSpan { length: Some(length), .. }) if index == end => *length += 1,
            _ => histogram.positive_span.push(BucketSpan { offset: Some(index - end), length: Some(1) }),
        }
        histogram.positive_delta.push(count.wrapping_sub(before) as i64);
        (end, before) = (index + 1, count);
    }
}

/// Messages of `metrics.proto` (package `io.prometheus.client` of Prometheus' client_model), with only the fields that we write.
pub mod proto {
    cgscope_model::messages! {
        LabelPair {
            "1" name: Option<String>, [string, optional];
            "2" value: Option<String>, [string, optional];
        }
        Gauge { "1" value: Option<f64>, [double, optional]; }
        Counter {
            "1" value: Option<f64>, [double, optional];
            "3" created_timestamp: Option<Timestamp>, [message, optional];
        }
        Timestamp { "1" seconds: i64, [int64]; "2" nanos: i32, [int32]; }
        Histogram {
            "1" sample_count: Option<u64>, [uint64, optional];
            "2" sample_sum: Option<f64>, [double, optional];
            "3" bucket: Vec<Bucket>, [message, repeated];
            "5" schema: Option<i32>, [sint32, optional];
            "6" zero_threshold: Option<f64>, [double, optional];
            "7" zero_count: Option<u64>, [uint64, optional];
            "12" positive_span: Vec<BucketSpan>, [message, repeated];
            "13" positive_delta: Vec<i64>, [sint64, repeated];
            "15" created_timestamp: Option<Timestamp>, [message, optional];
        }
        Bucket {
            "1" cumulative_count: Option<u64>, [uint64, optional];
            "2" upper_bound: Option<f64>, [double, optional];
        }
        BucketSpan {
            "1" offset: Option<i32>, [sint32, optional];
            "2" length: Option<u32>, [uint32, optional];
        }
        Metric {
            "1" label: Vec<LabelPair>, [message, repeated];
            "2" gauge: Option<Gauge>, [message, optional];
            "3" counter: Option<Counter>, [message, optional];
            "7" histogram: Option<Histogram>, [message, optional];
        }
        MetricFamily {
            "1" name: Option<String>, [string, optional];
            "2" help: Option<String>, [string, optional];
            "3" r#type: Option<i32>, [int32, optional];
            "4" metric: Vec<Metric>, [message, repeated];
            "5" unit: Option<String>, [string, optional];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Width of a native bucket, relative to its lower edge.
    const WIDTH: f64 = 0.090_507_732_665_257_66;

    #[test]
    fn each_of_our_buckets_from_a_microsecond_on_has_its_own_native_bucket_around_its_middle() {
        for bucket in 1..BUCKETS {
            let middle = low_ns(bucket).midpoint(high_ns(bucket)) as f64 / 1e9;
            let upper = (f64::from(INDEX[bucket]) / 8.0).exp2();
            assert!(middle <= upper && middle > upper / (1.0 + WIDTH), "{bucket}");
            assert!(bucket == 1 || INDEX[bucket] > INDEX[bucket - 1], "{bucket}");
        }
        assert!((0.125f64.exp2() - 1.0 - WIDTH).abs() < 1e-15);
        assert!(ZERO_THRESHOLD < (f64::from(INDEX[1] - 1) / 8.0).exp2(), "no bucket lies in that of zero");
        assert!(ZERO_THRESHOLD * 1e9 < high_ns(0) as f64);
    }

    #[test]
    fn classic_buckets_have_the_edges_of_our_rows() {
        for row in 0..CLASSIC {
            let ours = high_ns(row * 8 + 7) as f64 / 1e9;
            assert!((ours / upper_seconds(row) - 1.0).abs() < 2.1e-6, "{row}");
        }
    }

    #[test]
    fn spans_and_differences_give_the_counts() {
        let mut counts = [0; BUCKETS];
        (counts[0], counts[40], counts[41], counts[43], counts[239]) = (9, 5, 3, 8, 1);
        let Histogram { positive_span, positive_delta, zero_count, sample_count, .. } =
            buckets(&WaitSeries { counts, ns: 7, has_counts: true });
        let offsets: Vec<_> = positive_span.iter().map(|span| (span.offset, span.length)).collect();
        let at = |bucket: usize| INDEX[bucket];
        let gaps = [at(40), at(43) - at(41) - 1, at(239) - at(43) - 1];
        assert_eq!(offsets, [(Some(gaps[0]), Some(2)), (Some(gaps[1]), Some(1)), (Some(gaps[2]), Some(1))]);
        assert_eq!((positive_delta, zero_count, sample_count), (vec![5, -2, 5, -7], Some(9), Some(26)));
    }
}
