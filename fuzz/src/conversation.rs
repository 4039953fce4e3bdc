//! Converts a fuzz input into bytes that a client or a daemon sends, and parses these bytes as the receiver does.

use cgscope_record::Message;

use crate::{
    client::Connection,
    frames::framed,
    protocol::{LONGEST, LONGEST_INTERVAL_NS, MOST_PIDS, Request, Requests, Word},
};

/// Length of a piece that repeats one byte. Four such pieces exceed the maximum length of a request.
const REPEATED: usize = 4_096;

/// The bytes that one side sends.
pub enum Said {
    /// Bytes of a client, split into the pieces in which they arrive.
    ByClient(Vec<Vec<u8>>),
    /// Bytes of a daemon.
    ByDaemon(Vec<u8>),
}

impl Said {
    /// Converts an input, whose first byte selects the sender. Returns `None` for an empty input.
    pub fn new(input: &[u8]) -> Option<Self> {
        let (who, rest) = input.split_first()?;
        Some(match who {
            b'f' => Self::ByDaemon(framed(rest)),
            b'd' => Self::ByDaemon(rest.to_vec()),
            _ => Self::ByClient(pieces(rest)),
        })
    }

    /// Returns the total number of bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::ByClient(pieces) => pieces.iter().map(Vec::len).sum(),
            Self::ByDaemon(bytes) => bytes.len(),
        }
    }

    /// Parses the bytes as the receiver does, and checks the result.
    pub fn receive(&self) {
        match self {
            Self::ByClient(pieces) => hear_client(pieces),
            Self::ByDaemon(bytes) => hear_daemon(bytes),
        }
    }
}

/// Splits an input into pieces. A piece is a length and its bytes, or 255 and a byte that is repeated [`REPEATED`] times.
fn pieces(input: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = input;
    while let [length, after @ ..] = rest {
        rest = match (length, after) {
            (255, [byte, next @ ..]) => {
                pieces.push(vec![*byte; REPEATED]);
                next
            }
            _ => {
                let (piece, next) = after.split_at(after.len().min(usize::from(*length)));
                pieces.push(piece.to_vec());
                next
            }
        };
    }
    pieces
}

fn hear_client(pieces: &[Vec<u8>]) {
    let heard = requests(pieces.iter().map(Vec::as_slice));
    for request in heard.iter().flatten() {
        assert!((1..=LONGEST_INTERVAL_NS).contains(&request.interval_ns) && request.pids.len() <= MOST_PIDS);
        let line = request.line();
        assert_eq!(Request::parse(&line[..line.len() - 1]).as_ref(), Ok(request));
    }
    let all = pieces.concat();
    assert_eq!(heard, requests([all.as_slice()]), "the same requests, however the bytes are split");
    let (lines, begun) = match all.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => (all[..end].split(|byte| *byte == b'\n').collect(), all.len() - end - 1),
        None => (Vec::new(), all.len()),
    };
    let refused = heard.last().is_some_and(Result::is_err);
    assert!(refused || heard.len() == lines.len() && begun <= LONGEST, "each line is answered");
    for (line, heard) in lines.iter().zip(&heard) {
        assert_eq!(*heard, Request::parse(line));
    }
}

/// Parses requests as the daemon does: after it refuses a request, it reads nothing more from that client.
fn requests<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Request, Word>> {
    let (mut requests, mut heard) = (Requests::default(), Vec::new());
    for mut came in pieces {
        loop {
            match requests.take(&mut came) {
                Ok(None) => break,
                Ok(Some(request)) => heard.push(Ok(request)),
                Err(word) => {
                    heard.push(Err(word));
                    return heard;
                }
            }
        }
    }
    heard
}

fn hear_daemon(bytes: &[u8]) {
    let mut connection = match Connection::read(bytes) {
        Ok(Ok(connection)) => connection,
        Ok(Err(word)) => return assert_printable(&word.sentence),
        Err(_) => return,
    };
    assert_printable(&connection.incoming.header.hostname);
    // Each message takes at least one byte, so there are at most as many messages as bytes.
    for _ in 0..=bytes.len() {
        match connection.receive() {
            Some(Message::Word(word)) => {
                assert_printable(&word.sentence);
                if word.refused.is_some() {
                    return;
                }
            }
            None => return,
            Some(Message::Sample(_) | Message::End(_)) => {}
        }
    }
    panic!("the connection never ends");
}

fn assert_printable(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}
