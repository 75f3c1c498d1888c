//! Who has come to the meeting, and what the host does about it: node 0's side, without a socket.
//!
//! ```text
//!   Gathering -- every node is there --> Working -- all have finished, or --> Ending -- all know --> Over
//!      ^  |                              ^   |      the first failure
//!      +--+ a node leaves:      all have |   | a worker failed, and
//!           wait for it again   ended it |   v restarts are left
//!                                       Restarting
//! ```
//!
//! The host alone decides: who may join, which ranks a node gets, and which failure is the root cause
//! (the first it hears of). Every launcher of ours reads the same news, so all tell the same story. Agents
//! of torch take part through torch's own keys; they can join and finish, but nobody can tell them to stop.

use std::mem::take;

use super::admission::objection;
use super::decision::{Action, Ending};
use super::event::{Cause, Event, Node, Party, Ready, lost, ranks};
use super::keys::{JOINED, Keys, Topic};
use super::members::{Member, Members};
use super::message::{Mail, News, Verdict, ranks_to_json};
use super::retry::{Next, Retry};
use super::store::ClientId;
use super::unnamed::Unnamed;
use crate::topology::NodeRank;

/// The host's view of the meeting.
pub(crate) struct Roster {
    me: Party,
    token: String,
    keys: Keys,
    members: Members,
    unnamed: Unnamed,
    phase: Phase,
    retry: Retry,
    /// The number of the next piece of news.
    news: u64,
    actions: Vec<Action>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Gathering,
    Working,
    Restarting,
    Ending(Ending),
    Over,
}

impl Roster {
    /// The meeting with this node as its only member, and what to publish before anybody can ask.
    /// `token` is the secret of the run, `port` where the store listens.
    pub(crate) fn open(me: Party, token: String, address: &str, port: u16) -> (Self, Vec<Action>) {
        let keys = Keys::new(&me.run_id);
        let mut roster = Self {
            members: Members::expecting(me.num_nodes),
            unnamed: Unnamed::default(),
            token,
            phase: Phase::Gathering,
            retry: Retry::up_to(me.max_restarts),
            news: 0,
            actions: Vec::new(),
            keys,
            me,
        };
        roster.set(JOINED.into(), "1".into());
        roster.set(roster.keys.host(), roster.me.launcher.clone());
        roster.set(roster.keys.main_address(), address.into());
        roster.set(roster.keys.main_port(), port.to_string());
        let (node, rank) = (roster.me.as_node(), roster.me.node);
        roster.enrol(rank, node, None, true);
        let actions = take(&mut roster.actions);
        (roster, actions)
    }

    /// The prefixes of all keys the host wants to hear of.
    pub(crate) fn watched(&self) -> Vec<String> {
        let joined = self.me.identical.then(|| JOINED.to_owned());
        self.keys.watched().into_iter().chain(joined).collect()
    }

    /// A client at `peer` has set a key.
    pub(crate) fn heard(
        &mut self,
        client: ClientId,
        peer: &str,
        key: &[u8],
        value: &[u8],
    ) -> Vec<Action> {
        match self.keys.topic(key, &self.token) {
            Some(Topic::Hello(nonce)) => self.hello(client, nonce, value),
            Some(Topic::RoleInfo(rank)) => self.role_info(client, peer, rank, value),
            Some(Topic::Joined) => self.joined(client, peer),
            Some(Topic::Mail(rank)) if self.members.rank_of(client) == Some(rank) => {
                match Mail::from_json(value) {
                    Some(Mail::Failed(cause)) => self.end(cause),
                    Some(Mail::Finished) => self.finished(rank, false),
                    Some(Mail::Cleared) => self.cleared(rank),
                    None => {}
                }
            }
            Some(Topic::Exits) => {
                if let Some(rank) = self.members.rank_of(client) {
                    self.finished(rank, true);
                }
            }
            Some(Topic::Exit(rank)) if self.members.rank_of(client) == Some(rank) => {
                self.finished(rank, false);
            }
            _ => {}
        }
        take(&mut self.actions)
    }

    /// A client has gone; `error` says how where it did not simply close its connection.
    pub(crate) fn left(&mut self, client: ClientId, error: Option<&str>) -> Vec<Action> {
        self.unnamed.remove(client);
        if let Some(rank) = self.members.rank_of(client) {
            self.member_left(rank, error);
        }
        take(&mut self.actions)
    }

    /// This node fails, or is told to stop.
    pub(crate) fn abort(&mut self, cause: Cause) -> Vec<Action> {
        self.end(cause);
        take(&mut self.actions)
    }

    /// All workers of this node have ended well.
    pub(crate) fn finish(&mut self) -> Vec<Action> {
        self.finished(self.me.node, false);
        take(&mut self.actions)
    }

    /// All workers of this node have ended, so that they can be started again.
    pub(crate) fn renew(&mut self) -> Vec<Action> {
        self.cleared(self.me.node);
        take(&mut self.actions)
    }

