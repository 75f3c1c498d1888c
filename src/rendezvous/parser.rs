//! Bytes to requests, however the network cut them, for both dialects of the protocol.
//!
//! A parser holds what it has seen of one unfinished request and never reads a byte twice. Every length
//! is checked when it is read, and memory is taken only for bytes that have come.

use super::protocol::{
    Bytes, Command, Field, MAGIC, MAX_KEY, MAX_KEYS, MAX_MESSAGE, MAX_VALUE, Request, Violation,
};

/// The requests of one connection.
#[derive(Default)]
pub(crate) struct Parser {
    dialect: Option<Dialect>,
    /// The first bytes, until they tell the dialect.
    hello: Bytes,
    draft: Option<Draft>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Torch 2.1: no opening, every code one lower, `CancelWait` the last.
    Old,
    /// Torch 2.2 and later.
    New,
}

/// The highest code of torch 2.1.
const LAST_OLD_CODE: u8 = 11;
/// The code of `Validate`, and in torch 2.1 of `Set`.
const FIRST_CODE: u8 = 0;
/// A code and the magic word.
const HELLO: usize = 5;

impl Parser {
    /// Takes bytes from the front of `input` up to the end of one request; `None` when all were taken
    /// and the request is not complete. After an error the connection is of no use any more.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Request>, Violation> {
        if self.dialect.is_none() {
            self.dialect = self.greet(input)?;
        }
        let Some(dialect) = self.dialect else {
            return Ok(None);
        };
        loop {
            let draft = match &mut self.draft {
                Some(draft) => draft,
                None => match input.split_off_first() {
                    Some(&code) => self.draft.insert(Draft::new(dialect, code)?),
                    None => return Ok(None),
                },
            };
            if !draft.fill(input)? {
                return Ok(None);
            }
            let whole = self
                .draft
                .take()
                .and_then(|draft| draft.finish().transpose());
            if let Some(request) = whole {
                return request.map(Some);
            }
        }
    }

    /// Whether the client has said anything that makes sense yet.
    pub(crate) fn greeted(&self) -> bool {
        self.dialect.is_some()
    }

    /// Tells the dialect. A new client begins with 0 and the magic word; an old one with any of its
    /// codes, and where that is 0, with the low half of a key's length, which is never as large as the
    /// magic word. Whoever says something else is no torch, and is closed before it can wait for an answer.
    fn greet(&mut self, input: &mut &[u8]) -> Result<Option<Dialect>, Violation> {
        match (self.hello.first().or(input.first()), input.is_empty()) {
            (None, _) | (_, true) => return Ok(None),
            (Some(&FIRST_CODE), _) => {}
            (Some(1..=LAST_OLD_CODE), _) => return Ok(Some(Dialect::Old)),
            _ => return Err(Violation::Hello),
        }
        let wanted = (HELLO - self.hello.len()).min(input.len());
        self.hello
            .extend(input.split_off(..wanted).unwrap_or_default());
        let Some(word) = self.hello[1..]
            .first_chunk()
            .map(|it| u32::from_le_bytes(*it))
        else {
            return Ok(None);
        };
        if word == MAGIC {
            return Ok(Some(Dialect::New));
        }
        if u64::from(word) > MAX_KEY {
            return Err(Violation::Hello);
        }
        let mut draft = Draft::new(Dialect::Old, FIRST_CODE)?;
        draft.fill(&mut &self.hello[1..])?;
        self.draft = Some(draft);
        Ok(Some(Dialect::Old))
    }
}

/// A request of which not all has come.
struct Draft {
    command: Command,
    /// How many fields the request has; unknown until its count has come.
    fields: Option<usize>,
    /// How many fields are complete.
    done: usize,
    /// Bytes of a number that was cut.
    cut: Bytes,
    blobs: Vec<Bytes>,
    /// How many bytes the last blob still lacks, where it is not complete.
    lacking: Option<usize>,
    number: u64,
    /// The bytes of all blobs.
    size: u64,
}

