//! Sites step by step: begins, commits, freshness, hand-over of mastership and recovery (DynaMast
//! paper, sections III and V).

use hihooi_mastering::ids::{PartitionId, SiteId, TxnId};
use hihooi_mastering::record::ChangeKind;
use hihooi_mastering::refresh::Order;
use hihooi_mastering::site::{Effect, Event, Refusal};
use hihooi_mastering::vector::{ClientVector, SiteVector};
use proptest::prelude::*;

use crate::support::{Sites, applied, begun, changes, committed, refused, released};

#[test]
fn a_commit_is_shown_and_acknowledged_only_when_it_is_durable() {
    // I5: what was seen must survive the site.
    let mut sites = Sites::new(2, Order::Causal);
    sites.begin(0, 1, &[0]);
    assert_eq!(sites.commit(0, 1, "x", 0), []);
    assert_eq!(sites.sites[0].vector().to_string(), "[0, 0]");
    let effects = sites.pull(0, 0);
    assert_eq!(applied(&effects), ["x"]);
    assert_eq!(committed(&effects, 1).unwrap().to_string(), "[1, 0]");
}

#[test]
fn a_session_waits_for_its_own_past() {
    // DynaMast III-A: strong-session SI; without the rule, the client would not find its update.
    let mut sites = Sites::new(2, Order::Causal);
    let mut client = ClientVector::zero(2);
    client.committed(&sites.update(0, 1, "x", 0));
    assert_eq!(begun(&sites.begin_after(1, 2, &[], &client), 2), None);
    let effects = sites.pull(1, 0);
    assert_eq!(begun(&effects, 2), Some(SiteVector::of(&[1, 0])));
    // Another session need not wait.
    assert!(begun(&sites.begin(1, 3, &[]), 3).is_some());
}

#[test]
fn a_begin_that_never_becomes_fresh_is_refused() {
    let mut sites = Sites::new(2, Order::Causal);
    let mut client = ClientVector::zero(2);
    client.saw(&SiteVector::of(&[1, 0]));
    sites.begin_after(1, 1, &[], &client);
    assert_eq!(sites.tick(1, 999), []);
    assert_eq!(refused(&sites.tick(1, 1_000), 1), Some(Refusal::NotFresh));
}

#[test]
fn only_the_master_runs_updates_and_only_of_what_was_declared() {
    let mut sites = Sites::new(2, Order::Causal);
    assert_eq!(refused(&sites.begin(1, 1, &[0]), 1), Some(Refusal::NotMaster));
    sites.begin(0, 2, &[0]);
    assert_eq!(refused(&sites.commit(0, 2, "y", 1), 2), Some(Refusal::Undeclared));
    assert_eq!(sites.sites[0].active(), 0);
    assert!(sites.logs[0].is_empty());
}

#[test]
fn a_release_waits_for_writers_whose_updates_the_next_master_then_sees() {
    // DynaMast III-B: the release waits for ongoing writers; the grant, for their updates.
    for order in [Order::Causal, Order::Total] {
        let mut sites = Sites::new(2, order);
        sites.begin(0, 1, &[0]);
        assert_eq!(sites.release(0, 0, 0, 1), []);
        assert_eq!(refused(&sites.begin(0, 2, &[0]), 2), Some(Refusal::NotMaster));
        sites.commit(0, 1, "x", 0);
        let effects = sites.pull(0, 0);
        assert!(committed(&effects, 1).is_some());
        let release = released(&effects).expect("the last writer has left");
        assert_eq!(sites.masters(0), [] as [usize; 0], "in between nobody writes it");
        sites.step(1, Event::Grant { release: release.clone() });
        assert!(sites.logs.iter().flatten().all(|r| r.vector.origin() == SiteId(0)), "must wait");
        let mut effects = sites.pull(1, 0);
        effects.extend(sites.pull(1, 1));
        assert_eq!(applied(&effects), ["x"]);
        let granted = changes(&effects);
        assert_eq!(granted[0].kind, ChangeKind::Granted);
        assert_eq!(sites.masters(0), [1]);
        let snapshot = begun(&sites.begin(1, 3, &[0]), 3).unwrap();
        assert!(snapshot.shows(&release.vector));
    }
}

