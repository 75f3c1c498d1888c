//! The words of the c10d TCPStore protocol: requests, answers, and their bytes.
//!
//! Plain TCP, no framing, no authentication. A request is one code byte and its fields; integers are
//! little-endian, a key or value is a u64 length and that many bytes. Nothing was renumbered since
//! torch 2.2; torch 2.1 used the same codes minus one and no opening (`TCPStoreBackend.hpp`, torch 2.1
//! to 2.15). Torch's clients put a `/` before every key of the user; only `init/` has none.

use std::fmt;

/// A key or a value.
pub(crate) type Bytes = Vec<u8>;

/// The word after `Validate` that opens a connection since torch 2.2.
pub(crate) const MAGIC: u32 = 0x3C85_F7CE;

// The limits of torch's own libuv server (`TCPStoreLibUvBackend.cpp`), so that what works there works here.
/// The longest key on the wire, in bytes.
pub(crate) const MAX_KEY: u64 = 8 << 10;
/// The longest value, in bytes.
pub(crate) const MAX_VALUE: u64 = 8 << 20;
/// The most keys in one request.
pub(crate) const MAX_KEYS: u64 = 128 << 10;
/// The most bytes in one request or one answer. Torch has no such limit: its others allow for a terabyte.
pub(crate) const MAX_MESSAGE: u64 = 256 << 20;

/// The answer to `Wait` and `Barrier` once there is nothing left to wait for.
pub(crate) const STOP_WAITING: u8 = 0;
/// The answer to `CancelWait`.
pub(crate) const WAIT_CANCELED: u8 = 1;
/// The answer to `Check` when all keys are there.
pub(crate) const READY: u8 = 0;
/// The answer to `Check` when one is missing.
pub(crate) const NOT_READY: u8 = 1;

/// The code byte of a request, since torch 2.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Command {
    Validate,
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    NumKeys,
    DeleteKey,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    QueuePush,
    QueuePop,
    QueueLen,
    ListKeys,
    Barrier,
}

use Command::{
    Add, Append, Barrier, CancelWait, Check, CompareSet, DeleteKey, Get, ListKeys, MultiGet,
    MultiSet, NumKeys, Ping, QueueLen, QueuePop, QueuePush, Set, Validate, Wait,
};

/// Every command, at its own code.
pub(crate) const COMMANDS: [Command; 19] = [
    Validate, Set, CompareSet, Get, Add, Check, Wait, NumKeys, DeleteKey, Append, MultiGet,
    MultiSet, CancelWait, Ping, QueuePush, QueuePop, QueueLen, ListKeys, Barrier,
];

/// One field of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Key,
    Value,
    /// An i64.
    Number,
    /// A u32.
    Word,
}

impl Command {
    /// The command of a code.
    pub(crate) fn of(code: u8) -> Option<Self> {
        COMMANDS.get(usize::from(code)).copied()
    }

    /// The fields after the code byte.
    pub(crate) fn fields(self) -> &'static [Field] {
        match self {
            NumKeys | CancelWait | ListKeys => &[],
            Validate | Ping => &[Field::Word],
            Get | Check | Wait | DeleteKey | MultiGet | QueuePop | QueueLen => &[Field::Key],
            Set | Append | MultiSet | QueuePush => &[Field::Key, Field::Value],
            CompareSet => &[Field::Key, Field::Value, Field::Value],
            Add | Barrier => &[Field::Key, Field::Number],
        }
    }

    /// Whether a u64 comes first that says how often the fields follow.
    pub(crate) fn counted(self) -> bool {
        matches!(self, Check | Wait | MultiGet | MultiSet)
    }
}

/// A request to the store. (`Validate` is part of the opening and never reaches the store.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// No answer.
    Set { key: Bytes, value: Bytes },
    /// Answers the value that is now under the key, as a blob.
    CompareSet {
        key: Bytes,
        expected: Bytes,
        desired: Bytes,
    },
    /// Answers a blob, empty where there is no such key.
    Get { key: Bytes },
    /// Answers the new value, an i64.
    Add { key: Bytes, delta: i64 },
    /// Answers `READY` or `NOT_READY`.
    Check { keys: Vec<Bytes> },
    /// Answers `STOP_WAITING` once every key is there.
    Wait { keys: Vec<Bytes> },
    /// Answers an i64.
    NumKeys,
    /// Answers how many were deleted, an i64: 0 or 1.
    DeleteKey { key: Bytes },
    /// No answer.
    Append { key: Bytes, value: Bytes },
    /// Answers one blob for each key.
    MultiGet { keys: Vec<Bytes> },
    /// No answer.
    MultiSet { pairs: Vec<(Bytes, Bytes)> },
    /// Answers `WAIT_CANCELED`, also when nothing was waiting. A client that is not answered hangs for good:
    /// it waits for this byte without a time limit (`TCPStore.cpp`, torch 2.15).
    CancelWait,
    /// Answers the nonce, a u32. Torch's clients (2.5 and later) send their pid.
    Ping { nonce: u32 },
    /// No answer.
    QueuePush { key: Bytes, value: Bytes },
    /// Answers the length before, an i64, then, where that is not 0, the oldest item as a blob.
    QueuePop { key: Bytes },
    /// Answers an i64.
    QueueLen { key: Bytes },
    /// Answers an i64 and that many blobs, in any order.
    ListKeys,
    /// Answers `STOP_WAITING` once `world` clients have come.
    Barrier { key: Bytes, world: i64 },
}

