//! Why a runtime returned no names, in words.

use std::{io, path::Path, time::Duration};

/// Why a runtime returned no names. All variants but `Absent` concern one socket.
#[derive(Debug)]
pub(crate) enum Failure {
    /// None of the sockets exists.
    Absent,
    /// The socket exists, but nothing accepts the connection.
    Connect(io::Error),
    /// No reply within this time.
    Late(Duration),
    /// The connection broke, or the peer does not speak gRPC. Holds a description.
    Broken(String),
    /// The runtime does not know the call: it has no CRI, or one older than version 1.
    Unknown,
    /// The runtime refused the call. Holds the gRPC code, and the reason in printable characters.
    Refused(u32, String),
    /// The reply is longer than this many bytes.
    TooLarge(usize),
    /// The reply is not a list of containers.
    Garbage,
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Failure {
    /// Returns the sentence for the log.
    pub(crate) fn sentence(&self, socket: &Path) -> String {
        let (socket, why) = (socket.display(), self.why());
        let what = match self {
            Self::Absent => format!("no container runtime is at {socket}, so"),
            Self::Unknown => format!("the program that listens at {socket} {why}, so its"),
            _ => format!("the container runtime at {socket} {why}, so its"),
        };
        format!("{what} pods and containers have no names; {}", self.remedy())
    }

    fn why(&self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Connect(error) => format!("could not be reached ({error})"),
            Self::Late(limit) => format!("did not answer within {} ms", limit.as_millis()),
            Self::Broken(why) => format!("gave no complete answer ({why})"),
            Self::Unknown => "does not know version 1 of the CRI".into(),
            Self::Refused(code, message) => {
                format!("refused to list its containers (code {code}: {message})")
            }
            Self::TooLarge(most) => format!("answered with more than {} MiB", most >> 20),
            Self::Garbage => "answered with something other than a list of containers".into(),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Absent => {
                "give the runtime's socket (`runtime` in [containers], or --runtime), or \"\" if this host has no containers"
            }
            Self::Connect(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "add cgscope's user to the group of that socket, or set `runtime` in [containers] to \"\""
            }
            Self::Connect(_) | Self::Late(_) => "check that the runtime runs; cgscope tries again by itself",
            Self::Unknown => {
                "enable the runtime's CRI (containerd: remove `cri` from `disabled_plugins`); or update the runtime to \
                 containerd 1.6 or CRI-O 1.23; or set `runtime` in [containers] to \"\""
            }
            Self::Broken(_) | Self::Refused(..) | Self::TooLarge(_) | Self::Garbage => {
                "check that `crictl ps` or `docker ps` works with that socket; cgscope tries again by itself"
            }
        }
    }
}
