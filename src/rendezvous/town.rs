//! For the tests: a host, its store and its clients in one thread, without a network.

use std::collections::BTreeMap;
use std::mem::take;

use super::decision::Action;
use super::event::{Cause, Event, Party};
use super::guest::Guest;
use super::parser::Parser;
use super::protocol::{Bytes, Request, STOP_WAITING};
use super::roster::Roster;
use super::store::{ClientId, Store};
use super::testing;
use crate::topology::NodeRank;

/// A node with so many workers.
pub(crate) fn party(node: u32, num_nodes: u32, local_world_size: u32) -> Party {
    Party {
        local_world_size,
        ..testing::party(node, num_nodes)
    }
}

/// What has gone wrong on a node.
pub(crate) fn cause(node: u32, message: &str) -> Cause {
    Cause {
        node: NodeRank(node),
        host: format!("gpu-{node}"),
        rank: None,
        exit_code: 7,
        message: message.into(),
        lived: None,
    }
}

/// A worker of that node that had run for a while.
pub(crate) fn failure(node: u32) -> Cause {
    Cause {
        lived: Some(std::time::Duration::from_secs(60)),
        ..cause(node, "exit code 7")
    }
}

/// The host among the clients of a town.
pub(crate) const HOST: u64 = 0;

/// A host, its store and its clients, without a network. Client ids also tell whose event it was.
#[derive(Default)]
pub(crate) struct Town {
    store: Store,
    roster: Option<Roster>,
    pub(crate) guests: BTreeMap<u64, Guest>,
    parsers: BTreeMap<u64, Parser>,
    /// What clients that are no guests were answered.
    pub(crate) answers: BTreeMap<u64, Bytes>,
    events: Vec<(u64, Event)>,
}

impl Town {
    /// A host with two workers.
    pub(crate) fn of(num_nodes: u32) -> Self {
        Self::hosted_by(party(0, num_nodes, 2))
    }

    /// That host.
    pub(crate) fn hosted_by(me: Party) -> Self {
        let (roster, actions) = Roster::open(me, "t0ken".into(), "main", 29400);
        let mut town = Self::default();
        roster
            .watched()
            .into_iter()
            .for_each(|it| town.store.watch(it.into()));
        town.roster = Some(roster);
        town.perform(actions);
        town
    }

    /// A launcher of ours comes.
    pub(crate) fn join(&mut self, id: u64, party: Party) {
        let mut guest = Guest::new(party, "main", format!("nonce{id}"));
        guest.connected();
        self.guests.insert(id, guest);
        self.pump();
    }

    /// The host does something.
    pub(crate) fn host(&mut self, decide: impl FnOnce(&mut Roster) -> Vec<Action>) {
        let actions = decide(self.roster.as_mut().unwrap());
        self.perform(actions);
        self.pump();
    }

    /// A guest does something.
    pub(crate) fn guest(&mut self, id: u64, act: impl FnOnce(&mut Guest)) {
        act(self.guests.get_mut(&id).unwrap());
        self.pump();
    }

    /// A client goes, as the server sees it.
    pub(crate) fn leave(&mut self, id: u64, error: Option<&str>) {
        self.guests.remove(&id);
        self.store.forget(ClientId(id));
        self.host(|it| it.left(ClientId(id), error));
    }

    /// Lets everybody talk until nobody has anything to say.
    fn pump(&mut self) {
        loop {
            let mut said = Vec::new();
            for (id, guest) in &mut self.guests {
                let events = guest.take_events();
                self.events.extend(events.into_iter().map(|it| (*id, it)));
                said.push((*id, guest.take_output()));
            }
            said.retain(|(_, bytes)| !bytes.is_empty());
            if said.is_empty() {
                return;
            }
            for (id, bytes) in said {
                let mut input = &bytes[..];
                while let Some(request) = self
                    .parsers
                    .entry(id)
                    .or_default()
                    .next(&mut input)
                    .unwrap()
                {
                    self.ask(id, request);
                }
            }
        }
    }

    fn answer(&mut self, id: u64, request: Request) {
        let mut answer = Bytes::new();
        self.store
            .apply(ClientId(id), request, &mut answer)
            .unwrap();
        self.hear(id, &answer);
        self.wake();
        for (key, value) in self.store.take_changed() {
            if let Some(roster) = &mut self.roster {
                let actions = roster.heard(ClientId(id), "10.0.0.9", &key, &value);
                self.perform(actions);
            }
        }
    }

    /// A client that is no guest asks.
    pub(crate) fn ask(&mut self, id: u64, request: Request) {
        self.answer(id, request);
        self.pump();
    }

    /// A client that is no guest sets a key.
    pub(crate) fn set(&mut self, id: u64, key: &str, value: &str) {
        let (key, value) = (key.into(), value.into());
        self.ask(id, Request::Set { key, value });
    }

    fn wake(&mut self) {
        for ClientId(id) in self.store.take_woken() {
            self.hear(id, &[STOP_WAITING]);
        }
    }

    fn hear(&mut self, id: u64, answer: &[u8]) {
        match self.guests.get_mut(&id) {
            Some(guest) => guest.hear(answer).unwrap(),
            None => self.answers.entry(id).or_default().extend(answer),
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Set { key, value } => self.store.set(key.into(), value.into()),
                Action::Count { key } => drop(self.store.add(key.into(), 1).unwrap()),
                Action::Close(ClientId(id)) => self.leave(id, None),
                Action::Clear { kept } => self.store.clear(&kept.map(Bytes::from)),
                Action::Tell(event) => self.events.push((HOST, event)),
            }
            self.store.take_changed();
            self.wake();
        }
    }

    /// What the store has under a key.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.store
            .get(key.as_bytes())
            .map(|it| std::str::from_utf8(it).unwrap())
    }

    /// What has been told since the last call, in few words.
    pub(crate) fn told(&mut self) -> Vec<(u64, String)> {
        let short = |event| match event {
            Event::Ready(it) => format!("ready {}+{}", it.base, it.world_size),
            Event::Restarting(cause) => format!("restarting: {cause}"),
            Event::Aborted(cause) => format!("aborted: {cause}"),
            Event::Failed(why) => format!("failed to {why}"),
            Event::Waiting(it) | Event::Notice(it) => it,
            Event::Over => "over".into(),
        };
        take(&mut self.events)
            .into_iter()
            .map(|(id, it)| (id, short(it)))
            .collect()
    }

    /// What has been told since the last call, by who was told.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[(u64, &str)]) {
        let mut told = self.told();
        told.sort_by_key(|(id, _)| *id);
        let told: Vec<_> = told.iter().map(|(id, it)| (*id, &**it)).collect();
        assert_eq!(told, expected);
    }
}
