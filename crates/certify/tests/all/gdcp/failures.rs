//! Stop-failures and recovery (RSSI paper, appendix C.1.2): what was told to a client stays, what
//! is undecided ends, and everybody agrees on both.

use hihooi_certify::certification::{Lsv, SiteId, Timestamp, Transaction};
use hihooi_certify::gdcp::log::{Event as LogEvent, LogManager};
use hihooi_certify::gdcp::manager::Event;
use hihooi_certify::gdcp::message::Record;
use hihooi_certify::gdcp::view::View;
use hihooi_certify::gdcp::{Effect, Limits, Outcome, Refusal};

use super::log;
use super::oracle::{Dice, id, row, small_limits, update};
use super::ring::{self, HOT};

/// Random stops of any number of sites but one, and returns, at any moment.
#[test]
fn a_ring_survives_stops_of_its_sites() {
    let mut ended = 0;
    for seed in 0..96_u64 {
        let mut dice = Dice(seed);
        let size = 2 + dice.index(6);
        let forgets = seed % 2 == 0;
        let limits = if forgets { small_limits() } else { Limits::default() };
        let mut cluster = ring::Cluster::new(u32::try_from(size).expect("small"), limits, forgets);
        let mut alive: Vec<usize> = (0..size).collect();
        for _ in 0..6 {
            for _ in 0..dice.below(400) {
                cluster.happen_at(&alive, HOT, 10, &mut dice);
            }
            let stay: Vec<usize> = alive.iter().copied().filter(|_| !dice.one_in(4)).collect();
            let stay = if stay.is_empty() { vec![alive[0]] } else { stay };
            let back: Vec<usize> =
                (0..size).filter(|site| !stay.contains(site) && dice.one_in(2)).collect();
            cluster.change_view(&stay, &back);
            alive = [stay, back].concat();
        }
        for _ in 0..200 {
            cluster.happen_at(&alive, HOT, 10, &mut dice);
        }
        cluster.finish_at(&alive);
        ended += cluster.judge.told.values().filter(|outcome| outcome.is_none()).count();
    }
    assert!(ended > 500);
}

fn alone(number: u64) -> Transaction {
    let lsv = Lsv::default();
    let (reads, writes) = (vec![row(number)], vec![update(number)]);
    let begin = Timestamp(0);
    Transaction { id: id(0, number), begin, lsv, reads, versions: Vec::new(), writes }
}

fn cluster_with_one_proposal() -> ring::Cluster {
    let mut cluster = ring::Cluster::new(3, Limits::default(), false);
    let transaction = cluster.judge.submit(alone(1), &mut Dice(0));
    cluster.step(0, Event::Submit(transaction));
    cluster
}

fn deliver_next(cluster: &mut ring::Cluster) {
    let site = (0..3).find(|&site| !cluster.links[site].is_empty()).expect("a message");
    let message = cluster.links[site].pop_front().expect("a message");
    cluster.step(site, Event::Receive(message));
}

/// In Algorithm 1 the home of the first proposal in the order tells its client after the first
/// circulation. If it stops then, no survivor has the edges, and the transaction ends with the
/// others that are undecided.
#[test]
fn a_decision_that_is_not_released_can_be_lost_with_its_site() {
    let mut cluster = cluster_with_one_proposal();
    while cluster.decided[0] == Timestamp(0) {
        deliver_next(&mut cluster);
    }
    assert_eq!(cluster.released[0], Timestamp(0), "the client is not told yet");
    cluster.change_view(&[1, 2], &[]);
    cluster.finish_at(&[1, 2]);
    assert!(cluster.judge.decisions.is_empty());
}

/// Once it is released, it is there at every survivor.
#[test]
fn a_decision_that_is_released_stays() {
    let mut cluster = cluster_with_one_proposal();
    while cluster.released[0] == Timestamp(0) {
        deliver_next(&mut cluster);
    }
    cluster.change_view(&[1], &[]);
    cluster.finish_at(&[1]);
    assert_eq!(cluster.judge.decisions[0].outcome, Outcome::Committed);
    cluster.change_view(&[1], &[0, 2]);
    cluster.finish();
}

