//! `cgscope serve`: the daemon. It loads BPF, listens, gives up its privileges, and serves.

mod exporter;
mod listen;

use std::path::{Path, PathBuf};
use std::{fs, future::pending, io, pin::pin, sync::Arc, time::Duration};

use cgscope_collect::{Collector, Options};
use cgscope_model::{Mode, follower::Follower};
use cgscope_runtimes::Runtimes;
use cgscope_serve::collection::{Collect, Collection};
use cgscope_serve::config::{Config, FILE, SocketConfig};
use cgscope_serve::{counters::Counters, http::Http, pace::Pace, shown::Reading, socket::Server};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use sd_notify::NotifyState;
use tokio::{net::UnixListener, sync::watch, task::LocalSet};

use crate::{
    cli::Serve,
    containers,
    exit::{Error, Exit, Result},
    mode, record,
    serve::{
        exporter::{Exporter, Parts, STUCK},
        listen::Listening,
    },
    signals::Signals,
    users::{self, User},
};

pub async fn run(options: &Serve) -> Result {
    let (config, source) = read(options.config.as_deref()).map_err(Error::could_not_run)?;
    if options.check {
        config.socket.outdated().iter().for_each(|warning| say!("cgscope: {warning}"));
        say!("cgscope: {source} is valid");
        return Ok(Exit::Done);
    }
    LocalSet::new().run_until(serve(config, options)).await
}

/// Reads the named configuration file, else the host's file, else uses the defaults. Also describes the source.
fn read(named: Option<&Path>) -> Result<(Config, String), String> {
    let file = named.unwrap_or(Path::new(FILE));
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {
            return Ok((Config::default(), format!("the default configuration (there is no {FILE})")));
        }
        Err(error) => return Err(format!("the configuration {} cannot be read ({error})", file.display())),
    };
    let config =
        Config::parse(&text).map_err(|wrong| format!("the configuration {}: {wrong}", file.display()))?;
    Ok((config, file.display().to_string()))
}

/// Returns the limits of viewers with the ids of their groups, and warnings about groups that do not exist.
fn limits(config: &SocketConfig) -> (SocketConfig, Vec<String>) {
    let (mut limits, mut warnings) = (config.clone(), config.outdated());
    for group in config.groups() {
        match listen::group_id(&group) {
            Ok(gid) => limits.viewer_gids.push(gid),
            Err(_) if group == SocketConfig::default_viewers() => {}
            Err(sentence) => warnings.push(format!("{sentence}; until it exists, it has no members")),
        }
    }
    (limits, warnings)
}

/// Sets the daemon up, gives up its privileges before anybody can connect, and serves until a signal.
async fn serve(config: Config, options: &Serve) -> Result {
    let mut signals = Signals::listen()?;
    let user = config.user.as_deref().filter(|_| rustix::process::geteuid().is_root());
    let user = user.map(users::user).transpose().map_err(Error::could_not_run)?;
    // Steps that fail if a file is missing precede steps that take time.
    let socket = Listening::open(&config.socket).map_err(Error::could_not_run)?;
    let http = config.http.listen.map(|listen| Http::bind(listen, &config.http).map(Arc::new));
    let http = http.transpose().map_err(Error::could_not_run)?;
    http.iter().filter_map(|http| http.warning()).for_each(|warning| say!("cgscope: {warning}"));
    if socket.is_none() && http.is_none() {
        return Err(Error::could_not_run(
            "there is nothing to serve: the configuration has neither `path` in [socket] nor `listen` in [http]",
        ));
    }
    let runtimes = containers::runtimes(&config.containers.runtime)?;
    let collector = Own::start(runtimes, config.collect.chains)?;
    collector.0.refused().iter().for_each(|refused| say!("cgscope: {refused}"));
    let viewers = socket.as_ref().and_then(Listening::viewers);
    listen::warnings(&config, viewers).iter().for_each(|warning| say!("cgscope: {warning}"));
    give_up(user.as_ref())?;

    let failed = |error: io::Error| Error::could_not_run(format!("the daemon cannot start ({error})"));
    let interval_ns = config.collect.interval;
    let header = record::header_of_host(Duration::from_nanos(interval_ns));
    let collection = Collection::start(collector).map_err(failed)?;
    let (pace, latest) = (collection.pace.clone(), collection.latest.clone());
    pace.ask(interval_ns);
    let counters = Arc::new(Counters::default());
    let metrics = watch::Sender::new(config.metrics.clone());
    let exporter = http.as_ref().map(|http| {
        let (http, counters) = (http.clone(), counters.clone());
        Exporter::start(Parts { pace: pace.clone(), latest, http, counters, config: metrics.subscribe() })
    });
    let exporter = exporter.transpose().map_err(failed)?;
    if let Some(http) = &http {
        let scheme = if config.http.tls_key.is_some() { "https" } else { "http" };
        say!("cgscope: serving metrics at {scheme}://{}/metrics", http.local_addr);
    }
    let (limits, warnings) = limits(&config.socket);
    warnings.iter().for_each(|warning| say!("cgscope: {warning}"));
    let listener = socket.as_ref().map(|socket| socket.listener.try_clone().and_then(UnixListener::from_std));
    let listener = listener.transpose().map_err(failed)?;
    let server =
        Server::new(listener, collection, &header, limits, counters).map_err(Error::could_not_run)?;
    let limits = Box::new(server.limits());
    let named = options.config.clone();
    let reload =
        Reload { named, started: config, interval_ns, pace, http, metrics, exporter, limits, viewers };
    if let Some(socket) = &socket {
        say!("cgscope: serving viewers at {}", socket.place);
    }
    report(&[NotifyState::Ready]);
    let mut stopped = Ok(());
    let stop = async {
        stopped = wait_for_end(&mut signals, reload).await;
        report(&[NotifyState::Stopping]);
        if options.verbose {
            say!("cgscope: ending");
        }
    };
    let ended = server.serve(stop).await;
    drop(socket);
    ended.and(stopped).map_err(Error::incomplete).map(|()| Exit::Done)
}

