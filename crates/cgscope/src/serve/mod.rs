//! `cgscope serve`: the daemon. It loads BPF, listens, gives up its privileges, and serves.

mod collector;
mod listen;
mod privileges;

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use cgscope_collect::facts::CgroupMounts;
use cgscope_record::Header;
use cgscope_serve::{
    collection::Collection,
    config::{Config, FILE, Socket},
    socket::{Counters, Limits, Server},
};
use sd_notify::NotifyState;
use tokio::{
    net::UnixListener,
    signal::unix::{Signal, SignalKind, signal},
    task::LocalSet,
};

use self::{collector::Own, listen::Listening};
use crate::{
    cli::Serve,
    exit::{Error, Exit, Result},
    record, users,
};

/// Runs the command.
pub async fn run(options: &Serve) -> Result {
    let read = read(options.config.as_deref()).map_err(Error::could_not_run)?;
    if options.check {
        say!("cgscope: {} is right", read.words());
        return Ok(Exit::Done);
    }
    let daemon = Daemon::set_up(read, options)?;
    LocalSet::new().run_until(daemon.serve()).await
}

/// A configuration, and where it is from.
struct Read {
    config: Config,
    file: Option<std::path::PathBuf>,
}

impl Read {
    fn words(&self) -> String {
        match &self.file {
            Some(file) => file.display().to_string(),
            None => format!("the configuration of a host without {FILE}"),
        }
    }
}

/// The configuration that was named, else that of the host, else the defaults.
fn read(named: Option<&Path>) -> std::result::Result<Read, String> {
    let file = named.unwrap_or(Path::new(FILE));
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {
            return Ok(Read { config: Config::default(), file: None });
        }
        Err(error) => return Err(format!("the configuration {} cannot be read ({error})", file.display())),
    };
    let config =
        Config::parse(&text).map_err(|wrong| format!("the configuration {}: {wrong}", file.display()))?;
    Ok(Read { config, file: Some(file.into()) })
}

/// What clients may do, and what of it cannot be had, in sentences.
fn limits(config: &Socket) -> (Limits, Vec<String>) {
    let (mut admin_gids, mut warnings) = (Vec::new(), Vec::new());
    for group in &config.admin_groups {
        match listen::group_id(group) {
            Ok(gid) => admin_gids.push(gid),
            Err(_) if *config.admin_groups == Socket::default().admin_groups => {}
            Err(sentence) => warnings.push(format!("{sentence}; without it nobody is in it")),
        }
    }
    let limits = Limits {
        admin_gids,
        shortest_interval_ns: config.shortest_interval,
        clients: config.clients,
        clients_per_user: config.clients_per_user,
        ..Limits::default()
    };
    (limits, warnings)
}

/// The daemon with everything loaded and listened on, and no privileges any more.
struct Daemon {
    config: Config,
    named: Option<std::path::PathBuf>,
    is_verbose: bool,
    collector: Own,
    socket: Option<Listening>,
    header: Header,
    signals: Signals,
}

struct Signals {
    end: [Signal; 2],
    reload: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            end: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            reload: signal(SignalKind::hangup())?,
        })
    }
}

impl Daemon {
    fn set_up(read: Read, options: &Serve) -> Result<Self> {
        let Read { config, file } = read;
        let signals = Signals::listen()
            .map_err(|error| Error::could_not_run(format!("signals cannot be received ({error})")))?;
        let user = match &config.user {
            Some(name) if rustix::process::geteuid().is_root() => {
                Some(users::user(name).map_err(Error::could_not_run)?)
            }
            _ => None,
        };
        // What can fail for want of a file comes before what takes time.
        let socket = Listening::open(&with_known_group(&config.socket, file.is_none()))
            .map_err(Error::could_not_run)?;
        let collector = Own::start()?;
        for refused in collector.refused() {
            say!("cgscope: {refused}");
        }
        privileges::give_up(user.as_ref()).map_err(Error::could_not_run)?;
        let header = record::header_of_host(Duration::from_nanos(config.collect.interval));
        Ok(Self {
            config,
            named: options.config.clone(),
            is_verbose: options.verbose,
            collector,
            socket,
            header,
            signals,
        })
    }

    async fn serve(self) -> Result {
        let Self { config, named, is_verbose, collector, socket, header, mut signals } = self;
        let failed = |error: io::Error| Error::could_not_run(format!("the daemon cannot start ({error})"));
        let collection = Collection::start(collector).map_err(failed)?;
        let pace = collection.pace().clone();
        let mut interval_ns = config.collect.interval;
        pace.ask(interval_ns);
        let (limits_now, warnings) = limits(&config.socket);
        for warning in warnings {
            say!("cgscope: {warning}");
        }
        let counters = Arc::new(Counters::default());
        let Some(socket) = socket else {
            return Err(Error::could_not_run("nothing is to be served: [socket] has no path"));
        };
        let listener =
            UnixListener::from_std(socket.listener.try_clone().map_err(failed)?).map_err(failed)?;
        let mount = CgroupMounts::read(Path::new("/")).cpu().map(Path::to_path_buf);
        let server = Server::new(listener, collection, &header, mount, limits_now, counters)
            .map_err(|error| Error::could_not_run(error.to_string()))?;
        let change = server.limits();
        say!("cgscope: serving viewers at {}", socket.place);
        tell(&[NotifyState::Ready]);
        let reload = async {
            while signals.reload.recv().await.is_some() {
                tell(&[
                    NotifyState::Reloading,
                    NotifyState::monotonic_usec_now().unwrap_or(NotifyState::Ready),
                ]);
                match read(named.as_deref()) {
                    Ok(read) => {
                        let (limits, warnings) = limits(&read.config.socket);
                        warnings.iter().for_each(|warning| say!("cgscope: {warning}"));
                        change(limits);
                        pace.ask(read.config.collect.interval);
                        pace.ask_no_longer(interval_ns);
                        interval_ns = read.config.collect.interval;
                        say!("cgscope: {} was read again", read.words());
                    }
                    Err(wrong) => say!("cgscope: {wrong}; going on with the configuration of before"),
                }
                tell(&[NotifyState::Ready]);
            }
        };
        let [terminate, interrupt] = &mut signals.end;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = reload => {}
            }
            tell(&[NotifyState::Stopping]);
            if is_verbose {
                say!("cgscope: ending");
            }
        };
        let ended = server.serve(stop).await;
        drop(socket);
        ended.map_err(Error::incomplete).map(|()| Exit::Done)
    }
}

/// Who starts a daemon by hand on a host that was never set up for it serves root alone.
fn with_known_group(config: &Socket, is_default: bool) -> Socket {
    let mut config = config.clone();
    if is_default && let Err(sentence) = listen::group_id(&config.group) {
        say!("cgscope: {sentence}; until then only root can connect");
        config.group = cgscope_serve::config::Account::Id(0);
    }
    config
}

/// Tells systemd, if it started us.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}