impl Draft {
    fn new(dialect: Dialect, code: u8) -> Result<Self, Violation> {
        let command = match dialect {
            Dialect::New => Command::of(code),
            Dialect::Old if code > LAST_OLD_CODE => None,
            Dialect::Old => Command::of(code + 1),
        };
        let command = command.ok_or(Violation::Command(code))?;
        Ok(Self {
            command,
            fields: (!command.counted()).then(|| command.fields().len()),
            done: 0,
            cut: Bytes::new(),
            blobs: Vec::new(),
            lacking: None,
            number: 0,
            size: 0,
        })
    }

    /// Takes what belongs to this request; false when the input ended before it.
    fn fill(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let kinds = self.command.fields();
        let fields = match self.fields {
            Some(fields) => fields,
            None => match self.take_number(8, input) {
                None => return Ok(false),
                Some(count) if count > MAX_KEYS => return Err(Violation::TooMany(count)),
                Some(count) => *self.fields.insert(count as usize * kinds.len()),
            },
        };
        while self.done < fields {
            let complete = match kinds[self.done % kinds.len()] {
                Field::Key => self.take_blob(MAX_KEY, input)?,
                Field::Value => self.take_blob(MAX_VALUE, input)?,
                Field::Number => self
                    .take_number(8, input)
                    .map(|it| self.number = it)
                    .is_some(),
                Field::Word => self
                    .take_number(4, input)
                    .map(|it| self.number = it)
                    .is_some(),
            };
            if !complete {
                return Ok(false);
            }
            self.done += 1;
        }
        Ok(true)
    }

    /// A number of 4 or 8 bytes, once all of them are there.
    fn take_number(&mut self, width: usize, input: &mut &[u8]) -> Option<u64> {
        let wanted = (width - self.cut.len()).min(input.len());
        let bytes = input.split_off(..wanted)?;
        if self.cut.is_empty() && wanted == width {
            return Some(number(bytes));
        }
        self.cut.extend(bytes);
        (self.cut.len() == width).then(|| number(&std::mem::take(&mut self.cut)))
    }

    fn take_blob(&mut self, limit: u64, input: &mut &[u8]) -> Result<bool, Violation> {
        if self.lacking.is_none() {
            let Some(length) = self.take_number(8, input) else {
                return Ok(false);
            };
            self.lacking = Some(self.admit(length, limit)?);
            self.blobs.push(Bytes::new());
        }
        let (Some(lacking), Some(blob)) = (&mut self.lacking, self.blobs.last_mut()) else {
            return Ok(false);
        };
        let here = (*lacking).min(input.len());
        blob.extend(input.split_off(..here).unwrap_or_default());
        *lacking -= here;
        let complete = *lacking == 0;
        if complete {
            self.lacking = None;
        }
        Ok(complete)
    }

    /// Checks a length before anything is done with it.
    fn admit(&mut self, length: u64, limit: u64) -> Result<usize, Violation> {
        if length > limit {
            return Err(Violation::TooLong { length, limit });
        }
        self.size += length;
        if self.size > MAX_MESSAGE {
            let (length, limit) = (self.size, MAX_MESSAGE);
            return Err(Violation::TooLong { length, limit });
        }
        Ok(length as usize)
    }