#[test]
fn doubled_and_late_messages_change_nothing() {
    let mut sites = Sites::new(2, Order::Causal);
    sites.release(0, 0, 0, 1);
    let release = released(&sites.settle()).unwrap();
    sites.step(1, Event::Grant { release: release.clone() });
    sites.step(1, Event::Grant { release: release.clone() });
    sites.settle();
    let records = sites.logs.iter().flatten().count();
    assert_eq!(records, 2);
    // Asked again, both sites tell the newest they know.
    let told = changes(&sites.release(0, 0, 0, 1));
    assert_eq!((told[0].kind, told[0].term.0), (ChangeKind::Granted, 1));
    let told = changes(&sites.step(1, Event::Grant { release: release.clone() }));
    assert_eq!(told[0].kind, ChangeKind::Granted);
    sites.hand_over(0, 1, 1, 0);
    sites.step(1, Event::Grant { release });
    sites.settle();
    assert_eq!(sites.masters(0), [0]);
}

#[test]
fn no_update_is_lost_over_many_hand_overs() {
    let mut sites = Sites::new(3, Order::Causal);
    let mut at = 0;
    for round in 0..9_u64 {
        sites.update(at, round, "x", 0);
        let next = (at + 1) % 3;
        sites.hand_over(0, round, at, next as u16);
        assert_eq!(sites.masters(0), [next]);
        // 3 records a round, and the next master has them all.
        let own = SiteVector::of(&[0, 0, 0]);
        assert_eq!(own.missing(sites.sites[next].vector()), 3 * (round + 1));
        at = next;
    }
}

#[test]
fn an_idle_writer_does_not_hold_a_release_for_ever() {
    let mut sites = Sites::new(2, Order::Causal);
    sites.begin(0, 1, &[0]);
    sites.release(0, 0, 0, 1);
    assert_eq!(sites.tick(0, 29_999), []);
    let effects = sites.sites[0].tick(30_000);
    assert_eq!(refused(&effects, 1), Some(Refusal::TooLong));
    assert!(effects.iter().any(|e| matches!(e, Effect::Append(_))), "the release");
}

#[test]
fn an_append_that_does_not_come_back_is_sent_again() {
    let mut sites = Sites::new(2, Order::Causal);
    sites.begin(0, 1, &[0]);
    sites.commit(0, 1, "x", 0);
    let appends = |effects: Vec<Effect<_>>| effects.len();
    assert_eq!(appends(sites.sites[0].tick(100)), 1);
    sites.pull(0, 0);
    assert_eq!(appends(sites.sites[0].tick(200)), 0);
}

#[test]
fn the_papers_rule_allows_a_long_fork_and_total_order_does_not() {
    // DynaMast III-A promises SI. Two sites commit unrelated updates; each then serves a reader
    // that sees its own and not the other's: no order of the commits explains both.
    let fork = |order| {
        let mut sites = Sites::new(2, order);
        sites.begin(0, 1, &[0]);
        sites.commit(0, 1, "x", 0);
        sites.begin(1, 2, &[1]);
        sites.commit(1, 2, "y", 1);
        let (a, b) = (sites.pull(0, 0), sites.pull(1, 1));
        assert!(committed(&a, 1).is_some() && committed(&b, 2).is_some());
        let one = begun(&sites.begin(0, 3, &[]), 3).unwrap();
        let other = begun(&sites.begin(1, 4, &[]), 4).unwrap();
        !one.covers(&other) && !other.covers(&one)
    };
    assert!(fork(Order::Causal));
    assert!(!fork(Order::Total));
}

#[test]
fn a_restarted_site_finds_mastership_and_vector_in_the_logs() {
    // DynaMast V-C, from nothing and from another replica's data.
    for order in [Order::Causal, Order::Total] {
        for with_copy in [false, true] {
            let mut sites = Sites::new(3, order);
            sites.update(0, 1, "x", 0);
            sites.hand_over(0, 0, 0, 1);
            sites.hand_over(2, 0, 2, 1);
            sites.hand_over(1, 0, 1, 2);
            sites.update(1, 2, "y", 0);
            let before = sites.sites[1].vector().clone();
            let total = sites.logs[0].len() as u64 - 1;
            let (copy, position) = match with_copy {
                // What site 3 has: all but the last commit.
                true => (sites.sites[2].vector().clone(), total),
                false => (SiteVector::zero(3), 0),
            };
            sites.restart(1, &copy, position);
            assert!(sites.sites[1].is_recovering());
            assert_eq!(refused(&sites.begin(1, 3, &[0]), 3), Some(Refusal::Recovering));
            assert!(begun(&sites.begin(1, 4, &[]), 4).is_some(), "reads go on");
            let effects = sites.settle();
            assert!(applied(&effects).contains(&"y"));
            assert_eq!(sites.sites[1].vector(), &before);
            assert_eq!([sites.masters(0), sites.masters(1), sites.masters(2)], [[1], [2], [1]]);
            let next = sites.update(1, 5, "z", 0);
            assert_eq!(next.number(), before.get(SiteId(1)) + 1, "no gap and no doubled number");
        }
    }
}