    /// It is time to say what is being waited for, if anything is.
    pub(crate) fn remind(&mut self) -> Vec<Action> {
        let sentence = match self.phase {
            Phase::Gathering => format!("waiting for {}", self.members.missing()),
            Phase::Working if self.has_finished() => {
                format!(
                    "waiting for the workers of {} to end",
                    self.members.unfinished()
                )
            }
            _ => return Vec::new(),
        };
        self.broadcast(&News::Waiting(sentence.clone()));
        self.tell(Event::Waiting(sentence));
        take(&mut self.actions)
    }

    /// Nobody waits any longer for nodes that have not come within `seconds`.
    pub(crate) fn give_up(&mut self, seconds: u64) -> Vec<Action> {
        if self.phase == Phase::Gathering {
            let message = format!("waited {seconds} s for {}", self.members.missing());
            let hint = "hint: start fabric there as well; --join-timeout SECONDS waits longer";
            self.tell(Event::Failed(format!("start: {message}\n{hint}")));
            let cause = self
                .members
                .cause(self.me.node, format!("failed to start: {message}"));
            self.broadcast(&News::Aborted(cause));
            self.phase = Phase::Ending(Ending { aborted: true });
            self.settle();
        }
        take(&mut self.actions)
    }

    /// Nobody waits any longer for nodes that do not hang up.
    pub(crate) fn close(&mut self) -> Vec<Action> {
        if self.ending().is_some() {
            self.phase = Phase::Over;
            self.tell(Event::Over);
        }
        take(&mut self.actions)
    }

    /// Whether nodes are still to come.
    pub(crate) fn gathering(&self) -> bool {
        self.phase == Phase::Gathering
    }

    /// Whether there is anybody to be reminded of.
    pub(crate) fn waiting(&self) -> bool {
        self.gathering() || (self.phase == Phase::Working && self.has_finished())
    }

    /// The end, where it is decided and only has to be read by everybody.
    pub(crate) fn ending(&self) -> Option<Ending> {
        match self.phase {
            Phase::Ending(ending) => Some(ending),
            _ => None,
        }
    }

    /// Whether the workers of this node have.
    fn has_finished(&self) -> bool {
        self.members
            .iter()
            .any(|it| it.client.is_none() && it.finished)
    }

    fn hello(&mut self, client: ClientId, nonce: &str, value: &[u8]) {
        let verdict = match Party::from_hello(value) {
            None => Verdict::Refused("its greeting cannot be read".into()),
            Some(guest) => match objection(&self.me, &guest, &self.members) {
                Some(why) => Verdict::Refused(why),
                None => {
                    self.enrol(guest.node, guest.as_node(), Some(client), true);
                    // The news of that moment may have been that all are there: read from before it.
                    let news = self.news.saturating_sub(u64::from(!self.gathering()));
                    Verdict::Welcome {
                        token: self.token.clone(),
                        news,
                    }
                }
            },
        };
        self.set(self.keys.verdict(nonce), verdict.to_json());
        if let Verdict::Refused(why) = verdict {
            self.tell(Event::Notice(format!("refused a node: {why}")));
        }
    }

    /// An agent of torch has come.
    fn role_info(&mut self, client: ClientId, peer: &str, rank: NodeRank, value: &[u8]) {
        if self.members.rank_of(client).is_some() {
            return;
        }
        let node = Node::from_role_info(value, peer.into());
        let why = match (node, self.members.place(rank)) {
            (Some(node), Some(None)) => {
                self.announce(rank, peer);
                return self.enrol(rank, node, Some(client), false);
            }
            (None, _) => format!("node {rank} ({peer}) says nothing that can be read"),
            (_, None) => format!("node {rank} ({peer}) is out of range"),
            (_, Some(Some(first))) => {
                format!(
                    "node rank {rank} is taken twice, by {} and by {peer}",
                    first.node.host
                )
            }
        };
        // Its agent ends with an error when its connection does; that is the only way to tell it.
        self.actions.push(Action::Close(client));
        self.tell(Event::Notice(format!("refused a node: {why}")));
    }

    /// A client of torch has come, and will not say which node it is, if it is one.
    fn joined(&mut self, client: ClientId, peer: &str) {
        if self.gathering() {
            self.unnamed.add(client, peer);
            self.seat();
        }
    }

    /// Gives the places that are left to those who will not say theirs, once there are enough of them.
    fn seat(&mut self) {
        for (rank, client, host) in self.unnamed.fill(&self.members) {
            self.announce(rank, &host);
            let node = Node {
                host,
                ..self.me.as_node()
            };
            self.enrol(rank, node, Some(client), false);
        }
    }

    /// Says once that a node runs an agent of torch.
    fn announce(&mut self, rank: NodeRank, peer: &str) {
        let restarts = match self.me.max_restarts {
            0 => "",
            _ => "; nothing is restarted",
        };
        self.tell(Event::Notice(format!(
            "node {rank} ({peer}) runs the Python original: it cannot be told to stop when another node fails{restarts}"
        )));
    }

