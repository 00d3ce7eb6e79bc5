//! The SIPRe protocol in hand-made schedules: the paper's examples (section 4), the mistakes that
//! its figure prints, and what failures do.

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_placement::protocol::{
    Cause, Change, Done, Effect, Event, Item, Limits, ObjectId, Operation, Planted, Proposal,
    Reply, Site,
};

use crate::world::engine::Action::{Add, Draw, Read, Write, Wrong};
use crate::world::engine::Rows;
use crate::world::{self, World, item};

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;
const S1: SiteId = SiteId(1);
const S2: SiteId = SiteId(2);
const S3: SiteId = SiteId(3);

fn row(object: u32) -> Item {
    item(object, 0)
}

fn world_of(sites: &[&[u32]], planted: Planted) -> World {
    World::new(sites, Limits::default(), planted)
}

/// Section 4.1's sites: S1 stores A and B, S2 B and C, S3 A and C.
fn triangle() -> World {
    world_of(&[&[A, B], &[B, C], &[A, C]], Planted::Nothing)
}

fn answered(values: &[i64]) -> Reply<Rows> {
    Reply::Answered(values.to_vec())
}

fn committed(at: u64) -> Reply<Rows> {
    Reply::Committed { at: Timestamp(at) }
}

fn aborted(cause: Cause<Rows>) -> Reply<Rows> {
    Reply::Aborted(cause)
}

/// Commits a write of one row by a client of a site.
fn put(world: &mut World, site: u32, item: Item, value: i64) {
    let txn = world.txn(site);
    assert_eq!(world.ask(txn, vec![Write(item, value)]), answered(&[]));
    assert!(matches!(world.commit(txn), Reply::Committed { .. }));
}

/// Section 4: S1 = {b, c}, S2 = {a, b}, S3 = {a, c}; t1 updates b at S1, t2 updates a and b at S2,
/// concurrently; the total order is t1, t2. Returns the replies and `a` at S2 and S3.
fn three_sites(planted: Planted) -> (Reply<Rows>, Reply<Rows>, i64, i64) {
    let mut world = world_of(&[&[B, C], &[A, B], &[A, C]], planted);
    let (t1, t2) = (world.txn(1), world.txn(2));
    assert_eq!(world.ask(t1, vec![Write(row(B), 1)]), answered(&[]));
    assert_eq!(world.ask(t2, vec![Write(row(A), 2), Write(row(B), 2)]), answered(&[]));
    for txn in [t1, t2] {
        world.step(txn.site, Event::Commit { txn });
    }
    world.settle();
    let (r1, r2) = (world.reply(t1), world.reply(t2));
    (r1, r2, world.value(2, row(A)), world.value(3, row(A)))
}

#[test]
fn certifying_only_at_the_holders_tears_a_transaction() {
    let (r1, r2, at_s2, at_s3) = three_sites(Planted::Nothing);
    assert_eq!((r1, r2), (committed(1), aborted(Cause::WriteConflict)));
    assert_eq!((at_s2, at_s3), (0, 0));
    let (r1, r2, at_s2, at_s3) = three_sites(Planted::HoldersOnly);
    assert_eq!((r1, r2), (committed(1), aborted(Cause::WriteConflict)));
    assert_eq!((at_s2, at_s3), (0, 2), "S3 commits what S1 and S2 abort");
}

/// Two clients of two sites add 1 to the same row, concurrently.
fn two_additions(planted: Planted) -> (usize, i64) {
    let mut world = world_of(&[&[A], &[A]], planted);
    let txns = [world.txn(1), world.txn(2)];
    for txn in txns {
        assert_eq!(world.ask(txn, vec![Add(row(A), 1)]), answered(&[1]));
    }
    for txn in txns {
        world.step(txn.site, Event::Commit { txn });
    }
    world.settle();
    let commits = |txn| usize::from(matches!(world.reply(txn), Reply::Committed { .. }));
    (txns.map(commits).iter().sum(), world.value(1, row(A)))
}

/// Figure 3's `validate` asks for `T_j.ST <= T.CT <= T_j.CT`; section 4.1's text for no concurrent
/// writer of the same object.
#[test]
fn validation_as_printed_loses_updates() {
    assert_eq!(two_additions(Planted::Nothing), (1, 1));
    assert_eq!(two_additions(Planted::PrintedInterval), (2, 1));
}

