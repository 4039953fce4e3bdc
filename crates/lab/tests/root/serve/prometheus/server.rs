//! A Prometheus server for tests, and calls to its HTTP API.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    background::Background,
    bench::{patience, rss_bytes},
    files::Dir,
};

pub(super) const RULES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/cgscope.rules.yml");

/// A server that scrapes one target every second. Drop ends the server.
pub(super) struct Prometheus {
    process: Background,
    address: String,
    _dir: Dir,
}

impl Prometheus {
    /// `job` contains additional lines for the scrape job. `arguments` are command-line arguments of the server.
    pub(super) fn scraping(metrics_url: &str, job: &str, arguments: &[&str]) -> Self {
        Self::judging("1s", metrics_url, job, arguments)
    }

    /// Starts a server that evaluates the rules at this interval.
    pub(super) fn judging(every: &str, metrics_url: &str, job: &str, arguments: &[&str]) -> Self {
        let dir = Dir::new("prometheus");
        let (scheme, rest) = metrics_url.split_once("://").expect("a URL");
        let target = rest.strip_suffix("/metrics").expect("the page of metrics");
        // The rules refer to the job by this name.
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: {every}}}\n\
             rule_files: ['{RULES}']\n\
             scrape_configs:\n\
             - job_name: cgscope\n  \
               scheme: {scheme}\n  \
               static_configs: [{{targets: ['{target}']}}]\n\
             {job}"
        );
        std::fs::write(dir.file("prometheus.yml"), config).expect("a file of ours");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", dir.file("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", dir.file("data")))
            .args(["--web.listen-address=127.0.0.1:0", "--log.format=json"])
            .args(arguments);
        assert_there();
        let mut process = Background::start(&mut command);
        let line = process.wait_for("\"Listening on\"");
        let line: Value = serde_json::from_str(&line).expect("one object per line");
        let address = line["address"].as_str().expect("its address").to_owned();
        process.wait_for("Server is ready to receive web requests");
        let prometheus = Self { process, address, _dir: dir };
        prometheus.wait_for_a_scrape();
        prometheus
    }

    /// Prometheus begins to scrape only after some seconds, because it looks for targets every five seconds.
    fn wait_for_a_scrape(&self) {
        let end = Instant::now() + patience(20_000);
        while self.vector("up{job=\"cgscope\"} == 1", unix_s()).is_empty() {
            let targets = || self.api("targets", &[]);
            assert!(Instant::now() < end, "Prometheus scrapes nothing: {}", targets());
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        rss_bytes(self.process.pid())
    }

    /// Returns the API's answer to `GET /api/v1/PATH?PARAMETERS`.
    pub(super) fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let body = get(&self.address, &format!("/api/v1/{path}?{}", parameters.join("&")), "*/*");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"].clone()
    }

    /// Evaluates an expression at a moment (seconds since 1970). Returns the labels and the value of each series.
    pub(super) fn vector(&self, expression: &str, at_unix_s: f64) -> Vec<(Value, f64)> {
        let data = self.api("query", &[("query", expression), ("time", &format!("{at_unix_s:.3}"))]);
        let series = data["result"].as_array().expect("a vector").iter();
        let number = |series: &Value| series["value"][1].as_str()?.parse().ok();
        series.map(|series| (series["metric"].clone(), number(series).expect("a number"))).collect()
    }

    pub(super) fn figure(&self, expression: &str, at_unix_s: f64) -> f64 {
        let series = self.vector(expression, at_unix_s);
        let [(_, figure)] = series[..] else { panic!("not one figure: {expression}: {series:?}") };
        figure
    }
}

fn assert_there() {
    if let Err(error) = Command::new("prometheus").arg("--version").output() {
        panic!(
            "cannot run prometheus: {error}; install Debian's package `prometheus`, as \
             `cargo xtask test` does"
        );
    }
}

pub(super) fn get(address: &str, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_read_timeout(Some(patience(20_000))).expect("a time");
    // Use HTTP 1.0, in which a body is never in chunks.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the receiver reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert_eq!(head.split(' ').nth(1), Some("200"), "{path}: {answer}");
    body.to_owned()
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

pub(super) fn range(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

/// Returns the current time in seconds since 1970, as in the timestamps of scrapes.
pub(super) fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64()
}
