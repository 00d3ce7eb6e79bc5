//! The site selector step by step: Algorithm 1, reads, retries, queues, bounds, and its own
//! recovery (DynaMast paper, sections III-B, IV-B, V-B and V-C).

use hihooi_mastering::ids::{ClientId, PartitionId, SiteId, Term};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::{Change, ChangeKind};
use hihooi_mastering::selector::config::{SelectorConfig, Weights};
use hihooi_mastering::selector::{Effect, Event, REQUESTS_MAX, Refusal, RequestId, Selector};
use hihooi_mastering::vector::{ClientVector, SiteVector, TransactionVector};

const SITES: usize = 3;

/// Partition n is at home at site n mod 3. Nothing is weighed, so site 1 wins every tie.
fn config() -> SelectorConfig {
    let mut config = SelectorConfig::new(SITES, 9, Homes::RoundRobin);
    config.weights = Weights { balance: 0.0, delay: 0.0, intra: 0.0, inter: 0.0 };
    config
}

fn route(selector: &mut Selector, request: u64, writes: &[u32]) -> Vec<Effect> {
    route_seen(selector, request, writes, &ClientVector::zero(SITES), 0)
}

fn route_seen(
    selector: &mut Selector,
    request: u64,
    writes: &[u32],
    seen: &ClientVector,
    random: u64,
) -> Vec<Effect> {
    selector.step(Event::Route {
        request: RequestId(request),
        client: ClientId(request),
        seen: seen.clone(),
        writes: writes.iter().copied().map(PartitionId).collect(),
        random,
    })
}

fn vector(origin: u16, counts: [u64; SITES]) -> TransactionVector {
    let number = counts[usize::from(origin)];
    TransactionVector::commit(&SiteVector::of(&counts), SiteId(origin), number)
}

fn released(partition: u32, term: u64, from: u16, to: u16, counts: [u64; SITES]) -> Change {
    let kind = ChangeKind::Released { to: SiteId(to) };
    let (partition, term) = (PartitionId(partition), Term(term));
    Change { partition, term, kind, vector: vector(from, counts) }
}

fn granted(partition: u32, term: u64, at: u16, counts: [u64; SITES]) -> Change {
    let (partition, term) = (PartitionId(partition), Term(term));
    Change { partition, term, kind: ChangeKind::Granted, vector: vector(at, counts) }
}

fn ask_release(site: u16, partition: u32, term: u64, to: u16) -> Effect {
    let (site, to) = (SiteId(site), SiteId(to));
    Effect::Release { site, partition: PartitionId(partition), term: Term(term), to }
}

fn routed(request: u64, site: u16, floor: [u64; SITES], moved: u32) -> Effect {
    let (request, site, floor) = (RequestId(request), SiteId(site), SiteVector::of(&floor));
    Effect::Routed { request, site, floor, moved }
}

fn refused(request: u64, why: Refusal) -> Effect {
    Effect::Refused { request: RequestId(request), why }
}

#[test]
fn what_one_site_masters_goes_there_without_a_move() {
    let mut selector = Selector::new(config());
    assert_eq!(route(&mut selector, 1, &[4, 1, 7, 4]), [routed(1, 1, [0, 0, 0], 0)]);
    assert_eq!(selector.pending(), (0, 0));
}

#[test]
fn algorithm_1() {
    // Releases go out in parallel; each grant follows its own release at once; the transaction
    // begins on the maximum of what the grants answered.
    let mut selector = Selector::new(config());
    let effects = route(&mut selector, 1, &[0, 1, 2]);
    assert_eq!(effects, [ask_release(1, 1, 0, 0), ask_release(2, 2, 0, 0)]);
    let release = released(2, 0, 2, 0, [0, 0, 5]);
    let effects = selector.step(Event::Changed(release.clone()));
    assert_eq!(effects, [Effect::Grant { site: SiteId(0), release }]);
    let effects = selector.step(Event::Changed(granted(2, 1, 0, [1, 0, 5])));
    assert_eq!(effects, [], "one is missing");
    selector.step(Event::Changed(released(1, 0, 1, 0, [0, 7, 0])));
    let effects = selector.step(Event::Changed(granted(1, 1, 0, [2, 7, 5])));
    assert_eq!(effects, [routed(1, 0, [2, 7, 5], 2)]);
    assert_eq!(selector.statistics().per_site(), [3, 0, 0], "their load moved along");
    assert_eq!(route(&mut selector, 2, &[0, 1, 2]), [routed(2, 0, [0, 0, 0], 0)], "amortised");
}