/// Section 4.1: a client of S1 updates A, then C from what it wrote to A. S3 runs that and must
/// see the change of A.
#[test]
fn a_redirected_operation_sees_its_transactions_changes() {
    let run = |planted| {
        let mut world = world_of(&[&[A, B], &[B, C], &[A, C]], planted);
        let txn = world.txn(1);
        assert_eq!(world.ask(txn, vec![Write(row(A), 7)]), answered(&[]));
        world.ask(txn, vec![Read(row(A)), Add(row(C), 1)])
    };
    assert_eq!(run(Planted::Nothing), answered(&[7, 1]));
    assert_eq!(run(Planted::WithoutChanges), answered(&[0, 1]));
}

/// Section 4.1: changes made elsewhere "are also needed at the coordinator"; and applying the
/// writeset adds only what is missing at a site.
#[test]
fn changes_made_elsewhere_come_back_and_commit_everywhere() {
    let mut world = triangle();
    let txn = world.txn(1);
    assert_eq!(world.ask(txn, vec![Write(row(A), 7)]), answered(&[]));
    assert_eq!(world.ask(txn, vec![Add(row(A), 1), Write(row(C), 5)]), answered(&[8]));
    assert_eq!(world.ask(txn, vec![Add(row(A), 1)]), answered(&[9]), "S1 sees S3's change");
    assert_eq!(world.ask(txn, vec![Read(row(A)), Read(row(C))]), answered(&[9, 5]));
    assert_eq!(world.ask(txn, vec![Add(row(B), 1), Read(row(C))]), answered(&[1, 5]), "S2");
    assert_eq!(world.commit(txn), committed(1));
    for (site, object, value) in [(1, A, 9), (3, A, 9), (1, B, 1), (2, B, 1), (2, C, 5), (3, C, 5)]
    {
        assert_eq!(world.value(site, row(object)), value, "{object} at {site}");
    }
    assert!(world.sites.values().all(|site| site.open() == (0, 0)));
}

/// Section 4.1: "it must read from the same snapshot at all the sites".
#[test]
fn a_transaction_reads_one_snapshot_at_all_sites() {
    let run = |planted| {
        let mut world = world_of(&[&[A, B], &[B, C], &[A, C]], planted);
        let reader = world.txn(1);
        assert_eq!(world.ask(reader, vec![Read(row(A))]), answered(&[0]));
        let writer = world.txn(3);
        assert_eq!(world.ask(writer, vec![Write(row(A), 1), Write(row(C), 1)]), answered(&[]));
        assert_eq!(world.commit(writer), committed(1));
        world.ask(reader, vec![Read(row(C))])
    };
    assert_eq!(run(Planted::Nothing), answered(&[0]));
    assert_eq!(run(Planted::NewestSnapshot), answered(&[1]));
}

/// Read-only transactions commit without the total order (section 4.1), at their snapshot.
#[test]
fn read_only_transactions_need_no_total_order() {
    let mut world = triangle();
    put(&mut world, 1, row(A), 1);
    let txn = world.txn(1);
    assert_eq!(world.ask(txn, vec![Read(row(A)), Read(row(B))]), answered(&[1, 0]));
    assert_eq!(world.ask(txn, vec![Read(row(C))]), answered(&[0]));
    assert_eq!(world.commit(txn), committed(1));
    assert_eq!(world.log.len(), 1);
    assert!(world.sites.values().all(|site| site.open() == (0, 0)), "participants are released");
}

#[test]
fn a_site_that_lags_answers_when_it_has_the_snapshot() {
    let mut world = triangle();
    let writer = world.txn(1);
    assert_eq!(world.ask(writer, vec![Write(row(A), 1)]), answered(&[]));
    world.step(S1, Event::Commit { txn: writer });
    let proposal = world.proposed.pop_front().expect("a proposal");
    world.log.push(proposal);
    assert!(world.deliver(S1), "only S1 has it");
    let reader = world.txn(1);
    world.operation(reader, vec![Read(row(A)), Read(row(C))]);
    assert_eq!(world.network.back().map(|sent| sent.1), Some(S3));
    world.receive(world.network.len() - 1);
    assert!(!world.run(S3, 0), "it waits");
    world.settle();
    assert_eq!(world.reply(reader), answered(&[1, 0]));
}