    /// The complete request; `None` for a repeated `Validate`, which asks for nothing.
    fn finish(self) -> Result<Option<Request>, Violation> {
        let number = self.number;
        let mut blobs = self.blobs.into_iter();
        let mut blob = || blobs.next().unwrap_or_default();
        Ok(Some(match self.command {
            Command::Validate if number == u64::from(MAGIC) => return Ok(None),
            Command::Validate => return Err(Violation::Magic(number as u32)),
            Command::Set => Request::Set {
                key: blob(),
                value: blob(),
            },
            Command::CompareSet => Request::CompareSet {
                key: blob(),
                expected: blob(),
                desired: blob(),
            },
            Command::Get => Request::Get { key: blob() },
            Command::Add => Request::Add {
                key: blob(),
                delta: number as i64,
            },
            Command::Check => Request::Check {
                keys: blobs.collect(),
            },
            Command::Wait => Request::Wait {
                keys: blobs.collect(),
            },
            Command::NumKeys => Request::NumKeys,
            Command::DeleteKey => Request::DeleteKey { key: blob() },
            Command::Append => Request::Append {
                key: blob(),
                value: blob(),
            },
            Command::MultiGet => Request::MultiGet {
                keys: blobs.collect(),
            },
            Command::MultiSet => Request::MultiSet {
                pairs: in_pairs(blobs),
            },
            Command::CancelWait => Request::CancelWait,
            Command::Ping => Request::Ping {
                nonce: number as u32,
            },
            Command::QueuePush => Request::QueuePush {
                key: blob(),
                value: blob(),
            },
            Command::QueuePop => Request::QueuePop { key: blob() },
            Command::QueueLen => Request::QueueLen { key: blob() },
            Command::ListKeys => Request::ListKeys,
            Command::Barrier => Request::Barrier {
                key: blob(),
                world: number as i64,
            },
        }))
    }
}