impl Request {
    /// Writes the request as torch 2.2 and later read it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Set { key, value } => put(out, Set, &[key, value]),
            Self::CompareSet {
                key,
                expected,
                desired,
            } => put(out, CompareSet, &[key, expected, desired]),
            Self::Get { key } => put(out, Get, &[key]),
            Self::Add { key, delta } => {
                put(out, Add, &[key]);
                put_number(out, *delta);
            }
            Self::Check { keys } => put_keys(out, Check, keys),
            Self::Wait { keys } => put_keys(out, Wait, keys),
            Self::NumKeys => put(out, NumKeys, &[]),
            Self::DeleteKey { key } => put(out, DeleteKey, &[key]),
            Self::Append { key, value } => put(out, Append, &[key, value]),
            Self::MultiGet { keys } => put_keys(out, MultiGet, keys),
            Self::MultiSet { pairs } => {
                put(out, MultiSet, &[]);
                put_count(out, pairs.len());
                for (key, value) in pairs {
                    put_blob(out, key);
                    put_blob(out, value);
                }
            }
            Self::CancelWait => put(out, CancelWait, &[]),
            Self::Ping { nonce } => {
                put(out, Ping, &[]);
                out.extend(nonce.to_le_bytes());
            }
            Self::QueuePush { key, value } => put(out, QueuePush, &[key, value]),
            Self::QueuePop { key } => put(out, QueuePop, &[key]),
            Self::QueueLen { key } => put(out, QueueLen, &[key]),
            Self::ListKeys => put(out, ListKeys, &[]),
            Self::Barrier { key, world } => {
                put(out, Barrier, &[key]);
                put_number(out, *world);
            }
        }
    }
}

fn put(out: &mut Vec<u8>, command: Command, blobs: &[&Bytes]) {
    out.push(command as u8);
    for blob in blobs {
        put_blob(out, blob);
    }
}

fn put_keys(out: &mut Vec<u8>, command: Command, keys: &[Bytes]) {
    out.push(command as u8);
    put_count(out, keys.len());
    for key in keys {
        put_blob(out, key);
    }
}

/// Writes what a client says first.
pub(crate) fn put_hello(out: &mut Vec<u8>) {
    out.push(Validate as u8);
    out.extend(MAGIC.to_le_bytes());
}

/// Writes a key or a value.
pub(crate) fn put_blob(out: &mut Vec<u8>, blob: &[u8]) {
    put_count(out, blob.len());
    out.extend(blob);
}

/// Writes an i64.
pub(crate) fn put_number(out: &mut Vec<u8>, number: i64) {
    out.extend(number.to_le_bytes());
}

/// Writes a number of things as a u64.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u64).to_le_bytes());
}

/// Why a connection must be closed: the protocol has no way to report an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// The first bytes are those of no torch.
    Hello,
    /// A later `Validate` with another magic word.
    Magic(u32),
    /// An unknown code.
    Command(u8),
    /// A key, a value, or a whole message of this many bytes, over the limit.
    TooLong { length: u64, limit: u64 },
    /// Too many keys in one request.
    TooMany(u64),
    /// `Add` or `Barrier` on a key that holds no number.
    NoNumber(Bytes),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => f.write_str("not a client of a torch store"),
            Self::Magic(word) => write!(f, "wrong magic word {word:#010x}"),
            Self::Command(code) => write!(f, "unknown command {code}"),
            Self::TooLong { length, limit } => write!(f, "{length} bytes, the limit is {limit}"),
            Self::TooMany(count) => write!(f, "{count} keys, the limit is {MAX_KEYS}"),
            Self::NoNumber(key) => write!(f, "no number under `{}`", key.escape_ascii()),
        }
    }
}
