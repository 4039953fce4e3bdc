//! Why nothing can be served by HTTP: what is missing, what it prevents, what to do.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

/// A fault with what it prevents.
#[derive(Debug)]
pub struct Error {
    /// What is wrong.
    pub fault: Fault,
    /// What it prevents.
    pub effect: Effect,
}

/// What a fault prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is served by HTTP.
    NotServed,
    /// What was read before stays in use.
    Kept,
}

/// What is wrong.
#[derive(Debug)]
pub enum Fault {
    /// The address cannot be listened on.
    Listen {
        /// As configured.
        address: SocketAddr,
        /// The kernel's word.
        error: io::Error,
    },
    /// A file could not be read.
    File {
        /// Its key in the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        error: io::Error,
    },
    /// The file of the certificate has none.
    NoCertificate(PathBuf),
    /// The file of the key has none.
    NoKey(PathBuf),
    /// Certificate and key are there and do not work together.
    Tls {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The library's word.
        why: String,
    },
    /// A line of the file of users.
    User {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong in it.
        why: UserFault,
    },
    /// Nobody in the file of users.
    NoUsers(PathBuf),
    /// The kernel gives no random numbers.
    NoRandom,
}

/// What is wrong in a line of the file of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserFault {
    /// Not `NAME:HASH`.
    Form,
    /// The hash is none of bcrypt.
    Hash,
    /// Checking a password would take longer than a scrape may.
    Cost {
        /// Of the line.
        cost: u32,
        /// The highest that is taken.
        most: u32,
    },
    /// The name is in an earlier line, too.
    Twice,
}

impl Error {
    pub(super) fn not_served(fault: Fault) -> Self {
        Self { fault, effect: Effect::NotServed }
    }

    pub(super) fn kept(self) -> Self {
        Self { effect: Effect::Kept, ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::NotServed => "so nothing is served by HTTP",
            Effect::Kept => "so what was read before stays in use",
        };
        write!(f, "{}, {effect}; {}", self.fault, self.fault.remedy())
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } => match error.kind() {
                io::ErrorKind::AddrInUse => write!(f, "another process listens on {address} already"),
                io::ErrorKind::AddrNotAvailable => write!(f, "this host has no address {}", address.ip()),
                _ => write!(f, "{address} cannot be listened on ({error})"),
            },
            Self::File { path, error, .. } => write!(f, "{} could not be read ({error})", path.display()),
            Self::NoCertificate(path) => write!(f, "{} holds no certificate in PEM form", path.display()),
            Self::NoKey(path) => write!(f, "{} holds no private key in PEM form", path.display()),
            Self::Tls { certificate, key, why } => {
                write!(f, "{} and {} cannot be used for TLS ({why})", certificate.display(), key.display())
            }
            Self::User { path, line, why } => write!(f, "line {line} of {} {why}", path.display()),
            Self::NoUsers(path) => write!(f, "{} names no user", path.display()),
            Self::NoRandom => f.write_str("the kernel gave no random numbers"),
        }
    }
}

impl Fault {
    fn remedy(&self) -> String {
        match self {
            Self::Listen { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "choose a port from 1024 upward as `listen` in [http]: those below need CAP_NET_BIND_SERVICE"
                    .into()
            }
            Self::Listen { .. } => "choose another address as `listen` in [http], or \"\" for none".into(),
            Self::File { key, .. } => {
                format!("name as `{key}` in [http] a file that the daemon's user may read")
            }
            Self::NoCertificate(_) => {
                "name as `tls_certificate` in [http] a file with lines of BEGIN CERTIFICATE".into()
            }
            Self::NoKey(_) => "name as `tls_key` in [http] a file with lines of BEGIN PRIVATE KEY, and no \
                               passphrase on it"
                .into(),
            Self::Tls { .. } => {
                "name in [http] a certificate and the key that it was made for (RSA, ECDSA or Ed25519)".into()
            }
            Self::User { why: UserFault::Cost { .. }, .. } => {
                "make the line again with `htpasswd -nB -C 10 NAME`".into()
            }
            Self::User { why: UserFault::Twice, .. } => "leave one line of each name".into(),
            Self::User { .. } | Self::NoUsers(_) => "write lines as `htpasswd -nB NAME` prints them".into(),
            Self::NoRandom => "start the daemon once the host has gathered some".into(),
        }
    }
}

impl fmt::Display for UserFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("is not NAME:HASH"),
            Self::Hash => f.write_str("has a hash that is not bcrypt's"),
            Self::Cost { cost, most } => {
                write!(
                    f,
                    "has a bcrypt cost of {cost}, and above {most} a scrape would end before its password is checked"
                )
            }
            Self::Twice => f.write_str("has a name that an earlier line has, too"),
        }
    }
}