/// The little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn in_pairs(mut blobs: impl Iterator<Item = Bytes>) -> Vec<(Bytes, Bytes)> {
    std::iter::from_fn(|| Some((blobs.next()?, blobs.next()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{COMMANDS, put_blob, put_count, put_hello};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Feeds the pieces one after the other.
    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Request>, Violation> {
        let mut parser = Parser::default();
        let mut requests = Vec::new();
        for mut piece in pieces {
            while let Some(request) = parser.next(&mut piece)? {
                requests.push(request);
            }
            assert!(piece.is_empty());
        }
        Ok(requests)
    }

    fn hello() -> Bytes {
        let mut bytes = Bytes::new();
        put_hello(&mut bytes);
        bytes
    }

    /// The memory an unfinished request holds.
    fn held(parser: &Parser) -> usize {
        parser.draft.as_ref().map_or(0, |draft| {
            let blobs: usize = draft.blobs.iter().map(Vec::capacity).sum();
            blobs + draft.blobs.capacity() * size_of::<Bytes>()
        })
    }

    #[track_caller]
    fn refused(bytes: &[u8], expected: Violation) {
        assert_eq!(parse([bytes]), Err(expected.clone()));
        assert_eq!(parse(bytes.chunks(1)), Err(expected));
    }

    #[test]
    fn strangers_are_told_from_torch() {
        refused(b"GET / HTTP/1.1\r\n", Violation::Hello);
        refused(b"\x16\x03\x01\x02\x00\x01\x00", Violation::Hello);
        refused(b"\0\xff\xff\xff\xff", Violation::Hello);
        assert_eq!(parse([&b"\0\xce\xf7\x85"[..]]), Ok(vec![]));
    }

    #[test]
    fn unknown_commands_are_refused() {
        refused(&[hello(), vec![19]].concat(), Violation::Command(19));
        let second = [&hello()[..], &[0, 1, 2, 3, 4]].concat();
        refused(&second, Violation::Magic(0x0403_0201));
        // Torch 2.1 knew no code above its `CancelWait`.
        refused(&[11, 12], Violation::Command(12));
    }

    #[test]
    fn limits_hold_before_the_bytes_come() {
        let set = [&hello()[..], &[1]].concat();
        let length = |it: u64| it.to_le_bytes();
        let (long, limit) = (MAX_KEY + 1, MAX_KEY);
        let violation = Violation::TooLong {
            length: long,
            limit,
        };
        refused(&[&set[..], &length(long)].concat(), violation);
        let (long, limit) = (MAX_VALUE + 1, MAX_VALUE);
        let key = [&set[..], &length(1), b"k"].concat();
        let violation = Violation::TooLong {
            length: long,
            limit,
        };
        refused(&[&key[..], &length(long)].concat(), violation);
        let wait = [&hello()[..], &[6], &length(MAX_KEYS + 1)].concat();
        refused(&wait, Violation::TooMany(MAX_KEYS + 1));
    }

    #[test]
    fn the_longest_key_and_value_pass() {
        let request = Request::Set {
            key: vec![b'k'; MAX_KEY as usize],
            value: vec![b'v'; MAX_VALUE as usize],
        };
        let mut bytes = hello();
        request.write(&mut bytes);
        assert_eq!(parse(bytes.chunks(60_000)), Ok(vec![request]));
    }

    #[test]
    fn one_message_cannot_be_endless() {
        let mut parser = Parser::default();
        let mut head = [&hello()[..], &[11]].concat();
        put_count(&mut head, MAX_KEYS as usize);
        assert_eq!(parser.next(&mut &head[..]), Ok(None));
        let mut pair = Bytes::new();
        put_blob(&mut pair, b"k");
        put_blob(&mut pair, &vec![0; MAX_VALUE as usize]);
        let outcome = (0..64).find_map(|_| parser.next(&mut &pair[..]).err());
        assert!(matches!(
            outcome,
            Some(Violation::TooLong {
                limit: MAX_MESSAGE,
                ..
            })
        ));
    }

    fn blob() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..20)
    }

    fn request() -> impl Strategy<Value = Request> {
        let fields = (vec(blob(), 0..5), blob(), blob(), blob(), any::<i64>());
        (0..COMMANDS.len(), fields).prop_map(|(code, (blobs, key, value, desired, number))| {
            let draft = |blobs, number| Draft {
                blobs,
                number,
                ..Draft::new(Dialect::New, code as u8).unwrap()
            };
            let blobs = match Command::of(code as u8).unwrap() {
                Command::Validate => return Request::NumKeys,
                Command::MultiSet => [blobs.clone(), blobs].concat(),
                command if command.counted() => blobs,
                _ => vec![key, value, desired],
            };
            let number = if code == Command::Ping as usize {
                number as u32 as u64
            } else {
                number as u64
            };
            draft(blobs, number).finish().unwrap().unwrap()
        })
    }

    /// Splits at the given places, in per mille of the whole.
    fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = places.iter().map(|it| it * bytes.len() / 1000).collect();
        places.sort_unstable();
        places.push(bytes.len());
        let starts = std::iter::once(0).chain(places.clone());
        starts
            .zip(places.iter())
            .map(|(from, to)| &bytes[from..*to])
            .collect()
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(requests in vec(request(), 1..8), places in vec(0..1000_usize, 0..20)) {
            let mut bytes = hello();
            requests.iter().for_each(|it| it.write(&mut bytes));
            prop_assert_eq!(parse(cut(&bytes, &places)), Ok(requests.clone()));
            prop_assert_eq!(parse(bytes.chunks(1)), Ok(requests));
        }

        #[test]
        fn torch_2_1_speaks_the_same_with_lower_codes(
            requests in vec(request(), 1..8),
            places in vec(0..1000_usize, 0..20),
        ) {
            let mut bytes = Bytes::new();
            let mut known = Vec::new();
            for request in requests {
                let mut one = Bytes::new();
                request.write(&mut one);
                one[0] -= 1;
                if one[0] <= LAST_OLD_CODE {
                    bytes.extend(one);
                    known.push(request);
                }
            }
            prop_assert_eq!(parse(cut(&bytes, &places)), Ok(known));
        }

        #[test]
        fn noise_neither_panics_nor_takes_memory(
            greeted in any::<bool>(),
            code in 0..20_u8,
            noise in vec(prop_oneof![Just(0), any::<u8>()], 0..400),
        ) {
            let start = if greeted { [hello(), vec![code]].concat() } else { vec![code] };
            let bytes = [start, noise].concat();
            let mut parser = Parser::default();
            for piece in bytes.chunks(7) {
                let mut piece = piece;
                while let Ok(Some(_)) = parser.next(&mut piece) {}
                // 8 bytes of input make one empty blob of 24; vectors grow by doubling.
                prop_assert!(held(&parser) <= 8 * bytes.len() + 256);
            }
        }
    }
}
