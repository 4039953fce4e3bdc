//! Scrapes of a host with very many cgroups and tasks.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use cgscope_metrics::Format;
use flate2::read::GzDecoder;

use super::Daemon;
use crate::{
    bench::{patience, scaled},
    spread::Spread,
};

const CGROUPS: u64 = 10_000;
const TASKS_EACH: usize = 2;
/// Number of scrapes of each kind of page. The test uses the median of their times.
const SCRAPES: usize = 5;
/// Time between two scrapes. The time is so long that the daemon takes a new sample for each scrape.
const APART: Duration = Duration::from_millis(700);

/// A scraped page, and the time from the first byte of the request to the last byte of the answer.
pub(super) struct Scrape {
    took: Duration,
    /// Length of the body that the daemon sent, which can be compressed.
    bytes: usize,
    page: Vec<u8>,
}

impl Scrape {
    pub(super) fn take(address: &str, format: Format, is_zipped: bool) -> Self {
        let encoding = if is_zipped { "gzip" } else { "identity" };
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {}\r\nAccept-Encoding: {encoding}\r\nConnection: close\r\n\r\n",
            format.content_type()
        );
        let begun = Instant::now();
        let mut socket = TcpStream::connect(address).expect("the daemon");
        socket.write_all(request.as_bytes()).expect("the receiver reads");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        let took = begun.elapsed();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert!(head.contains(&format.content_type().to_lowercase()), "{head}");
        assert_eq!(head.contains("\r\ncontent-encoding: gzip"), is_zipped, "{head}");
        let body = &answer[end + 4..];
        let mut page = Vec::new();
        if is_zipped {
            GzDecoder::new(body).read_to_end(&mut page).expect("a complete page");
        } else {
            page.extend(body);
        }
        Self { took, bytes: body.len(), page }
    }

    pub(super) fn number(&self, line: &str) -> f64 {
        let text = std::str::from_utf8(&self.page).expect("UTF-8");
        let value = text.lines().find_map(|have| have.strip_prefix(line)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {line}")).parse().expect("a number")
    }

    fn collection_until(&self, later: &Self) -> Duration {
        let seconds = |scrape: &Self| scrape.number("cgscope_collection_seconds_total");
        let count = |scrape: &Self| scrape.number("cgscope_collections_total");
        Duration::from_secs_f64((seconds(later) - seconds(self)) / (count(later) - count(self)))
    }

    fn cgroups(&self, state: &str) -> u64 {
        self.number(&format!("cgscope_cgroups{{state=\"{state}\"}}")) as u64
    }
}

fn sections(cgroups: usize) -> String {
    format!("[metrics]\ncgroups = {cgroups}")
}

/// Returns the median time of a scrape for each kind of page.
fn medians<const N: usize>(address: &str, kinds: [(Format, bool); N]) -> [Duration; N] {
    kinds.map(|(format, is_zipped)| {
        let scrapes = (0..SCRAPES).map(|_| {
            thread::sleep(APART);
            Scrape::take(address, format, is_zipped)
        });
        median(&format!("{format:?}"), scrapes.collect())
    })
}

fn median(what: &str, mut scrapes: Vec<Scrape>) -> Duration {
    scrapes.sort_by_key(|scrape| scrape.took);
    let [best, median, worst] = [0, scrapes.len() / 2, scrapes.len() - 1].map(|at| scrapes[at].took);
    let (bytes, sent) = (scrapes[0].page.len(), scrapes[0].bytes);
    eprintln!("{what}: best {best:.1?}, median {median:.1?}, worst {worst:.1?}; {bytes} bytes, {sent} sent");
    median
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: asserts times"]
    fn a_page_of_ten_thousand_cgroups_has_a_bounded_size_and_arrives_quickly() {
        let (count, limit) = (scaled(CGROUPS) as usize, 200);
        let half = Spread::new("half", count / 2, TASKS_EACH, 600);
        let mut daemon = Daemon::exporting(&sections(limit));
        let address = daemon.metrics().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
        let scrape = || {
            // Make two scrapes before the measured scrape, because the daemon exports a new cgroup only in the next interval.
            for _ in 0..2 {
                thread::sleep(Duration::from_millis(1_500));
                Scrape::take(&address, Format::Text, false);
            }
            thread::sleep(APART);
            Scrape::take(&address, Format::Text, false)
        };
        let of_half = scrape();
        let other = Spread::new("other", count - count / 2, TASKS_EACH, 600);
        let whole = scrape();

        // The number of tasks can be larger, because the host also has other tasks.
        assert!(whole.number("cgscope_cgroup_tasks{cgroup=\"/\"}") >= (count * TASKS_EACH) as f64);
        for (scrape, made) in [(&of_half, count / 2), (&whole, count)] {
            assert_eq!(scrape.cgroups("exported"), limit as u64);
            let cut = scrape.cgroups("over_limit") as usize;
            assert!((made - limit..made + 500).contains(&cut), "{cut} of {made}");
        }
        let lines = |scrape: &Scrape| scrape.page.iter().filter(|byte| **byte == b'\n').count();
        let most = |limit: usize| 250 * limit + 1_000;
        for scrape in [&of_half, &whole] {
            assert!(lines(scrape) < most(limit), "{} lines", lines(scrape));
        }

        let kinds = [(Format::Text, false), (Format::OpenMetrics, true), (Format::Protobuf, false)];
        let medians = medians(&address, kinds);
        eprintln!("a collection: {:.1?}", whole.collection_until(&scrape()));
        daemon.configure_exporting(&sections(50));
        daemon.process().signal(libc::SIGHUP);
        daemon.process().wait_for("was read again");
        let of_fewer = scrape();
        assert_eq!(of_fewer.cgroups("exported"), 50);
        assert!(of_fewer.cgroups("over_limit") as usize >= count - 50);
        assert!(lines(&of_fewer) < most(50), "{} lines", lines(&of_fewer));
        eprintln!(
            "lines of pages: {} of {} cgroups, {} of {count}, {} with 50 exported",
            lines(&of_half),
            count / 2,
            lines(&whole),
            lines(&of_fewer)
        );
        drop((half, other));
        // A scrape includes taking a new sample, which uses about half of two CPUs and competes with the load for them.
        for (kind, took) in kinds.iter().zip(medians) {
            assert!(took < patience(1_000), "{kind:?}: {took:?}");
        }
    }
}
