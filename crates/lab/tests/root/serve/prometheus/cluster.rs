//! Runs the documented queries for a cluster of 200 simulated nodes. Prometheus scrapes the pages of these nodes and a page of
//! kube-state-metrics.

mod long {
    use std::{
        collections::BTreeMap,
        fmt::Write as _,
        io::{BufRead, BufReader, Write as _},
        net::{TcpListener, TcpStream},
        sync::{Arc, Mutex},
        thread,
        time::{Duration, Instant},
    };

    use cgscope_made_up::host;
    use cgscope_metrics::{Config, Format, Metrics};
    use cgscope_model::{CgroupName, ContainerReading, Interval, Names};

    use crate::serve::prometheus::server::{Prometheus, unix_s};

    const DOCS: &str = include_str!("../../../../../../docs/how-to/many-hosts.md");
    const HEADING: &str = "## Which pods wait, and why?\n";
    const NODES: usize = 200;
    /// Number of tasks and of leaf cgroups on a node. Most leaf cgroups are containers.
    const HOST: (u32, u32) = (600, 60);
    /// Number of different pages of a node. Each scrape receives the next page. Scrapes after the last page receive the last page
    /// again.
    const ROUNDS: u64 = 8;
    /// Placeholder for the number of the node. It must have as many characters as the number, because a page contains the lengths
    /// of its strings.
    const NODE: &str = "NODE";
    const MOST_SERIES: f64 = 1_500_000.0;
    const MOST_BYTES: f64 = 10e9;
    const FORMAT: Format = Format::Protobuf;

    /// Adds names of pods and containers, two containers for each pod, as if they came from a container runtime.
    fn named(interval: &mut Interval) {
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        let reading = |(id, path): &(u64, Arc<str>)| {
            let name = CgroupName::of(path);
            let many = pods.len();
            let pod = *pods.entry(name.pod_uid?).or_insert(many);
            Some(ContainerReading {
                cgroup_id: *id,
                container: name.container.map(|id| format!("c{}", &id[..1]).into()),
                pod: Some(format!("web-{NODE}-{pod}").into()),
                namespace: Some(format!("shop-{}", pod % 5).into()),
            })
        };
        let containers: Vec<_> = interval.cgroups.iter().filter_map(reading).collect();
        interval.names = Arc::new(Names::new(&interval.cgroups, &containers));
    }

    fn number(node: usize) -> String {
        format!("{node:04}")
    }

    fn pages() -> (Vec<Vec<u8>>, String) {
        let mut text = String::new();
        let mut metrics = Metrics::new(Config::default());
        let page = |round| {
            let mut interval =
                Interval::between(&host(HOST.0, HOST.1, round), &host(HOST.0, HOST.1, round + 1));
            named(&mut interval);
            metrics.add(&interval);
            if round == 0 {
                text = String::from_utf8(metrics.page(Format::Text, &[])).expect("UTF-8");
            }
            metrics.page(FORMAT, &[])
        };
        ((0..ROUNDS).map(page).collect(), text)
    }

