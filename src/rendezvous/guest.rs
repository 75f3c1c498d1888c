//! A launcher that joins: the side of nodes 1 and up, without a socket.
//!
//! ```text
//!                       +- a host of ours: hello, verdict, then one piece of news after the other
//!   connect, look who --+
//!   hosts               +- torch's agent: init/, role_info, assigned_ranks, exit barrier (as agents do)
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
        self.stage = self.check(self.keys.host(), Stage::Looking);
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
            self.old ^= self.stage == Stage::Looking;
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
            Stage::Ranks if self.host != Host::Ours => self.stage = self.aborted(cause),
            // The host hears of it and tells everybody what the root cause is.
            Stage::NewsComes | Stage::News | Stage::Ranks => {
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
                // In one piece: node 0 may go as soon as the last has been counted, and with it the store.
                let key = self.keys.exits().into();
                self.caller.ask(&Request::Add { key, delta: 1 });
                let keys = vec![self.keys.last_exit().into()];
                self.stage = self.wait(keys, Stage::Exits);
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
        !matches!(self.stage, Stage::Away | Stage::Looking)
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
            (Stage::Looking, Answer::Byte(READY)) => {
                self.set(self.keys.hello(&self.nonce), self.me.to_hello());
                let verdict = self.keys.verdict(&self.nonce);
                self.wait(vec![verdict.into()], Stage::VerdictComes)
            }
            (Stage::Looking, Answer::Byte(NOT_READY)) => {
                let key = JOINED.into();
                self.caller.ask(&Request::Add { key, delta: 1 });
                Stage::Counting
            }
            (Stage::Counting, Answer::Number(1..)) => self.at_torch(),
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
                self.begin(ranks_from_json(&text)?);
                match self.host {
                    Host::Ours => self.next_news(),
                    _ => Stage::Working,
                }
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
            News::Notice(sentence) => self.events.push(Event::Notice(sentence)),
            News::Ready(host) => {
                self.main = host;
                let ranks = Keys::ranks(&self.token, self.me.node);
                return Some(self.get(ranks, Stage::Ranks));
            }
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
        if self.me.identical {
            self.host = Host::Torch;
            let nodes = vec![self.me.as_node(); self.me.num_nodes as usize];
            let mine = ranks(&nodes).into_iter().nth(self.me.node.0 as usize);
            mine.into_iter().for_each(|it| self.begin(it));
            return Stage::Working;
        }
        let info = self.me.as_node().to_role_info(self.me.node);
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
        self.begin(*ranks(&nodes).get(self.me.node.0 as usize)?);
        Some(Stage::Working)
    }

    fn begin(&mut self, ranks: [u32; 4]) {
        self.ready = true;
        self.events.push(Event::Ready(Ready::new(ranks)));
    }

    /// The last one opens the barrier.
    fn counted_out(&mut self, count: i64) -> Stage {
        if count >= i64::from(self.me.num_nodes) {
            self.set(self.keys.last_exit(), "<val_ignored>".into());
        }
        Stage::LastExitComes
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
    use super::super::town::party;
    use super::*;

    #[test]
    fn answers_out_of_place_are_noticed() {
        let mut guest = Guest::new(party(1, 2, 4), "main", "n".into());
        guest.connected();
        assert_eq!(guest.hear(b"HTTP/1.1 400 Bad Request\r\n"), Err(Garbled));
        let mut guest = Guest::new(party(1, 2, 4), "main", "n".into());
        guest.connected();
        assert_eq!(guest.hear(b"\x01\0\0\0\0\0\0\0\0"), Err(Garbled));
    }
}
