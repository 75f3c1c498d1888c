//! A launcher that joins: the side of nodes 1 and up, without a socket.
//!
//! ```text
//!                         +- a host of ours: hello, verdict, then one piece of news after the other
//!   connect, count in, -- +
//!   look who hosts        +- torch's agent: role_info, assigned_ranks, exit barrier (as agents do)
//! ```
//!
//! One connection, one wait at a time: news are read in sequence, so whatever the host has to say next is
//! what is being waited for. What this side has to say needs no answer and may be sent meanwhile.

use std::mem::take;

use super::caller::{Answer, Caller, Garbled};
use super::event::{Cause, Event, Node, Party, Ready, lost, ranks};
use super::keys::{JOINED, Keys};
use super::message::{Mail, News, Verdict, ranks_from_json};
use super::protocol::{Bytes, NOT_READY, READY, Request, STOP_WAITING};
use super::stage::{Host, Stage};
use crate::topology::NodeRank;

/// The view of a node that is not the host.
pub(crate) struct Guest {
    me: Party,
    keys: Keys,
    /// What people know node 0 by.
    main: String,
    /// Tells this launcher's hello from others.
    nonce: String,
    caller: Caller,
    stage: Stage,
    token: String,
    /// The number of the next piece of news.
    news: u64,
    host: Host,
    /// Node 0 may be a torch 2.1.
    old: bool,
    /// Ranks are assigned.
    ready: bool,
    finished: bool,
    /// What this side has told the host.
    reported: Option<Cause>,
    events: Vec<Event>,
}

impl Guest {
    /// `main` is node 0's address; `nonce` must differ from that of every other launcher.
    pub(crate) fn new(me: Party, main: &str, nonce: String) -> Self {
        Self {
            keys: Keys::new(&me.run_id),
            me,
            main: main.into(),
            nonce,
            caller: Caller::default(),
            stage: Stage::Away,
            token: String::new(),
            news: 0,
            host: Host::Unknown,
            old: false,
            ready: false,
            finished: false,
            reported: None,
            events: Vec::new(),
        }
    }

    /// A connection stands.
    pub(crate) fn connected(&mut self) {
        self.caller = if self.old {
            Caller::old()
        } else {
            Caller::hello()
        };
        self.caller.ask(&Request::Add {
            key: JOINED.into(),
            delta: 1,
        });
        self.stage = Stage::Counting;
    }

    /// What has to be sent.
    pub(crate) fn take_output(&mut self) -> Bytes {
        self.caller.take_output()
    }

