//! Requests out, answers in: a client's side of the protocol, without a socket.

use std::collections::VecDeque;

use super::protocol::{Bytes, MAX_VALUE, Request, put_hello};

/// What the store answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Byte(u8),
    Number(i64),
    Blob(Bytes),
    Blobs(Vec<Bytes>),
}

/// The other side does not speak the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbled;

/// One conversation with a store. Answers come in the order of the requests, so while a wait is parked
/// only requests without an answer may follow it.
#[derive(Default)]
pub(crate) struct Caller {
    out: Bytes,
    input: Bytes,
    expected: VecDeque<Expected>,
    /// Blobs of an answer with several, so far.
    blobs: Vec<Bytes>,
    /// The other side is a torch 2.1, whose codes are lower by one.
    old: bool,
}

#[derive(Clone, Copy)]
enum Expected {
    Byte,
    Number,
    Blob,
    Blobs(usize),
}

impl Caller {
    /// Says hello, as torch 2.2 and later do. No `Ping`: hosts before 2.5 do not know it.
    pub(crate) fn hello() -> Self {
        let mut caller = Self::default();
        put_hello(&mut caller.out);
        caller
    }

    /// Speaks as torch 2.1 does, which knows no hello.
    pub(crate) fn old() -> Self {
        Self {
            old: true,
            ..Self::default()
        }
    }

    /// Queues a request, and notes the answer it will have.
    pub(crate) fn ask(&mut self, request: &Request) {
        let expected = match request {
            Request::Check { .. } | Request::Wait { .. } => Some(Expected::Byte),
            Request::Add { .. } => Some(Expected::Number),
            Request::Get { .. } => Some(Expected::Blob),
            Request::MultiGet { keys } => Some(Expected::Blobs(keys.len())),
            _ => None,
        };
        self.expected.extend(expected);
        let code = self.out.len();
        request.write(&mut self.out);
        self.out[code] -= u8::from(self.old);
    }

    /// What has to be sent now. A hello and the first requests leave in one piece: torch's libuv server
    /// (2.15) closes a connection whose hello comes in two.
    pub(crate) fn take_output(&mut self) -> Bytes {
        std::mem::take(&mut self.out)
    }

    /// Bytes have come.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
    }

    /// The next complete answer.
    pub(crate) fn answer(&mut self) -> Result<Option<Answer>, Garbled> {
        let Some(expected) = self.expected.front().copied() else {
            return if self.input.is_empty() {
                Ok(None)
            } else {
                Err(Garbled)
            };
        };
        let answer = match expected {
            Expected::Byte => self.take(1).map(|it| Answer::Byte(it[0])),
            Expected::Number => self
                .take(8)
                .and_then(|it| Some(Answer::Number(number(&it)? as i64))),
            Expected::Blob => self.blob()?.map(Answer::Blob),
            Expected::Blobs(count) => {
                while self.blobs.len() < count {
                    match self.blob()? {
                        Some(blob) => self.blobs.push(blob),
                        None => return Ok(None),
                    }
                }
                Some(Answer::Blobs(std::mem::take(&mut self.blobs)))
            }
        };
        if answer.is_some() {
            self.expected.pop_front();
        }
        Ok(answer)
    }

    fn blob(&mut self) -> Result<Option<Bytes>, Garbled> {
        let Some(length) = number(&self.input) else {
            return Ok(None);
        };
        if length > MAX_VALUE {
            return Err(Garbled);
        }
        let whole = self.take(8 + length as usize);
        Ok(whole.map(|mut it| it.split_off(8)))
    }

    fn take(&mut self, count: usize) -> Option<Bytes> {
        let enough = self.input.len() >= count;
        enough.then(|| self.input.drain(..count).collect())
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|it| u64::from_le_bytes(*it))
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{put_blob, put_number};
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_requests_however_cut() {
        let mut caller = Caller::hello();
        let key = || Bytes::from(b"k");
        caller.ask(&Request::Add {
            key: key(),
            delta: 1,
        });
        caller.ask(&Request::Set {
            key: key(),
            value: key(),
        });
        caller.ask(&Request::Wait { keys: vec![key()] });
        caller.ask(&Request::MultiGet {
            keys: vec![key(), key()],
        });
        caller.ask(&Request::Get { key: key() });
        assert_eq!(caller.take_output()[..5], [0, 0xCE, 0xF7, 0x85, 0x3C]);
        let mut bytes = Bytes::new();
        put_number(&mut bytes, -2);
        bytes.push(0);
        for blob in [&b"one"[..], b"", b"three"] {
            put_blob(&mut bytes, blob);
        }
        let mut answers = Vec::new();
        for byte in bytes {
            caller.feed(&[byte]);
            answers.extend(caller.answer().unwrap());
        }
        let expected = [
            Answer::Number(-2),
            Answer::Byte(0),
            Answer::Blobs(vec![b"one".into(), b"".into()]),
            Answer::Blob(b"three".into()),
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn torch_2_1_is_spoken_to_with_lower_codes() {
        let mut caller = Caller::old();
        caller.ask(&Request::NumKeys);
        caller.ask(&Request::CancelWait);
        assert_eq!(caller.take_output(), [6, 11]);
    }

    #[test]
    fn what_was_not_asked_for_is_no_answer() {
        let mut caller = Caller::hello();
        caller.feed(b"HTTP/1.1 400");
        assert_eq!(caller.answer(), Err(Garbled));
        let mut caller = Caller::hello();
        caller.ask(&Request::Get { key: b"k".into() });
        caller.feed(b"HTTP/1.1 400");
        assert_eq!(caller.answer(), Err(Garbled));
    }
}