#[test]
fn an_operation_that_no_living_site_can_run_is_refused() {
    let mut world = triangle();
    let txn = world.txn(1);
    let all = vec![Read(row(A)), Read(row(B)), Read(row(C))];
    assert_eq!(world.ask(txn, all), aborted(Cause::NoHolder));
    let txn = world.txn(1);
    world.step(S1, Event::Down(S3));
    assert_eq!(world.ask(txn, vec![Read(row(A)), Read(row(C))]), aborted(Cause::NoHolder));
    assert!(!Cause::<Rows>::NoHolder.can_retry());
    assert_eq!(world.sites[&S1].open(), (0, 0));
}

#[test]
fn a_wrong_statement_aborts_with_its_message() {
    let mut world = triangle();
    let txn = world.txn(1);
    let reply = world.ask(txn, vec![Read(row(C)), Wrong]);
    assert_eq!(reply, aborted(Cause::Statement(vec![-1])));
    assert!(world.sites.values().all(|site| site.open() == (0, 0)));
}

/// A holder dies while it runs an operation: the client learns why and runs the transaction again,
/// at another holder.
#[test]
fn a_holder_that_fails_aborts_the_operation_it_was_running() {
    let mut world = triangle();
    let txn = world.txn(1);
    world.operation(txn, vec![Write(row(C), 1)]);
    let (_, holder, _) = world.network.back().cloned().expect("a redirect");
    world.network.clear();
    world.crash(holder);
    world.step(S1, Event::Down(holder));
    let cause = Cause::HolderFailed(holder);
    assert!(cause.can_retry());
    assert_eq!(world.reply(txn), aborted(cause));
    put(&mut world, 1, row(C), 1);
    let other = if holder == S2 { 3 } else { 2 };
    assert_eq!(world.value(other, row(C)), 1);
}

/// What a dead site had run for a transaction is not lost: the coordinator has the changes.
#[test]
fn a_transaction_survives_a_site_where_it_ran_before() {
    let mut world = triangle();
    let txn = world.txn(1);
    world.operation(txn, vec![Write(row(C), 1)]);
    let (_, holder, _) = world.network.back().cloned().expect("a redirect");
    world.settle();
    assert_eq!(world.reply(txn), answered(&[]));
    world.crash(holder);
    world.start(holder, world.checkpoints[&Timestamp(0)].clone());
    assert_eq!(
        world.ask(txn, vec![Add(row(C), 1)]),
        answered(&[2]),
        "the changes came along again"
    );
    assert_eq!(world.commit(txn), committed(1));
    assert_eq!((world.value(2, row(C)), world.value(3, row(C))), (2, 2));
}

#[test]
fn a_lost_message_ends_in_a_time_limit() {
    let mut world = triangle();
    let txn = world.txn(1);
    world.operation(txn, vec![Read(row(C))]);
    let (_, holder, _) = world.network.pop_back().expect("a redirect");
    world.settle();
    for _ in 0..20 {
        world.pass(1000);
        world.settle();
    }
    assert_eq!(world.reply(txn), aborted(Cause::HolderSilent(holder)));
}

/// Two transactions wait for each other's row locks at two sites; no database sees it.
#[test]
fn a_deadlock_across_sites_ends_in_a_time_limit() {
    let mut world = world_of(&[&[A], &[B]], Planted::Nothing);
    let (t1, t2) = (world.txn(1), world.txn(2));
    assert_eq!(world.ask(t1, vec![Write(row(A), 1)]), answered(&[]));
    assert_eq!(world.ask(t2, vec![Write(row(B), 2)]), answered(&[]));
    world.operation(t1, vec![Write(row(B), 1)]);
    world.settle();
    world.pass(1000);
    world.operation(t2, vec![Write(row(A), 2)]);
    world.settle();
    assert!(world.replies.is_empty(), "both wait");
    while world.replies.is_empty() {
        world.pass(500);
        world.settle();
    }
    assert_eq!(world.reply(t1), aborted(Cause::HolderSilent(S2)));
    assert_eq!(world.reply(t2), answered(&[]));
    assert_eq!(world.commit(t2), committed(1));
}