    /// What has happened since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        take(&mut self.events)
    }

    /// Bytes have come. An error means that no store answers.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Result<(), Garbled> {
        self.caller.feed(bytes);
        while let Some(answer) = self.caller.answer()? {
            self.stage = self.next(answer).ok_or(Garbled)?;
        }
        Ok(())
    }

    /// The connection has gone; `error` says how where it was not simply closed. True when it makes sense
    /// to come again.
    pub(crate) fn lost(&mut self, error: Option<&str>) -> bool {
        if self.stage == Stage::Over {
            return false;
        }
        if !self.ready && self.reported.is_none() {
            // Torch 2.1 closes the connection on a hello, and later ones without: try the other way.
            self.old ^= self.stage == Stage::Counting;
            self.stage = Stage::Away;
            return true;
        }
        let lost = || Cause {
            node: NodeRank(0),
            host: self.main.clone(),
            rank: None,
            exit_code: 1,
            message: lost(error),
            lived: None,
        };
        let cause = self.reported.clone().unwrap_or_else(lost);
        self.stage = self.aborted(cause);
        false
    }

    /// This node fails, or is told to stop.
    pub(crate) fn abort(&mut self, cause: Cause) {
        match self.stage {
            Stage::Over => {}
            // The host hears of it and tells everybody what the root cause is.
            Stage::NewsComes | Stage::News => {
                self.mail(&Mail::Failed(cause.clone()));
                self.reported = Some(cause);
            }
            _ => self.stage = self.aborted(cause),
        }
    }

    /// All workers of this node have ended well.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
        match self.host {
            Host::Unknown => {}
            Host::Ours => self.mail(&Mail::Finished),
            Host::Torch => {
                let key = self.keys.exits().into();
                self.caller.ask(&Request::Add { key, delta: 1 });
                self.stage = Stage::Exits;
            }
            Host::OldTorch => {
                let (node, exits) = (self.me.node, |it| self.keys.old_exit(it).into());
                let keys = self.nodes().map(exits).collect();
                self.set(self.keys.old_exit(node), node.to_string());
                self.stage = self.wait(keys, Stage::LastExitComes);
            }
        }
    }

    /// All workers of this node have ended, so that they can be started again.
    pub(crate) fn renew(&mut self) {
        if !self.over() {
            self.mail(&Mail::Cleared);
        }
    }

    /// Whether the other side has proved to be a store.
    pub(crate) fn greeted(&self) -> bool {
        !matches!(self.stage, Stage::Away | Stage::Counting)
    }

    /// Whether there is something to be waited for that the host does not speak of.
    pub(crate) fn waiting(&self) -> bool {
        (!self.ready || self.finished) && self.host != Host::Ours && !self.over()
    }

    /// Whether the host has been told of a failure and has not answered.
    pub(crate) fn has_reported(&self) -> bool {
        self.reported.is_some() && !self.over()
    }

    /// Gives up; `why` reads after "failed to".
    pub(crate) fn give_up(&mut self, why: String) {
        self.events.push(Event::Failed(why));
        self.stage = self.end();
    }

    /// Whether nothing more will happen.
    pub(crate) fn over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether node 0 has not said yet what it is, and has to be asked again in a while.
    pub(crate) fn must_ask_again(&self) -> bool {
        self.stage == Stage::NoWay
    }

    /// Asks node 0 once more what it is.
    pub(crate) fn ask_again(&mut self) {
        self.stage = self.check(self.keys.role_info(NodeRank(0)), Stage::NewWay);
    }

    /// The stage after an answer; none where the answer makes no sense.
    fn next(&mut self, answer: Answer) -> Option<Stage> {
        Some(match (self.stage, answer) {
            (Stage::Counting, Answer::Number(1..)) => self.check(self.keys.host(), Stage::Looking),
            (Stage::Looking, Answer::Byte(READY)) => {
                self.set(self.keys.hello(&self.nonce), self.me.to_hello());
                let verdict = self.keys.verdict(&self.nonce);
                self.wait(vec![verdict.into()], Stage::VerdictComes)
            }
            (Stage::Looking, Answer::Byte(NOT_READY)) => self.at_torch(),
            (Stage::VerdictComes, Answer::Byte(STOP_WAITING)) => {
                self.get(self.keys.verdict(&self.nonce), Stage::Verdict)
            }
            (Stage::Verdict, Answer::Blob(text)) => self.judged(Verdict::from_json(&text)?),
            (Stage::NewsComes, Answer::Byte(STOP_WAITING)) => {
                self.get(self.keys.news(&self.token, self.news), Stage::News)
            }
            (Stage::News, Answer::Blob(text)) => self.told(News::from_json(&text)?)?,
            (Stage::NewWay, Answer::Byte(READY)) => {
                self.host = Host::Torch;
                let ranks = self.keys.assigned_ranks(self.me.node);
                self.wait(vec![ranks.into()], Stage::RanksCome)
            }
            (Stage::NewWay, Answer::Byte(NOT_READY)) => {
                self.check(self.keys.old_role_info(NodeRank(0)), Stage::OldWay)
            }
            (Stage::OldWay, Answer::Byte(READY)) => {
                self.host = Host::OldTorch;
                let keys = self.old_infos();
                self.wait(keys, Stage::InfosCome)
            }
            (Stage::OldWay, Answer::Byte(NOT_READY)) => Stage::NoWay,
            (Stage::RanksCome, Answer::Byte(STOP_WAITING)) => {
                self.get(self.keys.assigned_ranks(self.me.node), Stage::Ranks)
            }
            (Stage::Ranks, Answer::Blob(text)) => {
                self.begin(ranks_from_json(&text)?, Vec::new());
                Stage::Working
            }
            (Stage::InfosCome, Answer::Byte(STOP_WAITING)) => {
                let keys = self.old_infos();
                self.caller.ask(&Request::MultiGet { keys });
                Stage::Infos
            }
            (Stage::Infos, Answer::Blobs(texts)) => self.computed(&texts)?,
            (Stage::Exits, Answer::Number(count)) => self.counted_out(count),
            (Stage::LastExitComes, Answer::Byte(STOP_WAITING)) => self.end(),
            _ => return None,
        })
    }

    fn judged(&mut self, verdict: Verdict) -> Stage {
        match verdict {
            Verdict::Welcome { token, news } => {
                (self.host, self.token, self.news) = (Host::Ours, token, news);
                self.next_news()
            }
            Verdict::Refused(why) => {
                self.events
                    .push(Event::Failed(format!("join: node 0 refuses: {why}")));
                self.end()
            }
        }
    }

    fn told(&mut self, news: News) -> Option<Stage> {
        self.news += 1;
        match news {
            News::Waiting(sentence) => {
                if !self.ready || self.finished {
                    self.events.push(Event::Waiting(sentence));
                }
            }
            News::Ready(nodes) => self.begin(ranks(&nodes, self.me.node)?, nodes),
            News::Restarting(cause) => {
                (self.reported, self.finished) = (None, false);
                self.events.push(Event::Restarting(cause));
            }
            News::Aborted(cause) => return Some(self.aborted(cause)),
            News::Done => return Some(self.end()),
        }
        Some(self.next_news())
    }

    fn next_news(&mut self) -> Stage {
        let key = self.keys.news(&self.token, self.news);
        self.wait(vec![key.into()], Stage::NewsComes)
    }

    /// Node 0 runs the Python original: do as its agents do.
    fn at_torch(&mut self) -> Stage {
        let restarts = match self.me.max_restarts {
            0 => "",
            _ => ", and nothing is restarted",
        };
        self.events.push(Event::Notice(format!(
            "node 0 runs the Python original: nodes cannot tell each other to stop{restarts}"
        )));
        let node = Node {
            host: String::new(),
            local_world_size: self.me.local_world_size,
            role: self.me.role.clone(),
        };
        let info = node.to_role_info(self.me.node);
        self.set(self.keys.role_info(self.me.node), info.clone());
        self.set(self.keys.old_role_info(self.me.node), info);
        self.check(self.keys.role_info(NodeRank(0)), Stage::NewWay)
    }

    /// Before torch 2.4 every node adds up the ranks itself.
    fn computed(&mut self, texts: &[Bytes]) -> Option<Stage> {
        let nodes = texts
            .iter()
            .map(|it| Node::from_role_info(it, String::new()));
        let nodes = nodes.collect::<Option<Vec<_>>>()?;
        self.set(
            Keys::fin(&self.keys.old_role_info(self.me.node)),
            "FIN".into(),
        );
        self.begin(ranks(&nodes, self.me.node)?, Vec::new());
        Some(Stage::Working)
    }

    fn begin(&mut self, ranks: [u32; 4], nodes: Vec<Node>) {
        self.ready = true;
        if let Some(node) = nodes.first() {
            self.main.clone_from(&node.host);
        }
        self.events.push(Event::Ready(Ready::new(ranks, nodes)));
    }

    /// The last one opens the barrier, and need not wait at it.
    fn counted_out(&mut self, count: i64) -> Stage {
        if count < i64::from(self.me.num_nodes) {
            return self.wait(vec![self.keys.last_exit().into()], Stage::LastExitComes);
        }
        self.set(self.keys.last_exit(), "<val_ignored>".into());
        self.end()
    }

    fn aborted(&mut self, cause: Cause) -> Stage {
        self.events.push(Event::Aborted(cause));
        self.end()
    }

    fn end(&mut self) -> Stage {
        if self.host == Host::OldTorch && self.finished {
            self.set(Keys::fin(&self.keys.old_exit(self.me.node)), "FIN".into());
        }
        self.events.push(Event::Over);
        Stage::Over
    }

    fn nodes(&self) -> impl Iterator<Item = NodeRank> + use<> {
        (0..self.me.num_nodes).map(NodeRank)
    }

    fn old_infos(&self) -> Vec<Bytes> {
        self.nodes()
            .map(|it| self.keys.old_role_info(it).into())
            .collect()
    }

    fn mail(&mut self, mail: &Mail) {
        self.set(self.keys.mail(&self.token, self.me.node), mail.to_json());
    }

    fn set(&mut self, key: String, value: String) {
        let (key, value) = (key.into(), value.into());
        self.caller.ask(&Request::Set { key, value });
    }

    fn check(&mut self, key: String, then: Stage) -> Stage {
        self.caller.ask(&Request::Check {
            keys: vec![key.into()],
        });
        then
    }

    fn wait(&mut self, keys: Vec<Bytes>, then: Stage) -> Stage {
        self.caller.ask(&Request::Wait { keys });
        then
    }

    fn get(&mut self, key: String, then: Stage) -> Stage {
        self.caller.ask(&Request::Get { key: key.into() });
        then
    }
}