#[test]
fn others_profit_from_a_move_that_someone_else_began() {
    // DynaMast III-B: clients begin as soon as their write set is brought together.
    let mut selector = Selector::new(config());
    route(&mut selector, 1, &[0, 1, 2]);
    assert_eq!(route(&mut selector, 2, &[0, 1]), []);
    selector.step(Event::Changed(released(1, 0, 1, 0, [0, 7, 0])));
    let effects = selector.step(Event::Changed(granted(1, 1, 0, [1, 7, 0])));
    assert_eq!(effects, [routed(2, 0, [1, 7, 0], 0)], "the first still waits for p2");
}

#[test]
fn what_is_not_answered_is_asked_again_and_doubled_answers_do_no_harm() {
    let mut selector = Selector::new(config());
    route(&mut selector, 1, &[0, 1]);
    assert_eq!(selector.tick(49), []);
    assert_eq!(selector.tick(50), [ask_release(1, 1, 0, 0)]);
    let release = released(1, 0, 1, 0, [0, 1, 0]);
    selector.step(Event::Changed(release.clone()));
    assert_eq!(selector.step(Event::Changed(release.clone())), []);
    assert_eq!(selector.tick(99), []);
    assert_eq!(selector.tick(100), [Effect::Grant { site: SiteId(0), release: release.clone() }]);
    let grant = granted(1, 1, 0, [1, 1, 0]);
    assert_eq!(selector.step(Event::Changed(grant.clone())).len(), 1);
    assert_eq!(selector.step(Event::Changed(grant)), []);
    assert_eq!(selector.step(Event::Changed(release)), [], "old news");
    assert_eq!(selector.master(PartitionId(1)), SiteId(0));
}

#[test]
fn reads_go_to_a_random_site_that_is_fresh_for_the_session() {
    // DynaMast IV-B.
    let mut selector = Selector::new(config());
    for (site, vector) in [(0, [3, 1, 0]), (1, [1, 1, 0]), (2, [3, 1, 2])] {
        selector.step(Event::Vector { site: SiteId(site), vector: SiteVector::of(&vector) });
    }
    let mut seen = ClientVector::zero(SITES);
    seen.saw(&SiteVector::of(&[2, 1, 0]));
    let mut at =
        |seen: &ClientVector, random| match route_seen(&mut selector, 1, &[], seen, random)[..] {
            [Effect::Routed { site, .. }] => site.0,
            ref other => panic!("{other:?}"),
        };
    assert_eq!([at(&seen, 0), at(&seen, 1), at(&seen, 2)], [0, 2, 0]);
    let none = ClientVector::zero(SITES);
    assert_eq!([at(&none, 0), at(&none, 1), at(&none, 2)], [0, 1, 2]);
    // Nobody is known to be fresh enough: the one that lacks least, which will wait.
    seen.saw(&SiteVector::of(&[2, 9, 2]));
    assert_eq!(at(&seen, 1), 2);
}

#[test]
fn a_lagging_site_is_not_chosen() {
    // Departure from equation 8 as printed, by which the delay would attract.
    let mut config = config();
    config.weights.delay = 1.0;
    let mut selector = Selector::new(config);
    for (site, vector) in [(0, [0, 0, 0]), (1, [4, 4, 0]), (2, [4, 2, 0])] {
        selector.step(Event::Vector { site: SiteId(site), vector: SiteVector::of(&vector) });
    }
    let writes = [PartitionId(1), PartitionId(2)];
    let seen = ClientVector::zero(SITES);
    let delays: Vec<f64> =
        selector.factors(&writes, &seen).iter().map(|f| f.refresh_delay).collect();
    assert_eq!(delays, [8.0, 0.0, 2.0]);
    assert_eq!(selector.best_site(&writes, &seen), Some(SiteId(1)));
}

#[test]
fn ties_go_to_the_lowest_site_that_is_up() {
    let mut selector = Selector::new(config());
    let (writes, seen) = ([PartitionId(1), PartitionId(2)], ClientVector::zero(SITES));
    assert_eq!(selector.best_site(&writes, &seen), Some(SiteId(0)));
    selector.step(Event::Down(SiteId(0)));
    assert_eq!(selector.best_site(&writes, &seen), Some(SiteId(1)));
    assert_eq!(route(&mut selector, 1, &[0, 1]), [refused(1, Refusal::SiteDown)]);
    let up = Event::Up { site: SiteId(0), vector: SiteVector::zero(SITES) };
    selector.step(up);
    assert_eq!(route(&mut selector, 2, &[0, 1]), [ask_release(1, 1, 0, 0)]);
}

