//! The connection between a viewer and the daemon. The calls block, so the connection needs a separate thread.

use std::{
    io::{self, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use cgscope_record::{Incoming, Message, ReadError};

use crate::protocol::{Refusal, Request, Word};

pub const SOCKET: &str = "/run/cgscope.sock";

/// Maximum wait for the first answer. The daemon takes a sample before it answers.
const ANSWER: Duration = Duration::from_secs(20);

/// The reason why a viewer has no connection to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "no daemon listens on {path} ({1}): start it (`systemctl start cgscope`, or `cgscope serve` as root), or give the path of its \
         socket with --connect",
        path = .0.display()
    )]
    NobodyThere(PathBuf, io::Error),
    #[error(
        "no permission to connect to {path}: ask an administrator to add you to the socket's group (`ls -l {path}` shows the group), then \
         log in again",
        path = .0.display()
    )]
    NotAllowed(PathBuf),
    #[error("the daemon refused: {}", .0.sentence)]
    Refused(Word),
    /// The peer is not a cgscope daemon, or it has another version.
    #[error("{}", no_daemon(.0, .1))]
    NoDaemon(PathBuf, ReadError),
    #[error("the daemon at {path} does not answer ({1})", path = .0.display())]
    Io(PathBuf, io::Error),
}

fn no_daemon(path: &Path, error: &ReadError) -> String {
    let path = path.display();
    let version = match error {
        ReadError::Version { wrote: Some(wrote), .. } => format!("cgscope {wrote}"),
        ReadError::Version { found, .. } => format!("a cgscope with format version {found}"),
        _ => {
            return format!(
                "the program that listens on {path} is not cgscope: give the path of the daemon's socket with --connect"
            );
        }
    };
    format!(
        "the daemon at {path} is {version}, but this is cgscope {}: install the same version on both sides",
        env!("CARGO_PKG_VERSION")
    )
}

/// Receives the daemon's messages. The daemon may be hostile, because a user can name any socket.
#[derive(Debug)]
pub struct Connection<R = BufReader<UnixStream>> {
    pub incoming: Incoming<R>,
    skip: u32,
}

/// Sends requests to the daemon. Can be used from any thread.
#[derive(Debug)]
pub struct Sender(UnixStream);

impl Sender {
    /// Sends a request. After that, the daemon ignores the previous request.
    pub fn ask(&mut self, request: &Request) -> io::Result<()> {
        self.0.write_all(&request.line())
    }

    /// Closes the connection. If a thread waits for the next message, it stops waiting.
    pub fn hang_up(&self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl Connection {
    /// Connects to the daemon and sends a request.
    pub fn open(path: &Path, request: &Request) -> Result<(Self, Sender), ConnectError> {
        let io = |error| ConnectError::Io(path.into(), error);
        let socket = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ConnectError::NobodyThere(path.into(), error)
            }
            io::ErrorKind::PermissionDenied => ConnectError::NotAllowed(path.into()),
            _ => io(error),
        })?;
        let mut sender = Sender(socket.try_clone().map_err(io)?);
        socket.set_read_timeout(Some(ANSWER)).map_err(io)?;
        // If the daemon has already closed the connection, sending fails, but the reason can still be read.
        let asked = sender.ask(request);
        let connection = match Self::read(BufReader::with_capacity(1 << 16, socket)) {
            Ok(Ok(connection)) => connection,
            Ok(Err(word)) => return Err(ConnectError::Refused(word)),
            Err(ReadError::Io(error)) => return Err(io(error)),
            Err(ReadError::Empty | ReadError::HeaderCut) => {
                return Err(io(asked.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())));
            }
            Err(error) => return Err(ConnectError::NoDaemon(path.into(), error)),
        };
        sender.0.set_read_timeout(None).map_err(io)?;
        Ok((connection, sender))
    }
}

impl<R: Read> Connection<R> {
    /// Reads the header. The outer error: the peer is no cgscope daemon. The inner error: the daemon's reason to refuse.
    pub fn read(input: R) -> Result<Result<Self, Word>, ReadError> {
        let opened = Incoming::open::<Word>(input)?;
        Ok(opened.map(|incoming| Self { incoming, skip: 0 }).map_err(Word::printable))
    }

    /// Waits for the next message; `None` if the daemon closed the connection. After `None` or a refusal, no message arrives.
    pub fn receive(&mut self) -> Option<Message<Word>> {
        loop {
            match self.incoming.receive::<Word>() {
                Ok(Some(Message::Sample(_))) if self.skip > 0 => self.skip -= 1,
                Ok(Some(Message::Word(word))) => {
                    self.skip = self.skip.saturating_add(word.skip);
                    return Some(Message::Word(word.printable()));
                }
                Ok(message) => return message,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let sentence = "cannot decode what the daemon sent: install the same version of cgscope on both sides";
                    return Some(Message::Word(Word::refused(Refusal::Failed, sentence)));
                }
                Err(_) => return None,
            }
        }
    }
}
