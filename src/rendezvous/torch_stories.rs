//! Tests only: the same where agents of torch are among the nodes.

use super::event::Party;
use super::guest::Guest;
use super::keys::JOINED;
use super::protocol::{Bytes, Request};
use super::roster::Roster;
use super::town::{HOST, Town, cause, failure, party};

const SURPRISE: &str =
    "node 1 (10.0.0.9) runs the Python original: it cannot be told to stop when another node fails";

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
    let story = "aborted: node 1 (10.0.0.9): its launcher ended before its workers had finished";
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

/// With TORCH_ELASTIC_WORKER_IDENTICAL.
fn identical(node: u32, num_nodes: u32, workers: u32) -> Party {
    Party {
        identical: true,
        ..party(node, num_nodes, workers)
    }
}

/// An agent that only counts itself, as does each of its workers.
fn count_in(town: &mut Town, client: u64) {
    let key = JOINED.into();
    town.ask(client, Request::Add { key, delta: 1 });
}

#[test]
fn agents_that_do_not_say_who_they_are_take_the_places_that_are_left() {
    let mut town = Town::hosted_by(identical(0, 3, 2));
    count_in(&mut town, 1);
    // One of its workers.
    count_in(&mut town, 9);
    town.expect(&[]);
    town.join(2, party(1, 3, 2));
    let surprise = SURPRISE.replace("node 1", "node 2");
    town.expect(&[(HOST, &surprise), (HOST, "ready 0+6"), (2, "ready 2+6")]);
    town.host(Roster::finish);
    town.guest(2, Guest::finish);
    let key = Bytes::from(b"/none/torchelastic/agent/terminal_state/num_members");
    town.ask(1, Request::Add { key, delta: 1 });
    town.leave(2, None);
    town.leave(1, None);
    town.expect(&[(HOST, "over"), (2, "over")]);
}

#[test]
fn an_agent_that_says_who_it_is_all_the_same_is_counted_once() {
    let mut town = Town::hosted_by(identical(0, 3, 4));
    count_in(&mut town, 1);
    town.set(1, "/none/torchelastic/role_info/1", PYTHON);
    town.expect(&[(HOST, SURPRISE)]);
    town.leave(1, None);
    town.told();
    count_in(&mut town, 2);
    town.leave(2, None);
    town.join(3, party(2, 3, 4));
    town.expect(&[]);
}

#[test]
fn a_guest_that_may_assume_its_ranks_does_not_wait_for_them() {
    let mut town = Town::default();
    town.join(1, identical(1, 3, 4));
    town.expect(&[(1, AT_TORCH), (1, "ready 4+12")]);
    assert_eq!(town.value("init/"), Some("1"));
    town.guest(1, Guest::finish);
    let exit = "/none/torchelastic/agent/terminal_state";
    assert_eq!(town.value(&format!("{exit}/num_members")), Some("1"));
}

#[test]
fn who_has_another_number_of_workers_is_not_identical() {
    let mut town = Town::hosted_by(identical(0, 2, 2));
    town.join(1, party(1, 2, 3));
    let why = "node 1 (gpu-1) has local world size 3, node 0 (gpu-0) has local world size 2, where `TORCH_ELASTIC_WORKER_IDENTICAL=1` says that all start as many";
    let [ours, theirs] = ["refused a node", "failed to join: node 0 refuses"];
    let told = [ours, theirs].map(|it| format!("{it}: {why}"));
    town.expect(&[(HOST, &told[0]), (1, &told[1]), (1, "over")]);
}