/// The coordinator dies: its open transactions are undone; one that is in the total order commits
/// everywhere, though nobody remembers having run it.
#[test]
fn a_coordinator_that_fails_leaves_nothing_half_done() {
    let mut world = triangle();
    let (open, proposed) = (world.txn(1), world.txn(1));
    assert_eq!(world.ask(open, vec![Write(item(C, 1), 1)]), answered(&[]));
    assert_eq!(world.ask(proposed, vec![Write(item(C, 2), 2)]), answered(&[]));
    world.step(S1, Event::Commit { txn: proposed });
    world.crash(S1);
    for site in [S2, S3] {
        world.step(site, Event::Down(S1));
    }
    assert!(world.sites.values().all(|site| site.open() == (0, 0)));
    world.settle();
    for site in [2, 3] {
        assert_eq!(world.value(site, item(C, 1)), 0);
        assert_eq!(world.value(site, item(C, 2)), 2);
    }
    let other = world.txn(2);
    assert_eq!(world.ask(other, vec![Add(item(C, 1), 5)]), answered(&[5]), "no lock is left");
    world.start(S1, world.checkpoints[&Timestamp(0)].clone());
    world.settle();
    let forgotten = Event::Commit { txn: open };
    world.step(S1, forgotten);
    assert_eq!(world.reply(open), aborted(Cause::Unknown));
}

/// Figure 3's `first(op, T)` must not be guessed from what a site remembers: the second half of a
/// transaction would commit without the first.
#[test]
fn a_restarted_coordinator_does_not_begin_a_transaction_in_its_middle() {
    let mut world = triangle();
    let txn = world.txn(1);
    assert_eq!(world.ask(txn, vec![Write(row(A), 1)]), answered(&[]));
    world.crash(S1);
    world.start(S1, world.checkpoints[&Timestamp(0)].clone());
    assert_eq!(world.ask(txn, vec![Write(row(B), 1)]), aborted(Cause::Unknown));
    assert_eq!(world.commit(txn), aborted(Cause::Unknown));
}

/// Without any sign of the coordinator its parts end by themselves.
#[test]
fn a_part_whose_coordinator_is_silent_ends_by_itself() {
    let mut world = triangle();
    let txn = world.txn(1);
    assert_eq!(world.ask(txn, vec![Write(row(C), 1)]), answered(&[]));
    world.crash(S1);
    assert!(world.sites.values().any(|site| site.open().1 == 1));
    world.pass(world.limits.silence_ms_max + 1000);
    assert!(world.sites.values().all(|site| site.open() == (0, 0)));
}

/// A writer that holds row locks and can't commit any more makes way for the certified writeset,
/// and its client learns it with the next request.
#[test]
fn a_certified_writeset_ends_the_transactions_in_its_way() {
    let mut world = triangle();
    let (winner, loser) = (world.txn(2), world.txn(1));
    assert_eq!(world.ask(winner, vec![Write(row(C), 1)]), answered(&[]));
    world.operation(loser, vec![Write(row(A), 2), Write(row(C), 2)]);
    world.settle();
    assert_eq!(world.reply(loser), answered(&[]), "at S3");
    assert_eq!(world.commit(winner), committed(1));
    assert_eq!(world.ask(loser, vec![Read(row(A))]), aborted(Cause::WriteConflict));
    assert_eq!(world.value(3, row(A)), 0);
    assert!(world.sites.values().all(|site| site.open() == (0, 0)));
}

/// Section 4.1: "aborts unused dummy transactions corresponding to old snapshots that will not be
/// needed anymore".
#[test]
fn snapshots_are_closed_when_no_site_needs_them() {
    let mut world = triangle();
    let reader = world.txn(1);
    assert_eq!(world.ask(reader, vec![Read(row(A))]), answered(&[0]));
    for value in 0..5 {
        put(&mut world, 3, row(C), value);
    }
    let settle = |world: &mut World| {
        for _ in 0..3 {
            world.pass(world.limits.report_ms);
            world.settle();
        }
    };
    settle(&mut world);
    assert_eq!(world.sites[&S2].snapshots(), 6, "the reader may still go there");
    assert_eq!(world.sites[&S1].snapshots(), 1, "nothing was applied there");
    assert_eq!(world.ask(reader, vec![Read(row(C))]), answered(&[0]));
    assert_eq!(world.commit(reader), committed(0));
    settle(&mut world);
    assert!(world.sites.values().all(|site| site.snapshots() == 1));
}

