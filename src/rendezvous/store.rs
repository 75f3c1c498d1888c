//! What the store holds and who waits for it: torch's libuv semantics without a socket.
//!
//! Counters are decimal text among the other values; queues are apart. A client waits for one set of
//! keys at a time and is woken once, when the last missing one has come. Torch's libuv server (2.15)
//! differs in cases that are plain defects, not copied: it wakes waiters of a key that a failed
//! `CompareSet` did not create, never answers a wait for a queue that is not empty together with a
//! missing key, and wakes a client that a queue once woke out of a later, unrelated wait.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use super::protocol::{
    Bytes, MAX_MESSAGE, NOT_READY, READY, Request, STOP_WAITING, Violation, WAIT_CANCELED,
    put_blob, put_count, put_number,
};

/// One connection, by a number that is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClientId(pub(crate) u64);

/// The values, the queues, and the clients that wait.
#[derive(Default)]
pub(crate) struct Store {
    values: HashMap<Bytes, Bytes>,
    queues: HashMap<Bytes, VecDeque<Bytes>>,
    /// Who waits for a key, in the order in which they came.
    waiters: HashMap<Bytes, Vec<ClientId>>,
    parked: HashMap<ClientId, Parked>,
    woken: Vec<ClientId>,
    watched: Vec<Bytes>,
    changed: Vec<(Bytes, Bytes)>,
}

struct Parked {
    /// All keys that were missing when the wait began, each once.
    keys: Vec<Bytes>,
    /// How many of them have not come yet.
    missing: usize,
}

impl Store {
    /// Does what a client asks and writes its answer. Other clients whose wait ends thereby are listed
    /// by `take_woken`, each of which is owed one `STOP_WAITING`.
    pub(crate) fn apply(
        &mut self,
        client: ClientId,
        request: Request,
        answer: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        match request {
            Request::Set { key, value } => self.set(key, value),
            Request::CompareSet {
                key,
                expected,
                desired,
            } => {
                put_blob(answer, &self.compare_set(key, expected, desired));
            }
            Request::Get { key } => put_blob(answer, self.get(&key).unwrap_or_default()),
            Request::Add { key, delta } => put_number(answer, self.add(key, delta)?),
            Request::Check { keys } => {
                let all = keys.iter().all(|key| self.has(key));
                answer.push(if all { READY } else { NOT_READY });
            }
            Request::Wait { keys } => self.wait(client, keys, answer),
            Request::NumKeys => put_count(answer, self.values.len()),
            Request::DeleteKey { key } => {
                put_number(answer, i64::from(self.values.remove(&key).is_some()));
            }
            Request::Append { key, value } => self.append(key, value),
            Request::MultiGet { keys } => self.multi_get(&keys, answer)?,
            Request::MultiSet { pairs } => {
                for (key, value) in pairs {
                    self.set(key, value);
                }
            }
            Request::CancelWait => {
                self.unpark(client);
                answer.push(WAIT_CANCELED);
            }
            Request::Ping { nonce } => answer.extend(nonce.to_le_bytes()),
            Request::QueuePush { key, value } => self.push(key, value),
            Request::QueuePop { key } => self.pop(key, answer),
            Request::QueueLen { key } => {
                put_count(answer, self.queues.get(&key).map_or(0, VecDeque::len));
            }
            Request::ListKeys => {
                put_count(answer, self.values.len());
                self.values.keys().for_each(|key| put_blob(answer, key));
            }
            Request::Barrier { key, world } => self.barrier(client, key, world, answer)?,
        }
        Ok(())
    }