#[cfg(test)]
mod tests {
    use super::super::decision::Action;
    use super::super::parser::Parser;
    use super::super::roster::Roster;
    use super::super::store::{ClientId, Store};
    use super::*;
    use std::collections::BTreeMap;

    fn party(node: u32, num_nodes: u32, local_world_size: u32) -> Party {
        Party {
            node: NodeRank(node),
            num_nodes,
            local_world_size,
            host: format!("gpu-{node}"),
            role: "default".into(),
            run_id: "none".into(),
            launcher: "1.0.0".into(),
            max_restarts: 0,
            script: "train.py".into(),
            token: None,
        }
    }

    fn cause(node: u32, message: &str) -> Cause {
        Cause {
            node: NodeRank(node),
            host: format!("gpu-{node}"),
            rank: None,
            exit_code: 7,
            message: message.into(),
            lived: None,
        }
    }

    const HOST: u64 = 0;

    /// A host, its store and its clients, without a network. Client ids also tell whose event it was.
    #[derive(Default)]
    struct Town {
        store: Store,
        roster: Option<Roster>,
        guests: BTreeMap<u64, Guest>,
        parsers: BTreeMap<u64, Parser>,
        /// What clients that are no guests were answered.
        answers: BTreeMap<u64, Bytes>,
        events: Vec<(u64, Event)>,
    }

