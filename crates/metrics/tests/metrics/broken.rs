//! Tests that even meaningless samples do not crash the daemon.

use cgscope_metrics::{Config, Format, Metrics};
use cgscope_model::Interval;
use proptest::{collection::vec, prelude::*};

use crate::{any, parsed};

proptest! {
    #[test]
    fn any_reading_gives_a_page(samples in vec(any::sample(), 2..5), cgroups in 0..6usize, culprits in 0..3usize) {
        let mut metrics = Metrics::new(Config { cgroups, culprits, ..Config::default() });
        for pair in samples.windows(2) {
            metrics.add(&Interval::between(&pair[0], &pair[1]));
            metrics.add(&Interval::between(&any::nothing_before(&pair[1]), &pair[1]));
            parsed::text(&metrics.page(Format::OpenMetrics, &[]), true);
            parsed::text(&metrics.page(Format::Text, &[]), false);
            parsed::messages(&metrics.page(Format::Protobuf, &[]));
        }
    }
}