#[test]
fn at_the_bound_on_snapshots_old_transactions_abort() {
    let limits = Limits { snapshots_max: 2, ..Limits::default() };
    let mut world = World::new(&[&[A, B], &[B, C], &[A, C]], limits, Planted::Nothing);
    let reader = world.txn(1);
    assert_eq!(world.ask(reader, vec![Read(row(A))]), answered(&[0]));
    for value in 0..3 {
        put(&mut world, 3, row(C), value);
    }
    assert_eq!(world.sites[&S2].snapshots(), 2);
    assert_eq!(world.ask(reader, vec![Read(row(C))]), aborted(Cause::SnapshotTooOld));
    let retried = world.txn(1);
    assert_eq!(world.ask(retried, vec![Read(row(C))]), answered(&[2]));
}

/// What certifiers forget, they forget alike: the bound counts what is in the total order.
#[test]
fn at_the_bound_of_the_certifiers_old_transactions_abort_alike() {
    let limits = Limits { certified_changes_max: 2, ..Limits::default() };
    let mut world = World::new(&[&[A, B], &[B, C], &[A, C]], limits, Planted::Nothing);
    let old = world.txn(1);
    assert_eq!(world.ask(old, vec![Write(row(B), 1)]), answered(&[]));
    for value in 0..3 {
        put(&mut world, 3, row(C), value);
    }
    assert_eq!(world.commit(old), aborted(Cause::SnapshotTooOld));
    assert_eq!((world.value(1, row(B)), world.value(2, row(B))), (0, 0));
}

#[test]
fn bounds_on_open_work_refuse() {
    let limits = Limits {
        transactions_max: 1,
        parts_max: 1,
        changes_max: 2,
        waiting_max: 0,
        ..Limits::default()
    };
    let mut world = World::new(&[&[A], &[A, B]], limits, Planted::Nothing);
    let (t1, t2) = (world.txn(1), world.txn(1));
    assert_eq!(world.ask(t1, vec![Write(row(A), 1)]), answered(&[]));
    assert_eq!(world.ask(t2, vec![Read(row(A))]), aborted(Cause::Overloaded), "transactions_max");
    let (t3, t4) = (world.txn(2), world.txn(1));
    assert_eq!(world.ask(t3, vec![Read(row(B))]), answered(&[0]));
    let statement = vec![Write(row(A), 2), Write(row(A), 3)];
    assert_eq!(world.ask(t1, statement), aborted(Cause::TooManyChanges));
    assert_eq!(world.ask(t4, vec![Read(row(B))]), aborted(Cause::Overloaded), "parts_max at S2");
    assert_eq!(world.commit(t3), committed(0));
    let writer = world.txn(1);
    assert_eq!(world.ask(writer, vec![Write(row(A), 1)]), answered(&[]));
    world.step(S1, Event::Commit { txn: writer });
    let proposal = world.proposed.pop_front().expect("a proposal");
    world.log.push(proposal);
    world.deliver(S1);
    let ahead = world.txn(1);
    world.operation(ahead, vec![Read(row(B))]);
    while !world.network.is_empty() {
        world.receive(0);
    }
    assert_eq!(world.reply(ahead), aborted(Cause::Overloaded), "waiting_max at S2");
}

/// Messages and proposals may come twice: an operation that runs again leaves nothing behind.
#[test]
fn doubled_messages_and_proposals_do_no_harm() {
    let mut world = triangle();
    let txn = world.txn(1);
    world.operation(txn, vec![Add(row(C), 1)]);
    let redirect = world.network.back().cloned().expect("a redirect");
    world.network.push_back(redirect.clone());
    world.settle();
    assert_eq!(world.reply(txn), answered(&[1]));
    world.step(S1, Event::Commit { txn });
    let proposal = world.proposed.front().cloned().expect("a proposal");
    world.proposed.push_back(proposal);
    world.settle();
    assert_eq!(world.reply(txn), committed(1));
    assert_eq!(world.log.len(), 2);
    world.network.push_back(redirect);
    world.settle();
    assert_eq!((world.value(2, row(C)), world.value(3, row(C))), (1, 1));
    world.pass(world.limits.part_idle_ms_max);
    assert!(world.sites.values().all(|site| site.open() == (0, 0)), "what it began again is over");
}

