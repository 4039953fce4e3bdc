//! What is made of an input for the protocol of the daemon: it is what a client sends, or what a daemon does.

use cgscope_record::Message;

use crate::{
    client::Connection,
    frames::framed,
    protocol::{LONGEST, LONGEST_INTERVAL_NS, MOST_PIDS, Request, Requests, Word},
};

/// Of a repeated byte: four of them are more than a request may have.
const REPEATED: usize = 4_096;

/// What one side says to the other.
pub enum Said {
    /// A client, and in which pieces it comes.
    ByClient(Vec<Vec<u8>>),
    /// A daemon.
    ByDaemon(Vec<u8>),
}

impl Said {
    /// What an input stands for, by its first byte; `None`: nothing.
    pub fn new(input: &[u8]) -> Option<Self> {
        let (who, rest) = input.split_first()?;
        Some(match who {
            b'f' => Self::ByDaemon(framed(rest)),
            b'd' => Self::ByDaemon(rest.to_vec()),
            _ => Self::ByClient(pieces(rest)),
        })
    }

    /// How many bytes it is.
    pub fn bytes(&self) -> usize {
        match self {
            Self::ByClient(pieces) => pieces.iter().map(Vec::len).sum(),
            Self::ByDaemon(bytes) => bytes.len(),
        }
    }

    /// Hears it as the other side does.
    pub fn hear(&self) {
        match self {
            Self::ByClient(pieces) => hear_client(pieces),
            Self::ByDaemon(bytes) => hear_daemon(bytes),
        }
    }
}

/// Each is its length and its bytes; after a 255 one byte, many times.
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
    assert_eq!(heard, requests([all.as_slice()]), "however it is cut");
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

/// As the daemon takes them: whom it refuses it does not hear again.
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
    assert_printable(&connection.header().hostname);
    // Whatever says something takes bytes.
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
    panic!("it never ends");
}

fn assert_printable(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}