#[test]
fn a_recovered_site_takes_no_update_before_it_has_what_its_grants_waited_for() {
    // The hole that the paper leaves open: mastership from the site's own log alone would let it
    // write on data that lack the releasing site's last update.
    let mut sites = Sites::new(2, Order::Causal);
    sites.update(0, 1, "x", 0);
    sites.hand_over(0, 0, 0, 1);
    sites.restart(1, &SiteVector::zero(2), 0);
    sites.pull(1, 1);
    assert_eq!(refused(&sites.begin(1, 2, &[0]), 2), Some(Refusal::Recovering));
    assert_eq!(sites.masters(0), [] as [usize; 0]);
    assert_eq!(applied(&sites.pull(1, 0)), ["x"]);
    assert!(begun(&sites.begin(1, 3, &[0]), 3).is_some());
}

#[test]
fn aborts_leave_nothing_behind() {
    let mut sites = Sites::new(2, Order::Causal);
    sites.begin(0, 1, &[0]);
    sites.release(0, 0, 0, 1);
    sites.step(0, Event::Abort { txn: TxnId(1) });
    assert!(released(&sites.settle()).is_some());
    assert!(sites.logs[0].iter().all(|r| r.change().is_some()));
    let mut client = ClientVector::zero(2);
    client.saw(&SiteVector::of(&[9, 9]));
    sites.begin_after(1, 2, &[], &client);
    sites.step(1, Event::Abort { txn: TxnId(2) });
    assert_eq!(sites.tick(1, 5_000), [], "it no longer waits");
}

#[test]
fn a_transaction_that_wrote_nothing_takes_no_number() {
    let mut sites = Sites::new(2, Order::Causal);
    sites.begin(0, 1, &[0]);
    let event = Event::Commit { txn: TxnId(1), writes: None, touched: vec![] };
    assert_eq!(sites.step(0, event), [Effect::Committed { txn: TxnId(1), vector: None }]);
    assert!(sites.logs[0].is_empty());
    assert!(!sites.sites[0].mastership().is_master(PartitionId(1)));
}

proptest! {
    /// Equation 1 over random runs: wherever and in whatever order records arrive, every applied
    /// record has its dependencies, no slot has a gap, and in the end all sites are equal.
    #[test]
    fn any_arrival_order_respects_the_update_application_rule(
        choices in prop::collection::vec((0..3_usize, 0..3_usize, any::<bool>()), 1..80),
        total in any::<bool>(),
    ) {
        let mut sites = Sites::new(3, if total { Order::Total } else { Order::Causal });
        for (n, (site, origin, update)) in choices.into_iter().enumerate() {
            let before = sites.sites[site].vector().clone();
            if update {
                sites.begin(site, n as u64, &[site as u32]);
                sites.commit(site, n as u64, "w", site as u32);
            }
            let mut at = before;
            for effect in sites.pull(site, origin) {
                if let Effect::Apply { vector, .. } = effect {
                    let origin = vector.origin();
                    prop_assert_eq!(at.get(origin) + 1, vector.number());
                    prop_assert!((0..3).map(SiteId).all(|k| k == origin || at.get(k) >= vector.get(k)));
                    at.raise_to_commit(&vector);
                }
            }
        }
        sites.settle();
        let all: usize = sites.logs.iter().map(Vec::len).sum();
        for site in &sites.sites {
            prop_assert_eq!(site.vector(), sites.sites[0].vector());
            prop_assert_eq!(SiteVector::zero(3).missing(site.vector()), all as u64);
        }
    }
}
