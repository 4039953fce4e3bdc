//! Sends and receives samples: a connection carries the frames of a recording, and messages of the daemon between them.

use std::io::{self, Read};

use cgscope_model::Sample;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    End, Header, ReadError, Reason, WriteError,
    codec::{SampleDecoder, SampleEncoder, tables},
    frame::{self, First, Found, Opening, kind, version, with_json},
    rows::out_of_order,
};

impl SampleEncoder {
    /// Returns the bytes with which a recording or a connection starts.
    pub fn opening(header: &Header) -> Result<Vec<u8>, WriteError> {
        with_json(version(), kind::HEADER, &First { header, tables: tables() })
    }

    /// Returns the bytes that the daemon sends to refuse a connection with this message.
    pub fn refusal<T: Serialize>(word: &T) -> Result<Vec<u8>, WriteError> {
        with_json(version(), kind::WORD, word)
    }

    /// Returns the frame of a sample, and whether it is a key frame.
    pub fn sample(&mut self, sample: &Sample) -> Result<(Vec<u8>, bool), WriteError> {
        let mut out = Vec::new();
        let kind = self.append_frame(sample, &mut out);
        // Free the buffers: there may be many encoders with many rows, but only one of them encodes at any moment.
        self.release();
        Ok((out, kind? == kind::KEY))
    }

    /// Returns the frame of a message of the daemon.
    pub fn word<T: Serialize>(word: &T) -> Result<Vec<u8>, WriteError> {
        with_json(Vec::new(), kind::WORD, word)
    }

    pub fn end(unix_ns: u64, reason: Reason) -> Result<Vec<u8>, WriteError> {
        with_json(Vec::new(), kind::END, &End { unix_ns, reason, unwritten: 0 })
    }
}

/// A message received over a connection.
#[derive(Debug)]
pub enum Message<W> {
    Sample(Box<Sample>),
    /// A message of the daemon.
    Word(W),
    End(End),
}

/// Reads from a connection.
#[derive(Debug)]
pub struct Incoming<R> {
    input: R,
    pub header: Header,
    decoder: SampleDecoder,
    payload: Vec<u8>,
}

impl<R: Read> Incoming<R> {
    /// Reads the start of a connection. If the daemon refuses the connection, the inner error contains the daemon's message.
    pub fn open<W: DeserializeOwned>(mut input: R) -> Result<Result<Self, W>, ReadError> {
        let opening = Opening::read(&mut input)?;
        if let Found::Frame(kind::WORD) = opening.found {
            let word = serde_json::from_slice(&opening.payload).map_err(|_| ReadError::HeaderDamaged)?;
            return Ok(Err(word));
        }
        let (header, decoder) = opening.header()?;
        Ok(Ok(Self { input, header, decoder, payload: opening.payload }))
    }

    /// Returns the next message; `None` if the connection was closed without an end.
    ///
    /// # Errors
    /// Returns `InvalidData` if the message is damaged. The connection cannot be read further.
    pub fn receive<W: DeserializeOwned>(&mut self) -> io::Result<Option<Message<W>>> {
        loop {
            let (found, _) = frame::read(&mut self.input, &mut self.payload)?;
            match found {
                Found::Frame(kind @ (kind::KEY | kind::DELTA)) => {
                    let clocks = self.decoder.apply(kind == kind::KEY, &self.payload);
                    let sample = clocks.and_then(|clocks| self.decoder.sample(clocks, true));
                    let sample = sample.filter(|sample| out_of_order(sample).is_none());
                    let sample = Box::new(sample.ok_or_else(no_sense)?);
                    return Ok(Some(Message::Sample(sample)));
                }
                Found::Frame(kind::WORD) => return Ok(Some(Message::Word(json(&self.payload)?))),
                Found::Frame(kind::END) => return Ok(Some(Message::End(json(&self.payload)?))),
                Found::Frame(_) => {}
                Found::Nothing | Found::Torn => return Ok(None),
                Found::BadLength | Found::BadChecksum => return Err(no_sense()),
            }
        }
    }
}

fn json<T: DeserializeOwned>(payload: &[u8]) -> io::Result<T> {
    serde_json::from_slice(payload).map_err(|_| no_sense())
}

fn no_sense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the received data is invalid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outgoing;

    fn samples() -> Vec<Sample> {
        (0..4).map(|n| Sample { unix_ns: 100 + n, mono_ns: n, ..Sample::default() }).collect()
    }

    #[test]
    fn sent_messages_are_received() {
        let header = Header { hostname: "node7".into(), ..Header::default() };
        let mut bytes = Outgoing::opening(&header).unwrap();
        let mut out = Outgoing::new().unwrap();
        let mut keys = Vec::new();
        for sample in samples() {
            let (frame, is_key) = out.sample(&sample).unwrap();
            bytes.extend(frame);
            keys.push(is_key);
        }
        bytes.extend(Outgoing::word(&"late").unwrap());
        bytes.extend(Outgoing::end(7, Reason::Finished).unwrap());
        assert_eq!(keys, [true, false, false, false]);

        let mut incoming = Incoming::open::<String>(bytes.as_slice()).unwrap().unwrap();
        assert_eq!(incoming.header.hostname, "node7");
        for sample in samples() {
            let Some(Message::Sample(got)) = incoming.receive::<String>().unwrap() else {
                panic!("a sample")
            };
            assert_eq!(*got, sample);
        }
        assert!(matches!(incoming.receive::<String>(), Ok(Some(Message::Word(word))) if word == "late"));
        assert!(matches!(incoming.receive::<String>(), Ok(Some(Message::End(end))) if end.unix_ns == 7));
        assert!(matches!(incoming.receive::<String>(), Ok(None)));
    }

    #[test]
    fn a_refusal_is_returned_and_invalid_data_is_an_error() {
        let refusal = Outgoing::refusal(&"too many").unwrap();
        assert_eq!(Incoming::open::<String>(refusal.as_slice()).unwrap().unwrap_err(), "too many");
        assert!(matches!(Incoming::open::<String>(&b"HTTP/1.1 400"[..]), Err(ReadError::Foreign)));

        let mut bytes = Outgoing::opening(&Header::default()).unwrap();
        let (mut frame, _) = Outgoing::new().unwrap().sample(&Sample::default()).unwrap();
        *frame.last_mut().unwrap() ^= 1;
        bytes.extend(frame);
        let mut incoming = Incoming::open::<String>(bytes.as_slice()).unwrap().unwrap();
        assert_eq!(incoming.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_later_reader_starts_at_a_key_frame() {
        let mut out = Outgoing::new().unwrap();
        let _ = out.sample(&samples()[0]).unwrap();
        out.start_anew();
        let (frame, is_key) = out.sample(&samples()[1]).unwrap();
        assert!(is_key);
        let bytes = [Outgoing::opening(&Header::default()).unwrap(), frame].concat();
        let mut incoming = Incoming::open::<String>(bytes.as_slice()).unwrap().unwrap();
        let Some(Message::Sample(got)) = incoming.receive::<String>().unwrap() else { panic!("a sample") };
        assert_eq!(*got, samples()[1]);
    }
}
