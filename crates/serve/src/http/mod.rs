//! Pages by HTTP/1.1: read-only, by TLS and with basic authentication where configured, and bounded in everything a client can
//! make it do.
//!
//! | file | what |
//! |---|---|
//! | `serve.rs` | takes connections, and ends those that are over |
//! | `seats.rs`, `watch.rs` | how many there are, and how long each may take for what it is at |
//! | `answer.rs` | a request to its answer |
//! | `login.rs`, `users.rs`, `guesses.rs` | who may read |
//! | `shared.rs`, `page.rs`, `gzip.rs` | a page, made once for all who ask while it is being made |
//! | `held.rs` | how many bytes of pages are held by those who take them |
//! | `refusal.rs` | what was refused, counted |

mod answer;
mod error;
mod guesses;
mod gzip;
mod held;
mod limits;
mod login;
mod page;
mod refusal;
mod seats;
mod serve;
mod shared;
mod tls;
mod users;
mod watch;

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
};

use tokio_rustls::rustls::ServerConfig;

pub use error::Error;
pub use limits::HttpLimits;
pub use page::{Page, Pages};
pub use refusal::HttpRefusal;

use crate::lock;
use refusal::Counts;
use users::PasswordFile;

/// Where and to whom pages are served.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The address. Port 0: one that is free, see [`Http::local_addr`].
    pub listen: SocketAddr,
    /// Files in PEM form: the certificate with those that lead to its root, and its private key. None: plain HTTP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A file of users as `htpasswd -B` writes it. None: everyone may read.
    pub users: Option<PathBuf>,
    /// What a client may take.
    pub limits: HttpLimits,
}

impl HttpConfig {
    /// Plain HTTP to everyone who reaches the address.
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, tls: None, users: None, limits: HttpLimits::default() }
    }
}

/// The server: bound at once, so that what is wrong is known before anything else begins.
pub struct Http {
    limits: HttpLimits,
    listener: TcpListener,
    local: SocketAddr,
    rules: Mutex<Rules>,
    counts: Counts,
    /// Each open connection holds a clone.
    open: Arc<()>,
}

/// What [`Http::reload`] replaces.
#[derive(Clone)]
struct Rules {
    tls: Option<Arc<ServerConfig>>,
    users: Option<Arc<PasswordFile>>,
}

impl Http {
    /// Reads certificate, key and users, and takes the address. Nobody is answered before [`Http::serve`]. Needs no runtime.
    pub fn bind(config: &HttpConfig) -> Result<Self, Error> {
        let rules = Rules { tls: read_tls(config)?, users: read_users(config, None)? };
        let taken = |error| not_listening(config.listen, &error);
        let listener = TcpListener::bind(config.listen).map_err(taken)?;
        listener.set_nonblocking(true).map_err(taken)?;
        let local = listener.local_addr().map_err(taken)?;
        Ok(Self {
            limits: config.limits,
            listener,
            local,
            rules: Mutex::new(rules),
            counts: Counts::default(),
            open: Arc::default(),
        })
    }

    /// Where it listens: with the port that the kernel chose, where the configuration names port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What the log should say about the rules in force: that strangers can read, or read along.
    pub fn warning(&self) -> Option<String> {
        let rules = self.rules();
        warning(self.local, rules.tls.is_some(), rules.users.is_some())
    }

    /// Takes certificate, key and users from the files that are named now. What cannot be read keeps what was there before, and
    /// is told; where it listens and its limits stay.
    ///
    /// Connections that are open go on under the certificate they began with, and one that began without ends after its next
    /// answer if there is a certificate now; each of their requests is judged by the new users.
    pub fn reload(&self, config: &HttpConfig) -> Vec<Error> {
        let (tls, users) = (read_tls(config), read_users(config, self.rules().users.as_deref()));
        // What is taken out of the configuration might have stood in for what cannot be read.
        let may_take_away = tls.is_ok() && users.is_ok();
        let mut rules = lock(&self.rules);
        let errors =
            [replace(&mut rules.tls, tls, may_take_away), replace(&mut rules.users, users, may_take_away)];
        errors.into_iter().flatten().collect()
    }