/// What began before a view started cannot commit in it.
#[test]
fn a_snapshot_of_an_older_view_is_refused() {
    let mut cluster = cluster_with_one_proposal();
    cluster.drain();
    cluster.change_view(&[0, 1, 2], &[]);
    let late = cluster.judge.submit(alone(2), &mut Dice(0));
    cluster.step(0, Event::Submit(late));
    cluster.finish();
    assert_eq!(cluster.judge.decisions.len(), 1);
    let last = cluster.judge.told.last_key_value();
    assert_eq!(last, Some((&id(0, 2), &None)), "refused at home");
}

/// I8: what a site keeps is bounded; beyond, clients are told to come again.
#[test]
fn a_site_that_is_full_refuses() {
    let limits = Limits { pending_max: 2, open_max: 3, ..Limits::default() };
    let mut manager = LogManager::new(SiteId(0), 0, View::first([SiteId(0)]), limits);
    let refusals = |effects: Vec<Effect<Record>>| -> Vec<Refusal> {
        let refusal = |effect| match effect {
            Effect::Refused { refusal, .. } => Some(refusal),
            _ => None,
        };
        effects.into_iter().filter_map(refusal).collect()
    };
    let begin = |number| LogEvent::Begin { id: id(0, number), begin: Timestamp(0) };
    assert_eq!(refusals(manager.step(LogEvent::Submit(alone(1)))), []);
    assert_eq!(refusals(manager.step(LogEvent::Submit(alone(2)))), []);
    assert_eq!(refusals(manager.step(LogEvent::Submit(alone(3)))), [Refusal::Busy]);
    assert_eq!(refusals(manager.step(begin(4))), []);
    assert_eq!(refusals(manager.step(begin(5))), [Refusal::Busy]);
    manager.step(LogEvent::Abandon(id(0, 4)));
    assert_eq!(refusals(manager.step(begin(5))), []);
}

/// Members of a log-driven cluster are killed, suspected rightly and wrongly, and come back; records
/// are lost, doubled and reordered.
#[test]
fn a_log_driven_cluster_survives_stops_of_its_sites() {
    let (mut views, mut ended) = (0, 0);
    for seed in 0..96_u64 {
        let mut dice = Dice(seed);
        let size = 2 + dice.index(6);
        let everyone: Vec<usize> = (0..size).collect();
        let forgets = seed % 2 == 0;
        let limits = if forgets { small_limits() } else { Limits::default() };
        let count = u32::try_from(size).expect("small");
        let mut cluster = log::Cluster::new(count, limits, forgets, seed % 3 * 10);
        let mut alive = everyone.clone();
        for _ in 0..3000 {
            cluster.happen(HOT, 10, &alive, &mut dice);
            let (site, other) = (dice.index(size), dice.index(size));
            match dice.below(400) {
                0 if alive.len() > 1 => alive.retain(|&stays| stays != site),
                1 if !alive.contains(&site) => {
                    cluster.restart(site);
                    alive.push(site);
                }
                2 => cluster.step(alive[0], LogEvent::Suspect(SiteId(other as u32))),
                3 => cluster.step(alive[0], LogEvent::Trust(SiteId(other as u32))),
                _ => {}
            }
        }
        let dead: Vec<usize> = everyone.into_iter().filter(|site| !alive.contains(site)).collect();
        for site in dead {
            cluster.restart(site);
            alive.push(site);
        }
        for &site in &alive {
            for other in 0..count {
                cluster.step(site, LogEvent::Trust(SiteId(other)));
            }
        }
        cluster.finish(&alive);
        assert!(alive.iter().all(|&site| cluster.managers[site].is_member()));
        views += cluster.view.number;
        ended += cluster.judge.decisions.iter().filter(|d| d.outcome == Outcome::Ended).count();
    }
    println!("{views} views, {ended} ended");
    assert!(views > 200 && ended > 100);
}
