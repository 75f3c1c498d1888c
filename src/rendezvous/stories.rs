//! Tests only: what launchers of ours tell each other, from the meeting to the end, and what all of them make of it.

use std::time::Duration;

use super::event::{Cause, Party};
use super::guest::Guest;
use super::keys::JOINED;
use super::message::Mail;
use super::roster::Roster;
use super::town::{HOST, Town, cause, failure, party};

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
    let story =
        "aborted: node 1 (gpu-1): the connection to its launcher was lost: Connection timed out";
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
    let story = "failed to start: waited 900 s for nodes 1, 3-8 of 9 (joined: 0 gpu-0, 2 gpu-2)";
    let theirs = format!("aborted: node 0 (gpu-0): {story}");
    let hint = "hint: start fabric there as well; --join-timeout SECONDS waits longer";
    let ours = format!("{story}\n{hint}");
    town.expect(&[(HOST, &ours), (2, &theirs), (2, "over")]);
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
    let run = Party {
        run_id: "other".into(),
        ..party(2, 3, 1)
    };
    refused(
        run,
        "node 2 (gpu-2) was started with run-id `other`, node 0 (gpu-0) was started with run-id `none`",
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
        "node 2 (gpu-2) has another `FABRIC_TOKEN` than node 0 (gpu-0)",
    );
    refused(party(2, 3, 0), "its greeting cannot be read");
}

#[test]
fn strangers_cannot_end_a_run() {
    let mut town = Town::of(2);
    town.join(1, party(1, 2, 1));
    town.told();
    let mail = Mail::Failed(cause(1, "forged")).to_json();
    town.set(9, "/fabric/guessed/from/1", &mail);
    // With the token, but from another connection than node 1's.
    town.set(9, "/fabric/t0ken/from/1", &mail);
    town.set(9, "/none/torchelastic/agent/terminal_state1", "1");
    town.set(9, "/none/torchelastic/role_info/1", "nonsense");
    town.expect(&[(
        HOST,
        "refused a node: node 1 (10.0.0.9) says nothing that can be read",
    )]);
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
fn a_start_that_fails_twice_alike_is_given_up_on_every_node() {
    let at_start = || Cause {
        lived: Some(Duration::from_secs(1)),
        ..cause(1, "exit code 7")
    };
    let mut town = restarting(9);
    town.guest(1, |it| it.abort(at_start()));
    town.guest(1, Guest::renew);
    town.host(Roster::renew);
    town.told();
    town.guest(1, |it| it.abort(at_start()));
    let why = "the same failure at the start twice in a row: no further attempt is made";
    let aborted = "aborted: node 1 (gpu-1): exit code 7";
    town.expect(&[
        (HOST, why),
        (HOST, aborted),
        (1, why),
        (1, aborted),
        (1, "over"),
    ]);
}