    /// How often clients were refused since the start, by reason: every reason, 0 included.
    pub fn refused(&self) -> [(HttpRefusal, u64); HttpRefusal::ALL.len()] {
        HttpRefusal::ALL.map(|refusal| (refusal, self.counts.refused(refusal)))
    }

    /// Requests that got what they asked for, since the start.
    pub fn answered(&self) -> u64 {
        self.counts.answered.load(Relaxed)
    }

    /// Connections that are open now.
    pub fn connections(&self) -> u64 {
        Arc::strong_count(&self.open) as u64 - 1
    }

    fn rules(&self) -> Rules {
        lock(&self.rules).clone()
    }
}

/// Puts what was read in the place of what was there, or tells why not.
fn replace<T>(place: &mut Option<T>, read: Result<Option<T>, Error>, may_take_away: bool) -> Option<Error> {
    match read {
        Ok(None) if !may_take_away => {}
        Ok(new) => *place = new,
        Err(mut error) => {
            error.is_kept = true;
            return Some(error);
        }
    }
    None
}

fn not_listening(address: SocketAddr, error: &io::Error) -> Error {
    let what = match error.kind() {
        ErrorKind::AddrInUse => format!("another process listens on {address} already"),
        ErrorKind::AddrNotAvailable => format!("this host has no address {}", address.ip()),
        _ => format!("{address} cannot be listened on ({error})"),
    };
    Error::new(
        what,
        match error.kind() {
            ErrorKind::PermissionDenied => {
                "choose a port from 1024 upward as `listen` in [http]: those below need CAP_NET_BIND_SERVICE"
            }
            _ => "choose another address as `listen` in [http], or \"\" for none",
        },
    )
}

/// One sentence for the log where strangers could read along or log in.
fn warning(listen: SocketAddr, has_tls: bool, has_users: bool) -> Option<String> {
    if listen.ip().to_canonical().is_loopback() {
        return None;
    }
    let (lack, remedy) = match (has_tls, has_users) {
        (true, true) => return None,
        (false, false) => (
            "anyone who reaches this address can read the metrics",
            "set `users`, `tls_certificate` and `tls_key`",
        ),
        (true, false) => ("anyone who reaches this address can read the metrics", "set `users`"),
        (false, true) => {
            ("metrics and passwords cross the network as clear text", "set `tls_certificate` and `tls_key`")
        }
    };
    Some(format!("{lack} ({listen}): {remedy} in [http], or listen on 127.0.0.1"))
}

fn read_tls(config: &HttpConfig) -> Result<Option<Arc<ServerConfig>>, Error> {
    let read = |(certificate, key): &(PathBuf, PathBuf)| tls::read(certificate, key).map(Arc::new);
    config.tls.as_ref().map(read).transpose()
}

fn read_users(
    config: &HttpConfig,
    before: Option<&PasswordFile>,
) -> Result<Option<Arc<PasswordFile>>, Error> {
    let read = |path: &PathBuf| {
        let users = PasswordFile::read(path)?;
        Ok(Arc::new(match before {
            Some(before) => users.keeping(before),
            None => users,
        }))
    };
    config.users.as_ref().map(read).transpose()
}

#[cfg(test)]
mod tests {
    fn warning(listen: &str, tls: bool, users: bool) -> Option<String> {
        super::warning(listen.parse().unwrap(), tls, users)
    }

    #[test]
    fn loopback_needs_no_warning_and_other_addresses_need_tls_and_users() {
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(warning(listen, false, false), None, "{listen}");
        }
        for listen in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            assert_eq!(warning(listen, true, true), None, "{listen}");
            let words = |tls, users| warning(listen, tls, users).unwrap();
            assert!(words(false, false).contains("anyone") && words(false, false).contains("tls_key"));
            assert!(words(true, false).contains("anyone") && !words(true, false).contains("tls_key"));
            assert!(words(false, true).contains("clear text"));
        }
    }
}