/// A redirect that comes again after the site has lost its part of the transaction runs the
/// statement again, with another result than the one that the coordinator knows.
#[test]
fn what_a_late_message_made_a_site_do_is_undone() {
    for commits_at_once in [false, true] {
        let mut world = world_of(&[&[A], &[B]], Planted::Nothing);
        let txn = world.txn(1);
        world.operation(txn, vec![Draw(row(B))]);
        let redirect = world.network.back().cloned().expect("a redirect");
        world.settle();
        let Reply::Answered(drawn) = world.reply(txn) else { panic!("no answer") };
        world.crash(S2);
        world.start(S2, world.checkpoints[&Timestamp(0)].clone());
        world.network.push_back(redirect);
        world.settle();
        if !commits_at_once {
            assert_eq!(world.ask(txn, vec![Read(row(B))]), answered(&drawn));
        }
        assert_eq!(world.commit(txn), committed(1));
        assert_eq!(world.value(2, row(B)), drawn[0]);
    }
}

/// While an answer of the database is on its way, a row it tells of is committed by another: the
/// database has ended the transaction for that, and the answer counts no more.
#[test]
fn an_answer_that_was_overtaken_by_a_commit_aborts() {
    let catalog = world::catalog(&[&[A], &[A]]);
    let mut site: Site<Rows> = Site::new(S1, catalog, Limits::default());
    let txn = TxnId { site: S1, number: 1 };
    let operation = Operation { objects: vec![ObjectId(A)], statement: vec![Write(row(A), 1)] };
    let effects = site.step(Event::Operation { txn, is_first: true, operation });
    let Some(Effect::Execute { run, .. }) = effects.last() else { panic!("{effects:?}") };
    let changes = |value| vec![Change { item: row(A), value }];
    let winner = TxnId { site: S2, number: 1 };
    let proposal = Proposal { txn: winner, begin: Timestamp(0), changes: changes(2) };
    site.step(Event::Delivered { at: Timestamp(1), proposal });
    let outcome = Ok(Done { answer: vec![], changes: changes(1) });
    let effects = site.step(Event::Executed { run: *run, outcome });
    let reply = aborted(Cause::WriteConflict);
    assert_eq!(effects, [Effect::Rollback { txn }, Effect::Reply { txn, reply }]);
}

/// A lost proposal comes again.
#[test]
fn a_lost_proposal_is_sent_again() {
    let mut world = triangle();
    let txn = world.txn(1);
    assert_eq!(world.ask(txn, vec![Write(row(A), 1)]), answered(&[]));
    world.step(S1, Event::Commit { txn });
    world.proposed.clear();
    world.pass(world.limits.proposal_ms_max);
    world.settle();
    assert_eq!(world.reply(txn), committed(1));
}

/// A site restarts from its own or another site's checkpoint: it applies what it lacks, once, and
/// decides like the others.
#[test]
fn a_site_recovers_from_any_sites_checkpoint() {
    for from in [S3, S2] {
        let mut world = triangle();
        put(&mut world, 1, row(A), 1);
        put(&mut world, 1, row(B), 2);
        let checkpoint = world.sites[&from].checkpoint();
        let durable = world.engine(S3).durable;
        assert_eq!(durable, Timestamp(1), "S3 doesn't hold B");
        let checkpoint =
            if checkpoint.at > durable { world.checkpoints[&durable].clone() } else { checkpoint };
        world.crash(S3);
        let stale = world.txn(1);
        assert_eq!(world.ask(stale, vec![Write(row(A), 9)]), answered(&[]));
        put(&mut world, 2, row(C), 3);
        put(&mut world, 1, row(B), 4);
        world.start(S3, checkpoint);
        world.settle();
        assert_eq!((world.value(3, row(A)), world.value(3, row(C))), (1, 3));
        put(&mut world, 3, row(A), 5);
        assert_eq!(world.commit(stale), aborted(Cause::WriteConflict));
        assert_eq!((world.value(1, row(A)), world.value(3, row(A))), (5, 5));
    }
}

/// While it replays what its database already has, a site takes no transaction.
#[test]
fn a_recovering_site_takes_no_transactions() {
    let mut world = triangle();
    put(&mut world, 1, row(A), 1);
    put(&mut world, 1, row(A), 2);
    world.crash(S1);
    world.start(S1, world.checkpoints[&Timestamp(0)].clone());
    let early = world.txn(1);
    world.operation(early, vec![Read(row(A))]);
    assert_eq!(world.reply(early), aborted(Cause::Recovering));
    world.settle();
    let txn = world.txn(1);
    assert_eq!(world.ask(txn, vec![Read(row(A))]), answered(&[2]));
}