struct Reload {
    named: Option<PathBuf>,
    /// The configuration at the start, for keys that a reload does not change.
    started: Config,
    interval_ns: u64,
    pace: Arc<Pace>,
    http: Option<Arc<Http>>,
    metrics: watch::Sender<cgscope_metrics::Config>,
    exporter: Option<Exporter>,
    limits: Box<dyn Fn(SocketConfig)>,
    viewers: Option<u32>,
}

impl Reload {
    /// Reads the configuration again. An error changes nothing.
    fn reload(&mut self) {
        let (config, source) = match read(self.named.as_deref()) {
            Ok(read) => read,
            Err(wrong) => {
                say!("cgscope: {wrong}; the previous configuration stays in use");
                return;
            }
        };
        let (limits, mut warnings) = limits(&config.socket);
        (self.limits)(limits);
        self.pace.ask(config.collect.interval);
        self.pace.ask_no_longer(std::mem::replace(&mut self.interval_ns, config.collect.interval));
        self.metrics.send_replace(config.metrics.clone());
        if let Some(http) = &self.http {
            let errors = http.reload(&config.http);
            warnings.extend(errors.iter().map(ToString::to_string));
            warnings.extend(http.warning());
        }
        warnings.extend(listen::warnings(&config, self.viewers));
        warnings.iter().for_each(|warning| say!("cgscope: {warning}"));
        say!("cgscope: {source} was read again{}", what_stays(&self.started, &config));
    }
}

/// Notifies the watchdog of systemd while no sample is stuck.
async fn keep_alive(pace: &Pace) {
    let mut usec = 0;
    if !sd_notify::watchdog_enabled(false, &mut usec) {
        return pending().await;
    }
    // Twice in each timeout, as systemd recommends.
    let mut ticks = tokio::time::interval(Duration::from_micros(usec / 2).max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        if pace.busy_for().is_none_or(|busy| busy < STUCK) {
            report(&[NotifyState::Watchdog]);
        }
    }
}

/// Waits until a signal ends the daemon, or metrics cannot be served: then returns the reason. SIGHUP reloads the configuration.
async fn wait_for_end(signals: &mut Signals, mut reload: Reload) -> Result<(), String> {
    let pace = reload.pace.clone();
    let mut alive = pin!(keep_alive(&pace));
    loop {
        tokio::select! {
            signal = signals.any() => {
                if signal != libc::SIGHUP {
                    return Ok(());
                }
                report(&[NotifyState::Reloading, NotifyState::monotonic_usec_now().unwrap_or(NotifyState::Ready)]);
                reload.reload();
                report(&[NotifyState::Ready]);
            }
            // Ends the daemon, so that systemd restarts it. A daemon that still serves viewers would not be restarted.
            Some(sentence) = async { Some(reload.exporter.as_mut()?.failed().await) } => return Err(sentence),
            () = &mut alive => {}
        }
    }
}

/// Notifies systemd, if systemd started the daemon.
fn report(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}

/// Maximum number of hook runs to measure. Measuring them requires a privilege.
const RUNS: u64 = 2_000;
/// Maximum duration of the measurement, for a host with few context switches.
const LONGEST: Duration = Duration::from_millis(500);

struct Own(Collector);

impl Own {
    /// Loads and attaches the BPF programs, and measures the cost of the hook. `runtimes` provide the names of containers.
    fn start(runtimes: Runtimes, chains: bool) -> Result<Self> {
        let options = Options { shared: true, demand: true, chains, ..Options::default() };
        // Only the exact mode is used, because coarse readings need no daemon.
        let mut collector =
            Collector::start(&options, Mode::Bpf).map_err(|failure| mode::could_not_start(&failure))?;
        collector.measure_hook(RUNS, LONGEST);
        collector.name_containers =
            Some(containers::lookup(runtimes, |sentence| say!("cgscope: {sentence}")));
        Ok(Self(collector))
    }
}

