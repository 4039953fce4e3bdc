//! Why a container runtime gave no names: what is missing, what it prevents, what to do.

use std::{io, path::Path, time::Duration};

/// Why there was no answer. All but `Absent` concern one socket.
#[derive(Debug)]
pub(super) enum Failure {
    /// None of the sockets exists.
    Absent,
    /// The socket exists, but nobody accepts the connection.
    Connect(io::Error),
    /// No answer within this time.
    Late(Duration),
    /// The connection broke, or what answers does not speak gRPC: what happened.
    Broken(String),
    /// It does not know the call: no CRI, or one from before version 1.
    Unknown,
    /// It knows the call and refused it: the code of gRPC, and the reason in printable characters.
    Refused(u32, String),
    /// The answer is longer than this many bytes.
    TooLarge(usize),
    /// The answer is no list of containers.
    Garbage,
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Failure {
    /// The sentence for the log.
    pub(super) fn sentence(&self, socket: &Path) -> String {
        let (socket, why) = (socket.display(), self.why());
        let what = match self {
            Self::Absent => format!("no container runtime is at {socket}"),
            Self::Unknown => format!("what listens at {socket} {why}"),
            _ => format!("the container runtime at {socket} {why}"),
        };
        format!("{what}, so the labels pod, namespace and container are missing; {}", self.remedy())
    }

    fn why(&self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Connect(error) => format!("could not be reached ({error})"),
            Self::Late(limit) => format!("did not answer within {} ms", limit.as_millis()),
            Self::Broken(why) => format!("broke off its answer ({why})"),
            Self::Unknown => "does not know version 1 of the CRI".into(),
            Self::Refused(code, message) => {
                format!("refused to list its containers (code {code}: {message})")
            }
            Self::TooLarge(most) => format!("answered with more than {} MiB", most >> 20),
            Self::Garbage => "answered with what is no list of containers".into(),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Absent => {
                "name its socket as `runtime` in [containers], or set it to \"\" where there are no containers"
            }
            Self::Connect(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "let the daemon's user write to that socket (by its group), or set `runtime` in [containers] to \"\""
            }
            Self::Connect(_) | Self::Late(_) => "see whether it runs: it is tried again by and by",
            Self::Unknown => {
                "turn its CRI on (containerd: not in `disabled_plugins`), or update it (containerd 1.6, CRI-O 1.23), or \
                 set `runtime` in [containers] to \"\""
            }
            Self::Broken(_) | Self::Refused(..) | Self::TooLarge(_) | Self::Garbage => {
                "see whether `crictl ps` works with that socket: it is tried again by and by"
            }
        }
    }
}
