//! Computes all results of a recording: findings, objects, exports, metrics, a comparison, a report, other quotas, the screen.

use std::{
    io::{Cursor, sink},
    sync::Arc,
    time::Duration,
};

use cgscope_export::{About, Format};
use cgscope_metrics::{Config, Metrics};
use cgscope_model::{
    Interval, Losses, Sample, Selection, Timeline,
    diff::{self, Side},
    findings::{Host, findings},
    json::IntervalObject,
    selection::SelectionFilter,
};
use cgscope_record::Reader;
use cgscope_view::{
    app::App,
    report::{self, Whole},
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};
use cgscope_whatif::{
    answer::{Question, answers, targets},
    history::History,
    json, words,
};

/// Maximum number of intervals of a file that we use.
const MOST: usize = 32;

const EXPORTS: [Format; 6] =
    [Format::Hdr, Format::Perfetto, Format::Csv, Format::Parquet, Format::Pprof, Format::Folded];
const PAGES: [cgscope_metrics::Format; 3] =
    [cgscope_metrics::Format::Text, cgscope_metrics::Format::OpenMetrics, cgscope_metrics::Format::Protobuf];

fn samples(file: &[u8]) -> Vec<Sample> {
    let Ok(mut reader) = Reader::new(Cursor::new(file)) else { return Vec::new() };
    reader.by_ref().take(MOST).map(|sample| sample.expect("memory does not fail")).collect()
}

/// Computes a report of these intervals, and simulates other quotas.
fn report(samples: &[Sample], intervals: &[Interval], host: Host) {
    let (mut whole, mut timeline, mut history) =
        (Interval::default(), Timeline::new(MOST), History::default());
    samples.iter().for_each(|sample| history.add(sample));
    for interval in intervals {
        timeline.add(interval);
        whole.append(interval.clone());
    }
    let mut whole = Whole::new(whole, timeline, &Losses::default(), &host);
    whole.enough = words::lines(&whole.interval, &history);
    let word = String::new;
    let about = report::About {
        file: word(),
        what: word(),
        host_words: word(),
        extent: word(),
        ending: word(),
        host,
    };
    report::report(&about, &whole);
    report::html::page(&about, &whole);
    let all = SelectionFilter::new(&Selection::default()).expect("a valid selection");
    let Ok((targets, left)) = targets(&whole.interval, &all) else { return };
    let question = Question { quotas: vec![0.5, 3.0], burst_ns: Some(1 << 24), ..Question::PLAIN };
    let answers = answers(&history, &targets, &question);
    words::text(&answers, &whole.interval, &question, left);
    answers.iter().for_each(|answer| drop(json::object(answer, &whole.interval, &question)));
}

/// Computes everything that cgscope shows of a recording.
pub fn give(file: &[u8]) {
    let samples = samples(file);
    let intervals: Vec<_> = samples.windows(2).map(|two| Interval::between(&two[0], &two[1])).collect();
    if intervals.is_empty() {
        return;
    }
    let host = Host { cpus: Some(2), whole: true, kernel: Some((6, 18, 44)) };
    let mut whole = Interval::default();
    let (mut metrics, mut sides) = (Metrics::new(Config::default()), [Side::default(), Side::default()]);
    let mut app =
        App::new(Default::default(), Settings::default(), Theme::new(Colours::None), Duration::from_secs(1));
    app.on_resize(120, 40);
    for (at, interval) in intervals.iter().enumerate() {
        let _ = serde_json::to_string(&IntervalObject::new(interval, &host)).expect("an object");
        metrics.add(interval);
        sides[at % 2].add(interval, 1);
        whole.append(interval.clone());
        app.on_interval(Arc::new(interval.clone()));
        let _ = snapshot::text(&app);
    }
    findings(&whole, &host);
    report(&samples, &intervals, host);
    for format in EXPORTS {
        let Ok(mut out) = format.sink(Box::new(sink()), About::default()) else { continue };
        if intervals.iter().all(|interval| out.interval(interval).is_ok()) {
            let _ = out.finish();
        }
    }
    for format in PAGES {
        let page = metrics.page(format, &[]);
        assert!(page.len() < 64 << 20, "a page of {} bytes", page.len());
    }
    let [before, after] = sides;
    let diff = diff::compare(before, after);
    for object in diff::objects(&diff) {
        let _ = serde_json::to_string(&object).expect("an object");
    }
}