impl Collect for Own {
    fn collect(&mut self) -> Result<Reading, String> {
        let sample = self.0.sample().map_err(|failure| failure.to_string())?;
        Ok(Reading { sample, followed: self.0.followed() })
    }

    fn read_ahead(&mut self) {
        self.0.read_ahead();
    }

    fn follow(&mut self, follower: Follower, pids: &[u32]) {
        if pids.is_empty() { self.0.changes.stop(follower) } else { self.0.changes.follow(follower, pids) }
    }
}

/// Returns the end of a sentence that lists the changed keys that only a restart applies. Empty if there are none.
fn what_stays(started: &Config, now: &Config) -> String {
    let keys = [
        ("`user`", started.user != now.user),
        ("`chains` in [collect]", started.collect.chains != now.collect.chains),
        ("`path` in [socket]", started.socket.path != now.socket.path),
        ("`owner` in [socket]", started.socket.owner != now.socket.owner),
        ("`viewers` in [socket]", started.socket.group() != now.socket.group()),
        ("`listen` in [http]", started.http.listen != now.http.listen),
        ("`runtime` in [containers]", started.containers.runtime != now.containers.runtime),
    ];
    let changed: Vec<_> =
        keys.into_iter().filter_map(|(key, is_changed)| is_changed.then_some(key)).collect();
    if changed.is_empty() {
        return String::new();
    }
    format!("; changes to {} take effect when the daemon is restarted", changed.join(", "))
}

/// Gives up all privileges that the daemon no longer needs after loading BPF, before anybody can connect. Becomes another user if
/// one is given, and drops every capability permanently. Call this while there is only one thread: others keep privileges.
///
/// The loaded maps and programs stay open, and reading them requires no privilege. Since Linux 5.19 (commit c8644cd0efe7), bpf(2)
/// requires a privilege only to create maps and to load programs.
fn give_up(user: Option<&User>) -> Result<()> {
    let failed = |what, error: io::Error| {
        let end = "so the daemon ends, because it must not serve with privileges";
        Error::could_not_run(format!("{what} ({error}), {end}"))
    };
    set_no_new_privs(true).map_err(|error| failed("new privileges cannot be prevented", error.into()))?;
    for capability in CapabilitySet::all().iter() {
        // Ignore errors: the process cannot remove a capability that it lacks, and an unknown capability does not exist.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if let Some(user) = user {
        user.enter().map_err(|error| failed("the daemon could not become its user", error))?;
    }
    // Ignore an error: it means that the kernel has no ambient capabilities.
    let _ = clear_ambient_capability_set();
    let empty = CapabilitySet::empty();
    let none = CapabilitySets { effective: empty, permitted: empty, inheritable: empty };
    set_capabilities(None, none).map_err(|error| failed("capabilities cannot be given up", error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_daemon_ends_with_the_reason_if_metrics_cannot_be_served() {
        let reload = Reload {
            named: None,
            started: Config::default(),
            interval_ns: 0,
            pace: Arc::default(),
            http: None,
            metrics: watch::Sender::new(cgscope_metrics::Config::default()),
            exporter: Some(Exporter::run(|| async { "no socket".into() }).expect("a thread")),
            limits: Box::new(drop),
            viewers: None,
        };
        let mut signals = Signals::listen().expect("signals");
        assert_eq!(wait_for_end(&mut signals, reload).await, Err("no socket".into()));
    }

    fn parsed(text: &str) -> Config {
        Config::parse(text).expect(text)
    }

    #[test]
    fn only_changed_keys_that_need_a_restart_are_named() {
        let started = parsed("");
        let at_once = "[collect]\ninterval = \"1s\"\n[socket]\nclients = 3\nadmin_groups = [\"cgscope-admin\"]\n\
                       [http]\nusers = \"/u\"\ntls_certificate = \"/c\"\ntls_key = \"/k\"\n[metrics]\ndepth = 3\n";
        assert_eq!(what_stays(&started, &parsed(at_once)), "");
        for (text, key) in [
            ("user = \"x\"", "`user`"),
            ("[socket]\npath = \"/x\"", "`path` in [socket]"),
            ("[socket]\nowner = 5", "`owner` in [socket]"),
            ("[socket]\nviewers = \"x\"", "`viewers` in [socket]"),
            ("[http]\nlisten = \"\"", "`listen` in [http]"),
            ("[containers]\nruntime = \"\"", "`runtime` in [containers]"),
        ] {
            let words = what_stays(&started, &parsed(text));
            assert!(words.contains(&format!(" to {key} take effect")), "{words:?}");
            assert_eq!(what_stays(&parsed(text), &parsed(text)), "");
        }
        let two = what_stays(&started, &parsed("[http]\nlisten = \"\"\n[containers]\nruntime = \"\""));
        assert!(two.contains("`listen` in [http], `runtime` in [containers]"), "{two}");
    }
}
