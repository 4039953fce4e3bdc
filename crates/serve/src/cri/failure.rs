//! Why a container runtime told no names: what is missing, what it prevents, what to do.

use std::{fmt, io, path::PathBuf, time::Duration};

/// Why there was no answer.
#[derive(Debug)]
pub enum Failure {
    /// None of these sockets is there.
    Absent(Vec<PathBuf>),
    /// The socket is there, and nobody answers, or not us.
    Connect {
        /// Where.
        socket: PathBuf,
        /// The kernel's word.
        error: io::Error,
    },
    /// No answer within this time.
    Late {
        /// Where.
        socket: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// The conversation broke off, or was none of gRPC.
    Broken {
        /// Where.
        socket: PathBuf,
        /// What happened.
        why: String,
    },
    /// It does not know the call: no CRI, or one from before version 1.
    Unknown(PathBuf),
    /// It knows the call and refused it.
    Refused {
        /// Where.
        socket: PathBuf,
        /// The code of gRPC.
        code: u32,
        /// The runtime's word, in printable characters.
        message: String,
    },
    /// The answer is longer than this many bytes.
    TooLarge {
        /// Where.
        socket: PathBuf,
        /// The most that is taken.
        most: usize,
    },
    /// The answer makes no sense.
    Garbage(PathBuf),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(sockets) if sockets.len() == 1 => {
                write!(f, "no container runtime is at {}", sockets[0].display())?;
            }
            Self::Absent(_) => write!(f, "no container runtime has its CRI socket where one is looked for")?,
            Self::Connect { socket, error } => {
                write!(f, "the container runtime at {} could not be reached ({error})", socket.display())?;
            }
            Self::Late { socket, limit } => {
                let ms = limit.as_millis();
                write!(f, "the container runtime at {} did not answer within {ms} ms", socket.display())?;
            }
            Self::Broken { socket, why } => {
                write!(f, "the container runtime at {} broke off its answer ({why})", socket.display())?;
            }
            Self::Unknown(socket) => {
                write!(f, "what listens at {} does not know version 1 of the CRI", socket.display())?;
            }
            Self::Refused { socket, code, message } => {
                let socket = socket.display();
                write!(
                    f,
                    "the container runtime at {socket} refused to list its containers (code {code}: {message})"
                )?;
            }
            Self::TooLarge { socket, most } => {
                let mib = most >> 20;
                write!(f, "the container runtime at {} answered with more than {mib} MiB", socket.display())?;
            }
            Self::Garbage(socket) => {
                write!(
                    f,
                    "the container runtime at {} answered with what is no list of containers",
                    socket.display()
                )?;
            }
        }
        write!(f, ", so the labels pod, namespace and container are missing; {}", self.remedy())
    }
}

impl Failure {
    fn remedy(&self) -> &'static str {
        match self {
            Self::Absent(_) => {
                "name its socket as `runtime` in [containers], or set it to \"\" where there are no containers"
            }
            Self::Connect { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "let the daemon's user write to that socket (by its group), or set `runtime` in [containers] to \"\""
            }
            Self::Connect { .. } | Self::Late { .. } => "see whether it runs: it is tried again by and by",
            Self::Unknown(_) => {
                "turn its CRI on (containerd: not in `disabled_plugins`), or update it (containerd 1.6, CRI-O 1.23), or \
                 set `runtime` in [containers] to \"\""
            }
            Self::Broken { .. } | Self::Refused { .. } | Self::TooLarge { .. } | Self::Garbage(_) => {
                "see whether `crictl ps` works with that socket: it is tried again by and by"
            }
        }
    }
}

/// What the configuration names as the runtime is no path.
#[derive(Debug)]
pub struct NotAPath(pub String);

impl fmt::Display for NotAPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`runtime` in [containers] is {:?}, which is no absolute path, so no runtime can be asked for names; set it to \
             \"auto\", to the path of a CRI socket, or to \"\" for none",
            self.0
        )
    }
}

impl std::error::Error for NotAPath {}