    fn enrol(&mut self, rank: NodeRank, node: Node, client: Option<ClientId>, ours: bool) {
        client.iter().for_each(|it| self.unnamed.remove(*it));
        let info = node.to_role_info(rank);
        self.set(self.keys.role_info(rank), info.clone());
        self.set(self.keys.old_role_info(rank), info);
        self.members
            .put(rank, Some(Member::new(node, client, ours)));
        match self.members.complete() {
            true => self.begin(),
            false => self.seat(),
        }
    }

    /// Every node is there.
    fn begin(&mut self) {
        self.phase = Phase::Working;
        let nodes: Vec<Node> = self.members.iter().map(|it| it.node.clone()).collect();
        for (rank, ranks) in (0..).map(NodeRank).zip(ranks(&nodes)) {
            self.set(self.keys.assigned_ranks(rank), ranks_to_json(ranks));
            self.set(Keys::ranks(&self.token, rank), ranks_to_json(ranks));
            if rank == self.me.node {
                self.tell(Event::Ready(Ready::new(ranks)));
            }
        }
        self.broadcast(&News::Ready(self.me.host.clone()));
    }

    /// All workers of a node have ended well; `counted` where it has told torch's barrier itself.
    fn finished(&mut self, rank: NodeRank, counted: bool) {
        let Some(member) = self.members.member_mut(rank) else {
            return;
        };
        if self.phase != Phase::Working || std::mem::replace(&mut member.finished, true) {
            return;
        }
        if !counted {
            let key = self.keys.exits();
            self.actions.push(Action::Count { key });
        }
        self.set(self.keys.old_exit(rank), rank.to_string());
        if self.members.iter().all(|it| it.finished) {
            self.phase = Phase::Ending(Ending { aborted: false });
            self.set(self.keys.last_exit(), "<val_ignored>".into());
            self.broadcast(&News::Done);
            self.settle();
        }
    }

    fn member_left(&mut self, rank: NodeRank, error: Option<&str>) {
        let Some(member) = self.members.member_mut(rank) else {
            return;
        };
        let host = member.node.host.clone();
        match self.phase {
            Phase::Gathering => {
                self.members.put(rank, None);
                self.tell(Event::Notice(format!(
                    "node {rank} ({host}) has left before the start"
                )));
            }
            Phase::Working | Phase::Restarting if !member.finished => {
                member.gone = true;
                self.end(self.members.cause(rank, lost(error)));
            }
            _ => {
                member.gone = true;
                self.settle();
            }
        }
    }

    /// The first failure is the root cause; what comes later follows from it.
    fn end(&mut self, cause: Cause) {
        let next = match self.phase {
            Phase::Working => {
                let told = self.members.iter().all(|it| it.ours);
                self.retry.after(&cause, told)
            }
            // A worker of the attempt that is being ended anyway is not worth a word.
            Phase::Gathering | Phase::Restarting if cause.lived.is_none() => Next::End,
            _ => return,
        };
        match next {
            Next::Restart => return self.restart(cause),
            Next::GiveUp(why) => {
                self.broadcast(&News::Notice(why.clone()));
                self.tell(Event::Notice(why));
            }
            Next::End => {}
        }
        self.phase = Phase::Ending(Ending { aborted: true });
        self.broadcast(&News::Aborted(cause.clone()));
        self.tell(Event::Aborted(cause));
        self.settle();
    }

    /// Asks every node to end its workers.
    fn restart(&mut self, cause: Cause) {
        self.phase = Phase::Restarting;
        self.members.renew();
        self.broadcast(&News::Restarting(cause.clone()));
        self.tell(Event::Restarting(cause));
    }

    /// The workers of a node have ended; once all have, nothing of theirs may disturb the next.
    fn cleared(&mut self, rank: NodeRank) {
        if let (Phase::Restarting, Some(member)) = (self.phase, self.members.member_mut(rank)) {
            member.cleared = true;
            if self.members.iter().all(|it| it.cleared) {
                let kept = self.keys.of_launchers();
                self.actions.push(Action::Clear { kept });
                self.begin();
            }
        }
    }

    /// Ends the meeting when everybody who reads the news has read the last: they hang up then. After
    /// success agents of torch still read the store; after a failure nobody waits for them.
    fn settle(&mut self) {
        let Phase::Ending(Ending { aborted }) = self.phase else {
            return;
        };
        let others = self.members.iter().filter(|it| it.client.is_some());
        if others.filter(|it| it.ours || !aborted).all(|it| it.gone) {
            self.phase = Phase::Over;
            self.tell(Event::Over);
        }
    }

    fn broadcast(&mut self, news: &News) {
        let key = self.keys.news(&self.token, self.news);
        self.news += 1;
        self.set(key, news.to_json());
    }

    fn set(&mut self, key: String, value: String) {
        self.actions.push(Action::Set { key, value });
    }

    fn tell(&mut self, event: Event) {
        self.actions.push(Action::Tell(event));
    }
}