    /// Returns a page of kube-state-metrics that describes the pods and containers in `page`.
    fn state(page: &str) -> String {
        let mut out = String::new();
        let label = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!(",{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let lines = page.lines().filter(|line| line.starts_with("cgscope_cgroup_tasks{"));
        for line in lines {
            let (Some(pod), Some(namespace)) = (label(line, "pod"), label(line, "namespace")) else {
                continue;
            };
            for node in 0..NODES {
                let pod = pod.replace(NODE, &number(node));
                let of = format!("namespace=\"{namespace}\",pod=\"{pod}\"");
                let written = match label(line, "container") {
                    Some(container) => writeln!(
                        out,
                        "kube_pod_container_resource_limits{{{of},container=\"{container}\",resource=\"cpu\"}} 2"
                    ),
                    None => writeln!(
                        out,
                        "kube_pod_info{{{of},node=\"n{node}\",created_by_name=\"web-{node}\"}} 1"
                    ),
                };
                written.expect("a string");
            }
        }
        out
    }

    fn serve((pages, first): (Vec<Vec<u8>>, String)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a port").to_string();
        let state = state(&first);
        let (pages, scrapes) = (Arc::new((pages, state)), Arc::new(Mutex::new(vec![0; NODES])));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (pages, scrapes) = (pages.clone(), scrapes.clone());
                thread::spawn(move || answer(&stream, &pages, &scrapes));
            }
        });
        address
    }

    fn of_node(page: &[u8], node: usize) -> Vec<u8> {
        let (mut page, number) = (page.to_vec(), number(node));
        let mut at = 0;
        while let Some(found) = page[at..].windows(NODE.len()).position(|part| part == NODE.as_bytes()) {
            at += found;
            page[at..at + NODE.len()].copy_from_slice(number.as_bytes());
        }
        page
    }

    fn answer(mut stream: &TcpStream, (pages, state): &(Vec<Vec<u8>>, String), scrapes: &Mutex<Vec<usize>>) {
        let mut line = String::new();
        let mut reader = BufReader::new(stream);
        let _ = reader.read_line(&mut line);
        let name = line.split('/').nth(1).unwrap_or_default().to_owned();
        while reader.read_line(&mut line).is_ok_and(|length| length > 2) {}
        let (format, page) = match name.parse::<usize>() {
            Ok(node) => {
                let mut scrapes = scrapes.lock().expect("no scrape panics");
                let round = scrapes[node].min(pages.len() - 1);
                scrapes[node] += 1;
                drop(scrapes);
                (FORMAT, of_node(&pages[round], node))
            }
            Err(_) if name == "state" => (Format::Text, state.clone().into_bytes()),
            Err(_) => (Format::Text, Vec::new()),
        };
        let kind = format.content_type();
        let head =
            format!("HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", page.len());
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&page));
    }

    fn job(address: &str) -> String {
        let mut targets = String::new();
        for node in 0..NODES {
            let labels = format!("labels: {{__metrics_path__: /{node}/metrics, instance: n{node}}}");
            writeln!(targets, "  - {{targets: ['{address}'], {labels}}}").expect("a string");
        }
        format!(
            "  metrics_path: /up/metrics\n\
             - job_name: nodes\n  scrape_interval: 15s\n  scrape_timeout: 15s\n  static_configs:\n{targets}\
             - job_name: state\n  scrape_interval: 15s\n  scrape_timeout: 15s\n  metrics_path: /state/metrics\n  \
               static_configs: [{{targets: ['{address}']}}]\n"
        )
    }

    #[test]
    fn every_documented_query_answers_for_two_hundred_nodes_within_the_stated_memory() {
        let address = serve(pages());
        let native = ["--enable-feature=native-histograms"];
        let prometheus =
            Prometheus::judging("15s", &format!("http://{address}/metrics"), &job(&address), &native);
        let is_scraped = "count(count_over_time(up{job=~\"nodes|state\"}[5m]) >= 3)";
        let end = Instant::now() + Duration::from_secs(180);
        while prometheus
            .vector(is_scraped, unix_s())
            .first()
            .is_none_or(|(_, nodes)| *nodes < NODES as f64 + 1.0)
        {
            assert!(Instant::now() < end, "{}", prometheus.api("targets", &[("state", "active")]));
            thread::sleep(Duration::from_secs(1));
        }
        // Wait until Prometheus has evaluated the rules, and then for another evaluation of all of them. On a slow machine, the first
        // one takes more than 20 s.
        let is_evaluated = "count(pod_cause:cgscope_runqueue_wait_seconds:rate5m{cause=\"throttled\"})";
        while prometheus.vector(is_evaluated, unix_s()).is_empty() {
            assert!(Instant::now() < end, "no figure of a rule");
            thread::sleep(Duration::from_secs(1));
        }
        thread::sleep(Duration::from_secs(20));
        let (_, section) = DOCS.split_once(HEADING).expect("the section");
        let (section, _) = section.split_once("\n## ").expect("the next section");
        let queries: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert_eq!(queries.len(), 8);
        for query in queries {
            let began = Instant::now();
            let answer = prometheus.vector(query, unix_s());
            println!("{} series after {:.1?}: {query}", answer.len(), began.elapsed());
            let label = if query.contains("cpu_contention") { "instance" } else { "namespace" };
            assert!(answer.iter().any(|(labels, _)| labels[label].is_string()), "{query}: {answer:?}");
            if query.starts_with("topk(10") {
                assert_eq!(answer.len(), 10, "{query}: {answer:?}");
            }
        }
        let status = prometheus.api("status/tsdb", &[]);
        let series = status["headStats"]["numSeries"].as_f64().expect("a number");
        let bytes = prometheus.resident_bytes() as f64;
        println!(
            "{NODES} nodes: {series} series, {:.1} GB, {:.1} kB a series",
            bytes / 1e9,
            bytes / series / 1e3
        );
        assert!(series < MOST_SERIES && bytes < MOST_BYTES, "{series} series, {bytes} bytes");
    }
}