    impl Town {
        fn of(num_nodes: u32) -> Self {
            Self::hosted_by(party(0, num_nodes, 2))
        }

        fn hosted_by(me: Party) -> Self {
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

        fn join(&mut self, id: u64, party: Party) {
            let mut guest = Guest::new(party, "main", format!("nonce{id}"));
            guest.connected();
            self.guests.insert(id, guest);
            self.pump();
        }

        fn host(&mut self, decide: impl FnOnce(&mut Roster) -> Vec<Action>) {
            let actions = decide(self.roster.as_mut().unwrap());
            self.perform(actions);
            self.pump();
        }

        fn guest(&mut self, id: u64, act: impl FnOnce(&mut Guest)) {
            act(self.guests.get_mut(&id).unwrap());
            self.pump();
        }

        /// A client goes, as the server sees it.
        fn leave(&mut self, id: u64, error: Option<&str>) {
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

        fn ask(&mut self, id: u64, request: Request) {
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

        fn set(&mut self, id: u64, key: &str, value: &str) {
            let (key, value) = (key.into(), value.into());
            self.ask(id, Request::Set { key, value });
            self.pump();
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

        fn value(&self, key: &str) -> Option<&str> {
            self.store
                .get(key.as_bytes())
                .map(|it| std::str::from_utf8(it).unwrap())
        }

        /// What has been told since the last call, in few words.
        fn told(&mut self) -> Vec<(u64, String)> {
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

        #[track_caller]
        fn expect(&mut self, expected: &[(u64, &str)]) {
            let mut told = self.told();
            told.sort_by_key(|(id, _)| *id);
            let told: Vec<_> = told.iter().map(|(id, it)| (*id, &**it)).collect();
            assert_eq!(told, expected);
        }
    }

    const SURPRISE: &str = "node 1 (10.0.0.9) runs the Python original: it cannot be told to stop when another node fails";

    #[test]
    fn one_node_meets_itself() {
        let mut town = Town::of(1);
        town.expect(&[(HOST, "ready 0+2")]);
        town.host(Roster::finish);
        town.expect(&[(HOST, "over")]);
    }

    #[test]
    fn nodes_meet_and_part() {
        let mut town = Town::of(3);
        town.join(2, party(2, 3, 4));
        town.expect(&[]);
        town.join(1, party(1, 3, 1));
        town.expect(&[(HOST, "ready 0+7"), (1, "ready 2+7"), (2, "ready 3+7")]);
        town.guest(1, Guest::finish);
        town.host(Roster::finish);
        town.expect(&[]);
        town.guest(2, Guest::finish);
        town.expect(&[(1, "over"), (2, "over")]);
        town.leave(1, None);
        town.leave(2, None);
        town.expect(&[(HOST, "over")]);
    }

    #[test]
    fn every_node_tells_the_same_root_cause() {
        let mut town = Town::of(3);
        town.join(1, party(1, 3, 1));
        town.join(2, party(2, 3, 1));
        town.told();
        town.guest(2, |it| it.abort(cause(2, "exit code 7")));
        town.guest(1, |it| it.abort(cause(1, "a consequence")));
        town.host(|it| it.abort(cause(0, "another consequence")));
        let story = "aborted: node 2 (gpu-2): exit code 7";
        town.expect(&[
            (HOST, story),
            (1, story),
            (1, "over"),
            (2, story),
            (2, "over"),
        ]);
        town.leave(1, None);
        town.leave(2, None);
        town.expect(&[(HOST, "over")]);
    }

    #[test]
    fn a_failure_after_others_have_finished_is_everybodys() {
        let mut town = Town::of(2);
        town.join(1, party(1, 2, 1));
        town.told();
        town.guest(1, Guest::finish);
        town.host(|it| it.abort(cause(0, "exit code 7")));
        let story = "aborted: node 0 (gpu-0): exit code 7";
        town.expect(&[(HOST, story), (1, story), (1, "over")]);
    }

    #[test]
    fn a_lost_node_ends_the_run() {
        let mut town = Town::of(3);
        town.join(1, party(1, 3, 1));
        town.join(2, party(2, 3, 1));
        town.told();
        town.leave(1, Some("Connection timed out"));
        let story = "aborted: node 1 (gpu-1): the connection to its launcher was lost: Connection timed out";
        town.expect(&[(HOST, story), (2, story), (2, "over")]);
    }

    #[test]
    fn a_lost_host_ends_the_run() {
        let mut town = Town::of(2);
        town.join(1, party(1, 2, 1));
        town.told();
        town.guest(1, |it| assert!(!it.lost(None)));
        let story = "aborted: node 0 (gpu-0): its launcher ended before its workers had finished";
        town.expect(&[(1, story), (1, "over")]);
    }

    #[test]
    fn before_the_start_nodes_may_come_and_go() {
        let mut town = Town::of(2);
        town.host(Roster::remind);
        town.expect(&[(HOST, "waiting for node 1 of 2 (joined: 0 gpu-0)")]);
        let mut town = Town::of(3);
        town.join(1, party(1, 3, 1));
        town.leave(1, None);
        town.join(7, party(1, 3, 1));
        town.guest(7, |it| assert!(it.greeted()));
        town.join(2, party(2, 3, 1));
        let left = "node 1 (gpu-1) has left before the start";
        town.expect(&[
            (HOST, left),
            (HOST, "ready 0+4"),
            (2, "ready 3+4"),
            (7, "ready 2+4"),
        ]);
        let mut lonely = Guest::new(party(1, 2, 1), "main", "n".into());
        lonely.connected();
        assert!(lonely.lost(None));
    }

    #[test]
    fn who_waits_is_told_for_whom() {
        let mut town = Town::of(9);
        town.join(2, party(2, 9, 1));
        town.host(Roster::remind);
        let story = "waiting for nodes 1, 3-8 of 9 (joined: 0 gpu-0, 2 gpu-2)";
        town.expect(&[(HOST, story), (2, story)]);
        town.host(|it| it.give_up(900));
        let story =
            "failed to start: waited 900 s for nodes 1, 3-8 of 9 (joined: 0 gpu-0, 2 gpu-2)";
        let theirs = format!("aborted: node 0 (gpu-0): {story}");
        town.expect(&[(HOST, story), (2, &theirs), (2, "over")]);
        let mut town = Town::of(2);
        town.join(1, party(1, 2, 1));
        town.told();
        town.host(Roster::finish);
        town.host(Roster::remind);
        town.expect(&[(HOST, "waiting for the workers of node 1 of 2 to end")]);
    }

    #[track_caller]
    fn refused(guest: Party, why: &str) {
        let mut town = Town::of(3);
        town.join(1, party(1, 3, 1));
        town.join(2, guest);
        let theirs = format!("failed to join: node 0 refuses: {why}");
        let ours = format!("refused a node: {why}");
        town.expect(&[(HOST, &ours), (2, &theirs), (2, "over")]);
    }

    #[test]
    fn who_does_not_belong_is_refused_with_both_sides_values() {
        refused(
            party(1, 3, 1),
            "node rank 1 is taken twice, by gpu-1 and by gpu-1",
        );
        refused(
            party(0, 3, 1),
            "node rank 0 is taken twice, by gpu-0 and by gpu-0",
        );
        let range = "node 3 (gpu-3) is out of range: node ranks go from 0 to 2";
        refused(party(3, 3, 1), range);
        refused(
            party(2, 4, 1),
            "node 2 (gpu-2) was started with num-nodes 4, node 0 (gpu-0) was started with num-nodes 3",
        );
        let script = Party {
            script: "other.py".into(),
            ..party(2, 3, 1)
        };
        refused(
            script,
            "node 2 (gpu-2) runs `other.py`, node 0 (gpu-0) runs `train.py`",
        );
        let launcher = Party {
            launcher: "2.0.0".into(),
            ..party(2, 3, 1)
        };
        refused(
            launcher,
            "node 2 (gpu-2) runs fabric 2.0.0, node 0 (gpu-0) runs fabric 1.0.0",
        );
        let token = Party {
            token: Some("x".into()),
            ..party(2, 3, 1)
        };
        refused(
            token,
            "node 2 (gpu-2) has another run token than node 0 (gpu-0)",
        );
        refused(party(2, 3, 0), "its greeting cannot be read");
    }

    #[test]
    fn strangers_cannot_end_a_run() {
        let mut town = Town::of(2);
        town.join(1, party(1, 2, 1));
        town.told();
        let mail = Mail::Failed(cause(1, "forged")).to_json();
        town.set(9, "/none/fabric/guessed/from/1", &mail);
        // With the token, but from another connection than node 1's.
        town.set(9, "/none/fabric/t0ken/from/1", &mail);
        town.set(9, "/none/torchelastic/agent/terminal_state1", "1");
        town.set(9, "/none/torchelastic/role_info/1", "nonsense");
        town.expect(&[(
            HOST,
            "refused a node: node 1 (10.0.0.9) says nothing that can be read",
        )]);
    }

    const PYTHON: &str = r#"{"role": "default", "rank": 1, "local_world_size": 4}"#;

    #[test]
    fn an_agent_of_torch_takes_part() {
        let mut town = Town::of(2);
        town.set(1, "/none/torchelastic/role_info/1", PYTHON);
        town.expect(&[(HOST, SURPRISE), (HOST, "ready 0+6")]);
        assert_eq!(
            town.value("/none/torchelastic/assigned_ranks/1"),
            Some("[2, 6, 2, 6]")
        );
        town.host(Roster::finish);
        let key = Bytes::from(b"/none/torchelastic/agent/terminal_state/num_members");
        town.ask(1, Request::Add { key, delta: 1 });
        assert_eq!(town.answers[&1], 2_i64.to_le_bytes());
        let last = "/none/torchelastic/agent/terminal_state/last_member";
        assert_eq!(town.value(last), Some("<val_ignored>"));
        town.expect(&[]);
        town.leave(1, None);
        town.expect(&[(HOST, "over")]);
    }

    #[test]
    fn an_agent_of_torch_before_2_4_takes_part() {
        let mut town = Town::of(2);
        town.set(1, "/none/torchelastic/role_info1", PYTHON);
        town.set(1, "/none/torchelastic/role_info1.FIN", "FIN");
        town.expect(&[(HOST, SURPRISE), (HOST, "ready 0+6")]);
        let info = town.value("/none/torchelastic/role_info0");
        assert_eq!(
            info,
            Some(r#"{"local_world_size":2,"rank":0,"role":"default"}"#)
        );
        assert_eq!(town.value("/none/MASTER_ADDR"), Some("main"));
        assert_eq!(town.value("/none/MASTER_PORT"), Some("29400"));
        town.set(1, "/none/torchelastic/agent/terminal_state1", "1");
        town.host(Roster::finish);
        assert_eq!(
            town.value("/none/torchelastic/agent/terminal_state0"),
            Some("0")
        );
        town.leave(1, None);
        town.expect(&[(HOST, "over")]);
    }

    #[test]
    fn an_agent_of_torch_that_leaves_early_ends_the_run() {
        let mut town = Town::of(2);
        town.set(1, "/none/torchelastic/role_info/1", PYTHON);
        town.told();
        town.leave(1, None);
        let story =
            "aborted: node 1 (10.0.0.9): its launcher ended before its workers had finished";
        town.expect(&[(HOST, story), (HOST, "over")]);
    }

    #[test]
    fn a_second_agent_of_torch_with_the_same_rank_is_closed() {
        let mut town = Town::of(3);
        town.set(1, "/none/torchelastic/role_info/1", PYTHON);
        town.set(2, "/none/torchelastic/role_info/1", PYTHON);
        let why = "refused a node: node rank 1 is taken twice, by 10.0.0.9 and by 10.0.0.9";
        town.expect(&[(HOST, SURPRISE), (HOST, why)]);
    }

    const AT_TORCH: &str = "node 0 runs the Python original: nodes cannot tell each other to stop";

    #[test]
    fn a_guest_does_as_agents_of_torch_do() {
        let mut town = Town::default();
        town.join(1, party(1, 2, 4));
        assert!(town.guests[&1].must_ask_again());
        assert_eq!(town.value("init/"), Some("1"));
        town.set(HOST, "/none/torchelastic/role_info/0", PYTHON);
        town.guest(1, Guest::ask_again);
        town.set(HOST, "/none/torchelastic/assigned_ranks/1", "[3, 7, 3, 7]");
        town.expect(&[(1, AT_TORCH), (1, "ready 3+7")]);
        town.guest(1, Guest::finish);
        let exit = "/none/torchelastic/agent/terminal_state";
        assert_eq!(town.value(&format!("{exit}/num_members")), Some("1"));
        town.expect(&[]);
        town.set(HOST, &format!("{exit}/last_member"), "<val_ignored>");
        town.expect(&[(1, "over")]);
    }

    #[test]
    fn the_last_guest_opens_torchs_exit_barrier() {
        let mut town = Town::default();
        town.set(HOST, "/none/torchelastic/role_info/0", PYTHON);
        town.join(1, party(1, 2, 4));
        town.set(HOST, "/none/torchelastic/assigned_ranks/1", "[3, 7, 3, 7]");
        town.set(
            HOST,
            "/none/torchelastic/agent/terminal_state/num_members",
            "1",
        );
        town.guest(1, Guest::finish);
        let last = "/none/torchelastic/agent/terminal_state/last_member";
        assert_eq!(town.value(last), Some("<val_ignored>"));
        town.expect(&[(1, AT_TORCH), (1, "ready 3+7"), (1, "over")]);
    }

    #[test]
    fn a_guest_does_as_agents_before_2_4_do() {
        let mut town = Town::default();
        town.set(HOST, "/none/torchelastic/role_info0", PYTHON);
        town.join(1, party(1, 3, 2));
        town.expect(&[(1, AT_TORCH)]);
        town.set(2, "/none/torchelastic/role_info2", PYTHON);
        town.expect(&[(1, "ready 4+10")]);
        assert_eq!(town.value("/none/torchelastic/role_info1.FIN"), Some("FIN"));
        town.guest(1, Guest::finish);
        town.set(HOST, "/none/torchelastic/agent/terminal_state0", "0");
        town.expect(&[]);
        town.set(2, "/none/torchelastic/agent/terminal_state2", "2");
        town.expect(&[(1, "over")]);
        assert_eq!(
            town.value("/none/torchelastic/agent/terminal_state1.FIN"),
            Some("FIN")
        );
    }

    #[test]
    fn a_guest_of_torch_can_only_end_itself() {
        let mut town = Town::default();
        town.join(1, party(1, 2, 4));
        town.guest(1, |it| it.abort(cause(1, "interrupted")));
        town.expect(&[
            (1, AT_TORCH),
            (1, "aborted: node 1 (gpu-1): interrupted"),
            (1, "over"),
        ]);
    }

    #[test]
    fn answers_out_of_place_are_noticed() {
        let mut guest = Guest::new(party(1, 2, 4), "main", "n".into());
        guest.connected();
        assert_eq!(guest.hear(b"HTTP/1.1 400 Bad Request\r\n"), Err(Garbled));
        let mut guest = Guest::new(party(1, 2, 4), "main", "n".into());
        guest.connected();
        assert_eq!(guest.hear(b"\0\0\0\0\0\0\0\0"), Err(Garbled));
    }

    /// A host with 2 workers that may restart so often, and a guest with 1.
    fn restarting(max_restarts: u16) -> Town {
        let party = |node, workers| Party {
            max_restarts,
            ..party(node, 2, workers)
        };
        let mut town = Town::hosted_by(party(0, 2));
        town.join(1, party(1, 1));
        town.told();
        town
    }

    fn failure(node: u32) -> Cause {
        Cause {
            lived: Some(std::time::Duration::from_secs(60)),
            ..cause(node, "exit code 7")
        }
    }

    #[test]
    fn after_a_failure_all_end_and_then_all_start_again() {
        let mut town = restarting(1);
        town.set(9, "/worker/attempt_0/0", "address");
        town.host(Roster::finish);
        town.guest(1, |it| it.abort(failure(1)));
        let restarting = "restarting: node 1 (gpu-1): exit code 7";
        town.expect(&[(HOST, restarting), (1, restarting)]);
        // What fails while it is being ended counts for nothing.
        town.host(|it| it.abort(failure(0)));
        town.host(Roster::renew);
        town.expect(&[]);
        assert_eq!(town.value("/worker/attempt_0/0"), Some("address"));
        town.guest(1, Guest::renew);
        town.expect(&[(HOST, "ready 0+3"), (1, "ready 2+3")]);
        assert_eq!(town.value("/worker/attempt_0/0"), None);
        assert!(town.value(JOINED).is_some());
        town.guest(1, |it| it.abort(failure(1)));
        let aborted = "aborted: node 1 (gpu-1): exit code 7";
        town.expect(&[(HOST, aborted), (1, aborted), (1, "over")]);
    }

    #[test]
    fn who_had_finished_starts_again_and_success_is_that_of_the_last_attempt() {
        let mut town = restarting(3);
        town.guest(1, Guest::finish);
        town.host(|it| it.abort(failure(0)));
        town.guest(1, Guest::renew);
        town.host(Roster::renew);
        town.told();
        town.host(Roster::finish);
        town.expect(&[]);
        town.guest(1, Guest::finish);
        town.expect(&[(1, "over")]);
    }

    #[test]
    fn a_signal_or_a_lost_node_ends_a_restart() {
        let mut town = restarting(3);
        town.host(|it| it.abort(failure(0)));
        town.told();
        town.guest(1, |it| it.abort(cause(1, "stopped by SIGINT")));
        let aborted = "aborted: node 1 (gpu-1): stopped by SIGINT";
        town.expect(&[(HOST, aborted), (1, aborted), (1, "over")]);

        let mut town = restarting(3);
        town.host(|it| it.abort(failure(0)));
        town.told();
        town.leave(1, None);
        let lost = "aborted: node 1 (gpu-1): its launcher ended before its workers had finished";
        town.expect(&[(HOST, lost), (HOST, "over")]);
    }

    #[test]
    fn restarts_are_as_many_on_every_node() {
        let mut town = restarting(3);
        town.join(2, party(1, 2, 1));
        let told = town.told();
        let (_, refused) = &told[0];
        assert!(
            refused.contains("was started with max-restarts 0"),
            "{told:?}"
        );
    }

    #[test]
    fn with_an_agent_of_torch_nothing_is_restarted() {
        let mut town = Town::hosted_by(Party {
            max_restarts: 3,
            ..party(0, 2, 1)
        });
        let info = r#"{"role": "default", "rank": 1, "local_world_size": 1}"#;
        town.set(9, "/none/torchelastic/role_info/1", info);
        let told = town.told();
        assert!(told[0].1.ends_with("; nothing is restarted"), "{told:?}");
        town.host(|it| it.abort(failure(0)));
        let aborted = "aborted: node 0 (gpu-0): exit code 7";
        town.expect(&[(HOST, aborted), (HOST, "over")]);
    }
}