    /// The client has gone: nobody wakes it any more.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.unpark(client);
        self.woken.retain(|it| *it != client);
    }

    /// The clients whose wait has ended since the last call.
    pub(crate) fn take_woken(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.woken)
    }

    /// From now on, changes of keys that begin with `prefix` are listed by `take_changed`.
    pub(crate) fn watch(&mut self, prefix: Bytes) {
        self.watched.push(prefix);
    }

    /// The watched keys that were given a value since the last call, with that value, in order.
    pub(crate) fn take_changed(&mut self) -> Vec<(Bytes, Bytes)> {
        std::mem::take(&mut self.changed)
    }

    /// What a client still waits for; empty when it does not wait.
    pub(crate) fn awaited(&self, client: ClientId) -> Vec<Bytes> {
        let keys = self.parked.get(&client).map_or(&[][..], |it| &it.keys);
        let waits = |key: &&Bytes| {
            self.waiters
                .get(*key)
                .is_some_and(|it| it.contains(&client))
        };
        keys.iter().filter(waits).cloned().collect()
    }

    /// Forgets all values and queues but those whose keys begin with one of `kept`.
    pub(crate) fn clear(&mut self, kept: &[Bytes]) {
        let keep = |key: &Bytes| kept.iter().any(|it| key.starts_with(it));
        self.values.retain(|key, _| keep(key));
        self.queues.retain(|key, _| keep(key));
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Gives a key a value, and wakes who waits for it.
    pub(crate) fn set(&mut self, key: Bytes, value: Bytes) {
        self.note(&key, &value);
        self.wake_all(&key);
        self.values.insert(key, value);
    }

    /// Adds to a counter, wrapping as torch does. An absent key counts as 0.
    pub(crate) fn add(&mut self, key: Bytes, delta: i64) -> Result<i64, Violation> {
        let sum = self.counter(&key)?.wrapping_add(delta);
        self.set(key, sum.to_string().into_bytes());
        Ok(sum)
    }

    fn counter(&self, key: &Bytes) -> Result<i64, Violation> {
        match self.values.get(key) {
            None => Ok(0),
            Some(text) => stoll(text).ok_or_else(|| Violation::NoNumber(key.clone())),
        }
    }

    /// Absent and nothing expected: store. Absent and something expected: store nothing, and answer
    /// what was expected, as torch does. Present: replace where it is what was expected.
    fn compare_set(&mut self, key: Bytes, expected: Bytes, desired: Bytes) -> Bytes {
        match self.values.get(&key) {
            None if !expected.is_empty() => return expected,
            Some(present) if *present != expected => return present.clone(),
            _ => {}
        }
        self.set(key, desired.clone());
        desired
    }

    fn append(&mut self, key: Bytes, value: Bytes) {
        let mut whole = self.values.remove(&key).unwrap_or_default();
        whole.extend(value);
        self.set(key, whole);
    }

    fn multi_get(&self, keys: &[Bytes], answer: &mut Vec<u8>) -> Result<(), Violation> {
        let values = || keys.iter().map(|key| self.get(key).unwrap_or_default());
        let length = values().map(|value| value.len() as u64).sum();
        if length > MAX_MESSAGE {
            let limit = MAX_MESSAGE;
            return Err(Violation::TooLong { length, limit });
        }
        values().for_each(|value| put_blob(answer, value));
        Ok(())
    }

    fn push(&mut self, key: Bytes, value: Bytes) {
        self.wake_one(&key);
        self.queues.entry(key).or_default().push_back(value);
    }

    fn pop(&mut self, key: Bytes, answer: &mut Vec<u8>) {
        let Entry::Occupied(mut queue) = self.queues.entry(key) else {
            return put_count(answer, 0);
        };
        put_count(answer, queue.get().len());
        if let Some(oldest) = queue.get_mut().pop_front() {
            put_blob(answer, &oldest);
        }
        if queue.get().is_empty() {
            queue.remove();
        }
    }

    /// Counts one more arrival. The count is never reset: a second use of the key returns at once.
    fn barrier(
        &mut self,
        client: ClientId,
        key: Bytes,
        world: i64,
        answer: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let count = self.counter(&key)?.wrapping_add(1);
        self.values
            .insert(key.clone(), count.to_string().into_bytes());
        if count < world {
            self.park(client, vec![key]);
        } else {
            answer.push(STOP_WAITING);
            self.wake_all(&key);
        }
        Ok(())
    }

    fn has(&self, key: &Bytes) -> bool {
        // An empty queue is not kept, so every queue that exists holds something.
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    /// A client waits for one thing at a time: a new wait takes the place of an old one.
    fn wait(&mut self, client: ClientId, keys: Vec<Bytes>, answer: &mut Vec<u8>) {
        self.unpark(client);
        let missing: HashSet<Bytes> = keys.into_iter().filter(|key| !self.has(key)).collect();
        if missing.is_empty() {
            answer.push(STOP_WAITING);
        } else {
            self.park(client, missing.into_iter().collect());
        }
    }

    fn park(&mut self, client: ClientId, keys: Vec<Bytes>) {
        self.unpark(client);
        for key in &keys {
            self.waiters.entry(key.clone()).or_default().push(client);
        }
        let missing = keys.len();
        self.parked.insert(client, Parked { keys, missing });
    }

    fn unpark(&mut self, client: ClientId) {
        let Some(parked) = self.parked.remove(&client) else {
            return;
        };
        for key in parked.keys {
            if let Entry::Occupied(mut waiters) = self.waiters.entry(key) {
                waiters.get_mut().retain(|it| *it != client);
                if waiters.get().is_empty() {
                    waiters.remove();
                }
            }
        }
    }

    fn wake_all(&mut self, key: &Bytes) {
        for client in self.waiters.remove(key).unwrap_or_default() {
            self.arrived(client);
        }
    }

    /// Wakes the first client that waits for nothing but this queue; of those before it, which wait for
    /// other keys too, this wish is fulfilled.
    fn wake_one(&mut self, key: &Bytes) {
        let Some(mut waiters) = self.waiters.remove(key) else {
            return;
        };
        while !waiters.is_empty() {
            if self.arrived(waiters.remove(0)) {
                break;
            }
        }
        if !waiters.is_empty() {
            self.waiters.insert(key.clone(), waiters);
        }
    }

    /// One of a client's keys has come; true when it was the last.
    fn arrived(&mut self, client: ClientId) -> bool {
        let Entry::Occupied(mut parked) = self.parked.entry(client) else {
            return false;
        };
        parked.get_mut().missing -= 1;
        let last = parked.get().missing == 0;
        if last {
            parked.remove();
            self.woken.push(client);
        }
        last
    }

    fn note(&mut self, key: &Bytes, value: &Bytes) {
        if self.watched.iter().any(|prefix| key.starts_with(prefix)) {
            self.changed.push((key.clone(), value.clone()));
        }
    }
}

/// The number at the start of a text, as C's `stoll` reads it: blanks before and anything after are
/// ignored; none where there is no digit or the number does not fit.
fn stoll(text: &[u8]) -> Option<i64> {
    let blank = |it: &&u8| matches!(it, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(blank).count()..];
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = &digits[..digits.iter().take_while(|it| it.is_ascii_digit()).count()];
    let text = std::str::from_utf8(digits).ok()?;
    if negative {
        format!("-{text}").parse()
    } else {
        text.parse()
    }
    .ok()
}

#[cfg(test)]
mod tests {
    use super::super::parser::Parser;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const ANN: ClientId = ClientId(1);
    const BOB: ClientId = ClientId(2);
    const EVE: ClientId = ClientId(3);

    fn key(text: &str) -> Bytes {
        text.into()
    }

    fn keys(text: &str) -> Vec<Bytes> {
        text.split_whitespace().map(Bytes::from).collect()
    }

    fn set(text: &str) -> Request {
        let (key, value) = (text.into(), b"1".into());
        Request::Set { key, value }
    }

    fn push(text: &str) -> Request {
        let (key, value) = (text.into(), b"item".into());
        Request::QueuePush { key, value }
    }

    fn wait(text: &str) -> Request {
        Request::Wait { keys: keys(text) }
    }

    /// Asks, and returns the answer and who was woken.
    #[track_caller]
    fn ask(store: &mut Store, client: ClientId, request: Request) -> (Bytes, Vec<ClientId>) {
        let mut answer = Bytes::new();
        store.apply(client, request, &mut answer).unwrap();
        (answer, store.take_woken())
    }

    #[track_caller]
    fn add(before: &str, delta: i64, expected: Option<i64>) {
        let mut store = Store::default();
        store.set(key("n"), key(before));
        assert_eq!(store.add(key("n"), delta).ok(), expected);
    }

    #[test]
    fn counters_are_read_as_c_reads_them() {
        add("1", 1, Some(2));
        add(" \t\n12abc", 1, Some(13));
        add("-5", 1, Some(-4));
        add("+5", 1, Some(6));
        add("9223372036854775807", 1, Some(i64::MIN));
        add("-9223372036854775808", 0, Some(i64::MIN));
        add("9223372036854775808", 0, None);
        add("", 1, None);
        add("-", 1, None);
        add("abc", 1, None);
        assert_eq!(Store::default().add(key("n"), -2), Ok(-2));
    }

    #[test]
    fn a_waiter_is_woken_by_its_last_key_and_once() {
        let mut store = Store::default();
        assert_eq!(ask(&mut store, ANN, wait("a b a")), (vec![], vec![]));
        assert_eq!(ask(&mut store, BOB, set("a")).1, []);
        assert_eq!(store.awaited(ANN), [key("b")]);
        assert_eq!(ask(&mut store, BOB, set("b")).1, [ANN]);
        assert_eq!(ask(&mut store, BOB, set("b")).1, []);
        assert!(store.awaited(ANN).is_empty());
    }

    #[test]
    fn every_way_to_make_a_key_wakes() {
        let (key, value) = (key("a"), key("1"));
        let (k, v) = (key.clone(), value.clone());
        for request in [
            set("a"),
            Request::Add {
                key: k.clone(),
                delta: 1,
            },
            Request::Append {
                key: k.clone(),
                value: v.clone(),
            },
            Request::MultiSet {
                pairs: vec![(k.clone(), v.clone())],
            },
            Request::CompareSet {
                key: k.clone(),
                expected: vec![],
                desired: v.clone(),
            },
            Request::QueuePush { key: k, value: v },
        ] {
            let mut store = Store::default();
            ask(&mut store, ANN, wait("a"));
            assert_eq!(
                ask(&mut store, BOB, request.clone()).1,
                [ANN],
                "{request:?}"
            );
        }
    }

    #[test]
    fn a_compare_set_that_makes_nothing_wakes_nobody() {
        let mut store = Store::default();
        ask(&mut store, ANN, wait("a"));
        let (key, expected, desired) = (key("a"), key("x"), key("y"));
        let request = Request::CompareSet {
            key,
            expected,
            desired,
        };
        let (answer, woken) = ask(&mut store, BOB, request);
        assert_eq!((&answer[8..], woken), (&b"x"[..], vec![]));
        assert_eq!(store.get(b"a"), None);
    }

    #[test]
    fn a_push_wakes_one_and_only_out_of_that_wait() {
        let mut store = Store::default();
        ask(&mut store, ANN, wait("q"));
        ask(&mut store, BOB, wait("q"));
        assert_eq!(ask(&mut store, EVE, push("q")).1, [ANN]);
        ask(&mut store, ANN, Request::QueuePop { key: key("q") });
        ask(&mut store, ANN, wait("never"));
        assert_eq!(ask(&mut store, EVE, push("q")).1, [BOB]);
        assert_eq!(ask(&mut store, EVE, push("q")).1, []);
        assert_eq!(store.awaited(ANN), [key("never")]);
    }

    #[test]
    fn a_full_queue_does_not_hold_up_a_wait_for_other_keys() {
        let mut store = Store::default();
        ask(&mut store, EVE, push("q"));
        ask(&mut store, ANN, wait("q a"));
        assert_eq!(ask(&mut store, EVE, set("a")).1, [ANN]);
    }

    #[test]
    fn a_barrier_opens_for_all_at_once_and_stays_open() {
        let mut store = Store::default();
        let barrier = || Request::Barrier {
            key: key("b"),
            world: 3,
        };
        assert_eq!(ask(&mut store, ANN, barrier()), (vec![], vec![]));
        assert_eq!(ask(&mut store, BOB, barrier()), (vec![], vec![]));
        assert_eq!(
            ask(&mut store, EVE, barrier()),
            (vec![STOP_WAITING], vec![ANN, BOB])
        );
        assert_eq!(ask(&mut store, ANN, barrier()).0, [STOP_WAITING]);
        assert_eq!(store.get(b"b"), Some(&b"4"[..]));
    }

    #[test]
    fn who_has_gone_or_given_up_is_not_woken() {
        let mut store = Store::default();
        ask(&mut store, ANN, wait("a"));
        ask(&mut store, BOB, wait("a"));
        assert_eq!(ask(&mut store, BOB, Request::CancelWait).0, [WAIT_CANCELED]);
        store.forget(ANN);
        assert_eq!(ask(&mut store, EVE, set("a")).1, []);
        assert!(store.waiters.is_empty() && store.parked.is_empty());
    }

    #[test]
    fn a_new_wait_replaces_the_old_one() {
        let mut store = Store::default();
        ask(&mut store, ANN, wait("a"));
        assert_eq!(ask(&mut store, ANN, wait("")).0, [STOP_WAITING]);
        assert_eq!(ask(&mut store, BOB, set("a")).1, []);
    }

    #[test]
    fn watched_keys_are_listed_with_each_value() {
        let mut store = Store::default();
        store.watch(key("/w/"));
        ask(&mut store, ANN, set("/w/a"));
        ask(&mut store, ANN, set("/v"));
        ask(
            &mut store,
            ANN,
            Request::Append {
                key: key("/w/a"),
                value: key("2"),
            },
        );
        let expected = [(key("/w/a"), key("1")), (key("/w/a"), key("12"))];
        assert_eq!(store.take_changed(), expected);
    }

    #[test]
    fn answers_cannot_be_endless() {
        let mut store = Store::default();
        store.set(key("a"), vec![0; 8 << 20]);
        let request = Request::MultiGet {
            keys: vec![key("a"); 33],
        };
        let refused = store.apply(ANN, request, &mut Bytes::new());
        assert!(matches!(refused, Err(Violation::TooLong { .. })));
    }

    /// What real clients and torch's own server said to each other.
    #[test]
    fn recorded_conversations_go_the_same_way() {
        let mut store = Store::default();
        let mut parser = Parser::default();
        let (mut call, mut answers) = ("", Bytes::new());
        for line in include_str!("../../tests/store/golden.txt").lines() {
            let bytes = |text: &str| -> Bytes {
                text.split(' ')
                    .map(|it| u8::from_str_radix(it, 16).unwrap())
                    .collect()
            };
            if let Some(sent) = line.strip_prefix("  client ") {
                assert_eq!(answers, b"", "unexpected answer to {call}");
                for byte in bytes(sent) {
                    if let Some(request) = parser.next(&mut &[byte][..]).unwrap() {
                        store.apply(ANN, request, &mut answers).unwrap();
                    }
                }
            } else if let Some(expected) = line.strip_prefix("  server ") {
                let mut expected = bytes(expected);
                if call.starts_with("list_keys") {
                    expected.sort_unstable();
                    answers.sort_unstable();
                }
                assert_eq!(answers, expected, "{call}");
                answers.clear();
            } else {
                call = line;
            }
        }
    }

    /// A store that looks at everything anew after each request, against the one that counts.
    #[derive(Default)]
    struct Model {
        values: std::collections::BTreeMap<Bytes, Bytes>,
        queues: std::collections::BTreeMap<Bytes, Vec<Bytes>>,
        /// In order of arrival, with what has not come.
        waits: Vec<(ClientId, HashSet<Bytes>)>,
    }

    impl Model {
        fn has(&self, key: &Bytes) -> bool {
            self.values.contains_key(key) || self.queues.get(key).is_some_and(|it| !it.is_empty())
        }

        fn came(&mut self, key: &Bytes, most: usize) -> HashSet<ClientId> {
            let mut woken = HashSet::new();
            for (client, missing) in &mut self.waits {
                if woken.len() < most && missing.remove(key) && missing.is_empty() {
                    woken.insert(*client);
                }
            }
            self.waits.retain(|(_, missing)| !missing.is_empty());
            woken
        }

        fn apply(&mut self, client: ClientId, request: &Request) -> HashSet<ClientId> {
            match request {
                Request::Set { key, value } => {
                    self.values.insert(key.clone(), value.clone());
                    self.came(key, usize::MAX)
                }
                Request::QueuePush { key, value } => {
                    self.queues
                        .entry(key.clone())
                        .or_default()
                        .push(value.clone());
                    self.came(key, 1)
                }
                Request::QueuePop { key } => {
                    if let Some(queue) = self.queues.get_mut(key).filter(|it| !it.is_empty()) {
                        queue.remove(0);
                    }
                    HashSet::new()
                }
                Request::DeleteKey { key } => {
                    self.values.remove(key);
                    HashSet::new()
                }
                Request::Wait { keys } => {
                    let missing = keys.iter().filter(|it| !self.has(it)).cloned();
                    let missing: HashSet<Bytes> = missing.collect();
                    self.waits.retain(|(it, _)| *it != client);
                    if !missing.is_empty() {
                        self.waits.push((client, missing));
                    }
                    HashSet::new()
                }
                _ => HashSet::new(),
            }
        }
    }

    fn request() -> impl Strategy<Value = Request> {
        let name = || prop_oneof![Just(key("a")), Just(key("b")), Just(key("c"))];
        prop_oneof![
            name().prop_map(|key| Request::Set {
                key,
                value: b"v".into()
            }),
            name().prop_map(|key| Request::QueuePush {
                key,
                value: b"v".into()
            }),
            name().prop_map(|key| Request::QueuePop { key }),
            name().prop_map(|key| Request::DeleteKey { key }),
            vec(name(), 0..4).prop_map(|keys| Request::Wait { keys }),
        ]
    }

    proptest! {
        #[test]
        fn the_store_does_what_the_model_does(steps in vec((1..4_u64, request()), 0..60)) {
            let (mut store, mut model) = (Store::default(), Model::default());
            for (client, request) in steps {
                let client = ClientId(client);
                let woken = model.apply(client, &request);
                let (answer, ours) = ask(&mut store, client, request.clone());
                prop_assert_eq!(ours.iter().copied().collect::<HashSet<_>>(), woken);
                if let Request::Wait { .. } = request {
                    let parked = model.waits.iter().any(|(it, _)| *it == client);
                    prop_assert_eq!(answer.is_empty(), parked);
                }
                for name in ["a", "b", "c"] {
                    prop_assert_eq!(store.has(&key(name)), model.has(&key(name)));
                }
            }
        }
    }
}