#[test]
fn partitions_of_a_routed_transaction_stay_until_it_began() {
    let mut selector = Selector::new(config());
    route(&mut selector, 1, &[1]);
    assert_eq!(route(&mut selector, 2, &[0, 1]), [], "p1 is pinned");
    let effects = selector.step(Event::Began { request: RequestId(1) });
    assert_eq!(effects, [ask_release(1, 1, 0, 0)]);
    // Without the word of the client, after a time.
    let mut selector = Selector::new(config());
    route(&mut selector, 1, &[1]);
    route(&mut selector, 2, &[0, 1]);
    assert_eq!(selector.tick(19), []);
    assert_eq!(selector.tick(20), [ask_release(1, 1, 0, 0)]);
}

#[test]
fn a_stream_of_transactions_that_need_no_move_does_not_starve_one_that_does() {
    let mut selector = Selector::new(config());
    route(&mut selector, 1, &[1]);
    route(&mut selector, 2, &[0, 1]);
    assert_eq!(route(&mut selector, 3, &[1]).len(), 1, "goes on, but pins nothing");
    let effects = selector.step(Event::Began { request: RequestId(1) });
    assert_eq!(effects, [ask_release(1, 1, 0, 0)]);
}

#[test]
fn moves_for_overlapping_write_sets_happen_in_order_of_arrival() {
    let mut selector = Selector::new(config());
    route(&mut selector, 1, &[0, 1]);
    route(&mut selector, 2, &[1, 2]);
    assert_eq!(route(&mut selector, 3, &[2, 3]), [], "p2 is claimed by the second");
    assert_eq!(route(&mut selector, 4, &[4, 5]).len(), 2, "has nothing to do with them");
}

#[test]
fn what_cannot_be_routed_is_refused() {
    let mut selector = Selector::new(config());
    assert_eq!(route(&mut selector, 1, &[9]), [refused(1, Refusal::BadWriteSet)]);
    route(&mut selector, 2, &[0, 1]);
    assert_eq!(selector.tick(999).len(), 1);
    assert_eq!(selector.tick(1_000), [refused(2, Refusal::TooLong)]);
    for n in 0..REQUESTS_MAX as u64 {
        assert_eq!(route(&mut selector, 10 + n, &[1, 0]), []);
    }
    assert_eq!(route(&mut selector, 9_999, &[1, 0]), [refused(9_999, Refusal::Busy)]);
    (0..3).for_each(|site| drop(selector.step(Event::Down(SiteId(site)))));
    assert_eq!(route(&mut selector, 5, &[]), [refused(5, Refusal::SiteDown)]);
}

/// p1 went from S2 to S1 and on to S3; p2 is released to S1 and not yet taken.
fn past() -> Vec<Change> {
    vec![
        released(1, 0, 1, 0, [0, 1, 0]),
        granted(1, 1, 0, [1, 1, 0]),
        released(1, 1, 0, 2, [2, 1, 0]),
        granted(1, 2, 2, [2, 1, 1]),
        released(2, 0, 2, 0, [0, 0, 2]),
    ]
}

#[test]
fn a_new_selector_learns_masters_from_the_logs_in_whatever_order_it_reads_them() {
    // DynaMast V-C, where the order between logs of different sites is left open: p1's releases
    // and grants stand in three logs. Read site by site, the last word would be S2's release.
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 2, 0, 3, 4], [3, 4, 0, 1, 2]] {
        let mut selector = Selector::recovering(config());
        let changes = past();
        for index in order {
            assert_eq!(selector.step(Event::Changed(changes[index].clone())), []);
        }
        assert_eq!(route(&mut selector, 1, &[1]), [], "waits for the end of recovery");
        let effects = selector.step(Event::Recovered);
        let resumed = Effect::Grant { site: SiteId(0), release: changes[4].clone() };
        assert_eq!(
            effects,
            [resumed, routed(1, 2, [2, 1, 1], 0)].map(|e| match e {
                Effect::Routed { request, site, moved, .. } => {
                    let floor = SiteVector::zero(SITES);
                    Effect::Routed { request, site, floor, moved }
                }
                other => other,
            })
        );
        let effects = selector.step(Event::Changed(granted(2, 1, 0, [3, 1, 2])));
        assert_eq!(effects, []);
        assert_eq!(selector.master(PartitionId(2)), SiteId(0));
    }
}

#[test]
fn a_selector_follows_what_another_one_did_behind_its_back() {
    // It wants p1 at S1; the site had already released it to S3.
    let mut selector = Selector::new(config());
    assert_eq!(route(&mut selector, 1, &[0, 1]), [ask_release(1, 1, 0, 0)]);
    let theirs = released(1, 0, 1, 2, [0, 1, 0]);
    let effects = selector.step(Event::Changed(theirs.clone()));
    assert_eq!(effects, [Effect::Grant { site: SiteId(2), release: theirs }]);
    let effects = selector.step(Event::Changed(granted(1, 1, 2, [0, 1, 1])));
    assert_eq!(effects, [ask_release(2, 1, 1, 0)], "and asks again from there");
}
