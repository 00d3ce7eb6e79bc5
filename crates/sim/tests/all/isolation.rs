//! How certification protocols perform on ssibench and TPC-C++ (RSSI paper, section 6, Figure 1,
//! appendix D), and that what they admit there is what they promise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::{Certifier, Decision, Limits, Lsv, Timestamp, Transaction};
use hihooi_sim::isolation::costs::Costs;
use hihooi_sim::isolation::protocol::Protocol::{self, CpRoo, Rsi};
use hihooi_sim::isolation::report::Report;
use hihooi_sim::isolation::sweep::{Point, crossover};
use hihooi_sim::isolation::{Setup, run, run_with};
use hihooi_sim::workload::Workload;
use hihooi_sim::workload::ssibench::{Parameters, Ssibench};
use hihooi_sim::workload::tpccpp::Tpccpp;

const RSSI: Protocol = Protocol::Rssi;
const BY_THE_LETTER: Protocol = Protocol::RssiLetter;

fn setup(clients: usize, read_only: f64) -> Setup {
    Setup { clients, read_only: Some(read_only), seconds: 40.0, ..Setup::default() }
}

/// A run that was made already is not made again: a seed replays it (see
/// [`a_seed_replays_a_run`]), and tests have many in common.
fn ssibench(setup: &Setup, protocol: Protocol) -> Report {
    type Runs = BTreeMap<String, Arc<OnceLock<Report>>>;
    static RUNS: Mutex<Runs> = Mutex::new(Runs::new());
    let key = format!("{setup:?} {protocol:?}");
    // Another test that wants it meanwhile waits for it.
    let made = RUNS.lock().expect("no test panics here").entry(key).or_default().clone();
    made.get_or_init(|| ssibench_anew(setup, protocol)).clone()
}

fn ssibench_anew(setup: &Setup, protocol: Protocol) -> Report {
    run(setup, Ssibench::new(Parameters::default()), protocol)
}

/// Of all attempts, 0 to 1.
fn share(count: u64, report: &Report) -> f64 {
    count as f64 / report.attempts() as f64
}

/// How many times the share of `rssi`'s descending structures that of `cp-roo`'s rw-conflicts is.
fn rw_over_ds(clients: usize, rssi: Protocol) -> f64 {
    let run = |protocol| ssibench(&setup(clients, 0.0), protocol);
    ratio(&run(CpRoo), &run(rssi))
}

fn rw_over_ds_on(parameters: Parameters, clients: usize, rssi: Protocol) -> f64 {
    let run = |protocol| run(&setup(clients, 0.0), Ssibench::new(parameters), protocol);
    ratio(&run(CpRoo), &run(rssi))
}

fn ratio(cp_roo: &Report, rssi: &Report) -> f64 {
    share(cp_roo.aborts().read_impact, cp_roo) / share(rssi.aborts().descending(), rssi)
}

/// RSSI paper, section 6.3 and Figure 1(a): with 80 clients that only write, CP-ROO aborts three
/// times as often as RSSI. By the paper's own rule it is 2.7 times here, with lsv chosen 6.
#[test]
fn on_updates_alone_cp_roo_aborts_for_rw_reasons_three_times_as_often_as_rssi() {
    let ratio = rw_over_ds(80, BY_THE_LETTER);
    assert!((2.5..6.0).contains(&ratio), "{ratio}");
    let chosen = rw_over_ds(80, RSSI);
    assert!((5.0..9.0).contains(&chosen) && chosen > 1.5 * ratio, "{chosen} {ratio}");
}

/// Not in the paper, which prints a ratio for 80 clients only: pairs of edges become as frequent as
/// edges when contention saturates, so the advantage in aborts shrinks.
#[test]
fn the_more_contention_the_closer_are_single_edges_and_pairs() {
    let ratios = [80, 160, 320, 640].map(|clients| rw_over_ds(clients, RSSI));
    println!("{ratios:?}");
    assert!(ratios.is_sorted_by(|few, many| few > many), "{ratios:?}");
    assert!(ratios[1] > 3.0 && ratios[2] < 3.0 && ratios[3] > 1.5, "{ratios:?}");
}

/// The paper doesn't say how many rows are read and written. With fewer, 30 and 10, it is three
/// times at every number of clients of Figure 1.
#[test]
#[ignore = "a minute of simulation; see make simulations"]
fn with_fewer_rows_three_times_holds_up_to_640_clients() {
    let fewer = Parameters { reads: 30, writes: 10, ..Parameters::default() };
    let ratio = rw_over_ds_on(fewer, 640, RSSI);
    assert!((4.0..9.0).contains(&ratio), "{ratio}");
}

/// RSSI paper, section 6.3: on updates alone CP-ROO is saturated at 80 clients and declines, and
/// the gap to RSSI widens.
#[test]
#[ignore = "a minute of simulation; see make simulations"]
fn more_clients_widen_the_gap_between_rssi_and_cp_roo() {
    let throughput = |clients, protocol| ssibench(&setup(clients, 0.0), protocol).throughput;
    let (few, many) = (throughput(80, CpRoo), throughput(640, CpRoo));
    assert!(many < few, "{few} {many}");
    let gap = |clients| throughput(clients, RSSI) / throughput(clients, CpRoo);
    assert!(gap(80) > 1.0 && gap(640) > gap(80) + 0.05, "{} {}", gap(80), gap(640));
    assert!(throughput(80, Rsi) > throughput(80, RSSI));
}

fn point(setup: Setup, rssi: Protocol) -> Point {
    let throughput = |protocol| ssibench(&setup, protocol).throughput;
    let read_only = setup.read_only.expect("a share");
    Point { read_only, leader: throughput(rssi), challenger: throughput(CpRoo) }
}

fn sweep(clients: usize, rssi: Protocol, change: fn(Setup) -> Setup) -> [Point; 5] {
    [0.0, 0.25, 0.5, 0.75, 0.9].map(|share| point(change(setup(clients, share)), rssi))
}

/// RSSI paper, section 6.3: RSSI leads with few queries, both are about equal with half of them,
/// CP-ROO leads with three quarters.
#[test]
#[ignore = "a minute of simulation; see make simulations"]
fn towards_read_only_mixes_cp_roo_overtakes_rssi() {
    for (clients, rssi, earliest, latest) in
        [(80, BY_THE_LETTER, 0.35, 0.65), (320, BY_THE_LETTER, 0.35, 0.65), (80, RSSI, 0.4, 0.65)]
    {
        let points = sweep(clients, rssi, |setup| setup);
        let at = crossover(&points).expect("cp-roo overtakes");
        assert!((earliest..latest).contains(&at), "{clients} clients: at {at}, {points:?}");
        let half = points[2].leader / points[2].challenger;
        assert!((half - 1.0).abs() < 0.06, "{clients} clients: {half} at half");
    }
}

/// With lsv chosen RSSI leads longer, the more so the more it conflicts.
#[test]
#[ignore = "a minute of simulation; see make simulations"]
fn a_chosen_lsv_moves_the_crossover_towards_queries() {
    let at = |rssi| crossover(&sweep(320, rssi, |setup| setup)).expect("cp-roo overtakes");
    let (letter, chosen) = (at(BY_THE_LETTER), at(RSSI));
    assert!(chosen > letter + 0.1 && chosen < 0.85, "{letter} {chosen}");
}

/// Where they cross depends on what the paper doesn't say: clients that don't insist let aborted
/// updates make room for queries; managers that have their own processors don't slow the sites.
#[test]
#[ignore = "a minute of simulation; see make simulations"]
fn the_crossover_moves_with_what_clients_do_and_what_managers_run_on() {
    let at = |change| crossover(&sweep(320, BY_THE_LETTER, change));
    let usual = at(|setup| setup).expect("a crossover");
    let give_up = at(|setup| Setup { retry: false, ..setup }).expect("a crossover");
    assert!((0.2..0.45).contains(&give_up) && give_up < usual, "{give_up} {usual}");
    let own = at(|setup| Setup { own_managers: true, ..setup });
    assert!(own.is_none_or(|own| own > usual + 0.1), "{own:?} {usual}");
}

/// RSSI paper, section 6.3: certification can only be seen on queries alone; there RSI and CP-ROO
/// are equal and RSSI pays.
#[test]
fn queries_alone_pay_for_certification() {
    let setup = setup(320, 1.0);
    let reports = Protocol::ALL.map(|protocol| ssibench(&setup, protocol));
    assert_eq!(reports[0], reports[1]);
    assert!(reports.iter().all(|report| report.abort_share == 0.0));
    let bound = |throughput: f64, most: f64| (0.97..1.01).contains(&(throughput / most));
    let site_ms = 100.0 * setup.costs.read_row_ms / 8.0;
    assert!(bound(reports[0].throughput, 1e3 / site_ms), "{:?}", reports[0]);
    let certified_ms = site_ms + setup.costs.certify_ms;
    assert!(bound(reports[2].throughput, 1e3 / certified_ms), "{:?}", reports[2]);
}

/// RSSI paper, section 6.3: also where CP-ROO has the higher throughput, it aborts more of the
/// writing transactions. RSSI may abort queries, as peaks only: nothing reads what they write.
#[test]
fn rssi_aborts_fewer_writers_and_queries_only_as_peaks() {
    let setup = setup(320, 0.75);
    let (cp_roo, rssi) = (ssibench(&setup, CpRoo), ssibench(&setup, RSSI));
    let aborted =
        |report: &Report| report.write.aborts.total() as f64 / report.write.attempts() as f64;
    assert!(aborted(&rssi) < aborted(&cp_roo), "{} {}", aborted(&rssi), aborted(&cp_roo));
    assert_eq!(cp_roo.read_only.aborts.total(), 0);
    assert_eq!(cp_roo.read_only.ordering_mean_ms, 0.0, "it doesn't order queries");
    let queries = rssi.read_only.aborts;
    assert!(queries.descending_peak > 0 && queries.total() == queries.descending_peak);
}

/// RSSI paper, appendix D.1.2, Table 1: 560 clients that only write take 3,125 ms on average.
#[test]
fn the_costs_give_the_throughput_that_they_were_derived_from() {
    let report = ssibench(&Setup { retry: false, ..setup(560, 0.0) }, Rsi);
    let attempts = report.attempts() as f64 / report.seconds;
    assert!((attempts / (560.0 / 3.125) - 1.0).abs() < 0.12, "{attempts} a second");
}

/// RSSI paper, Table 1: GDCP takes 379 ms of 500 on queries alone, 408 to 514 ms on writers alone;
/// from Little's law 215 transactions a second are made with half queries, 303 with three
/// quarters. Only the first of these went into the costs.
#[test]
fn the_papers_times_in_gdcp_and_its_mixes_follow() {
    let rssi = |read_only| ssibench(&setup(560, read_only), BY_THE_LETTER);
    let queries = rssi(1.0).read_only;
    let part = queries.ordering_mean_ms / queries.response_mean_ms;
    assert!((part - 379.0 / 500.0).abs() < 0.03, "{queries:?}");
    let writers = rssi(0.0).write;
    assert!((408.0..514.0).contains(&writers.ordering_mean_ms), "{writers:?}");
    for (read_only, throughput) in [(0.5, 215.0), (0.75, 303.0)] {
        let report = rssi(read_only);
        assert!((report.throughput / throughput - 1.0).abs() < 0.2, "{report:?}");
    }
}

/// Little's law: clients without think time are all either waiting or answered at once.
#[test]
fn clients_are_throughput_times_response_time() {
    let report = ssibench(&setup(80, 0.5), Rsi);
    let busy = |class: &hihooi_sim::isolation::report::Class| {
        class.commits as f64 * class.response_mean_ms / 1e3 / report.seconds
    };
    let clients = busy(&report.read_only) + busy(&report.write);
    assert!((clients / 80.0 - 1.0).abs() < 0.03, "{clients}");
}

#[test]
fn a_seed_replays_a_run() {
    let report = |seed| {
        let setup = Setup { seed, seconds: 5.0, ..setup(80, 0.25) };
        Protocol::ALL.map(|protocol| ssibench_anew(&setup, protocol))
    };
    assert_eq!(report(3), report(3));
    assert_ne!(report(3), report(4));
}

/// RSSI paper, section 6.2 and appendix D.2: TPC-C++ has so few anomalies that the protocols don't
/// differ; most aborts are ww-conflicts.
#[test]
fn tpccpp_aborts_for_ww_conflicts_whatever_the_protocol() {
    let setup = Setup { seconds: 20.0, ..Setup::default() };
    let reports = Protocol::ALL.map(|protocol| run(&setup, Tpccpp::new(80), protocol));
    for report in &reports {
        let aborts = report.aborts();
        assert!(aborts.write_conflict * 10 > aborts.total() * 9, "{aborts:?}");
        assert!((report.throughput / reports[0].throughput - 1.0).abs() < 0.05, "{report:?}");
    }
}

/// RSSI paper, appendix D.2: few structures, but there are some, which Credit Check causes.
#[test]
fn tpccpp_has_descending_structures_now_and_then() {
    let setup = Setup { clients: 640, retry: false, seconds: 200.0, ..Setup::default() };
    let aborts = run(&setup, Tpccpp::new(20), RSSI).aborts();
    assert!((1..100).contains(&aborts.descending()), "{aborts:?}");
}

/// Keeps what a certifier admitted.
struct Recorder {
    inner: Box<dyn Certifier>,
    admitted: Vec<(Timestamp, Transaction)>,
}

impl Certifier for Recorder {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        let decision = self.inner.certify(transaction);
        if decision.verdict.is_ok() {
            self.admitted.push((decision.at, transaction.clone()));
        }
        decision
    }

    fn collect(&mut self, staleness: Timestamp) {
        self.inner.collect(staleness);
    }

    fn reset(&mut self, at: Timestamp) {
        self.inner.reset(at);
    }

    fn clock(&self) -> Timestamp {
        self.inner.clock()
    }
}

/// Whether the multiversion serialization graph of what was admitted has no cycle (RSSI paper,
/// section 3.1): edges by comparing all with all.
fn serializable(admitted: &[(Timestamp, Transaction)]) -> bool {
    let writes = |from: &Transaction, to: &Transaction| {
        from.reads.iter().any(|read| to.writes.iter().any(|write| read.touched_by(write)))
    };
    let same = |one: &Transaction, other: &Transaction| {
        one.writes.iter().any(|write| other.writes.iter().any(|it| write.same_row(it)))
    };
    let edge = |(at, one): &(Timestamp, Transaction), (to_at, other): &(Timestamp, Transaction)| {
        let wr = *at <= other.begin && writes(other, one);
        let rw = one.begin < *to_at && writes(one, other);
        at != to_at && (wr || rw || at < to_at && same(one, other))
    };
    let mut left: Vec<_> = admitted.iter().collect();
    while !left.is_empty() {
        let before = left.len();
        let sources: Vec<_> = left
            .iter()
            .filter(|to| !left.iter().any(|from| edge(from, to)))
            .map(|(at, _)| *at)
            .collect();
        left.retain(|(at, _)| !sources.contains(at));
        if left.len() == before {
            return false;
        }
    }
    true
}

fn admitted<W: Workload>(
    workload: W,
    protocol: Protocol,
    seed: u64,
    seconds: f64,
) -> Vec<(Timestamp, Transaction)> {
    let setup = Setup { clients: 40, read_only: Some(0.2), seconds, seed, ..Setup::default() };
    let mut recorder = Recorder { inner: protocol.certifier(), admitted: Vec::new() };
    run_with(&setup, workload, &mut recorder, true);
    recorder.admitted
}

/// I2: a snapshot holds what its site has applied, not what is ordered: while the first message is
/// still on its way around the ring, nothing.
#[test]
fn snapshots_hold_only_what_came_around_the_ring() {
    let costs = Costs { hop_ms: 1_000.0, ..Costs::default() };
    let setup = Setup { read_only: Some(0.8), seconds: 5.0, costs, ..Setup::default() };
    let mut recorder = Recorder { inner: CpRoo.certifier(), admitted: Vec::new() };
    run_with(&setup, crowded(), &mut recorder, false);
    assert!(recorder.admitted.len() > 20, "clients go on after queries");
    assert!(recorder.admitted.iter().all(|(_, transaction)| transaction.begin == Timestamp(0)));
}

/// ssibench on few rows, so that cycles are frequent.
fn crowded() -> Ssibench {
    Ssibench::new(Parameters { rows: 400, reads: 10, writes: 2, inserts: 0.5, phantoms: true })
}

/// RSSI paper, theorem 3.1, and the paper's section 6.1: RSSI and CP-ROO are 1-copy serializable,
/// RSI is not. Queries are recorded under CP-ROO too, whose certifier admits all of them.
#[test]
fn what_is_admitted_is_serializable_but_for_rsi() {
    let judge = |protocol, seed| serializable(&admitted(crowded(), protocol, seed, 0.5));
    assert!((1..=4).all(|seed| judge(RSSI, seed)));
    assert!((1..=4).all(|seed| judge(CpRoo, seed)));
    assert!((1..=4).any(|seed| !judge(Rsi, seed)));
}

#[test]
fn tpccpp_stays_serializable_under_rssi() {
    for seed in 1..=3 {
        let admitted = admitted(Tpccpp::new(1), RSSI, seed, 0.5);
        assert!(admitted.len() > 50, "{} transactions", admitted.len());
        assert!(serializable(&admitted), "seed {seed}");
    }
}

/// Compares the lsv that a workload knows from versions with what a certifier derives that never
/// forgets.
struct LsvTwin {
    inner: Rssi,
    agree: fn(Lsv, Lsv) -> bool,
}

impl Certifier for LsvTwin {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        let Transaction { begin, lsv, reads, writes, .. } = transaction;
        let derived = self.inner.lsv(*begin, reads, writes);
        assert!((self.agree)(*lsv, derived), "{lsv:?} but {derived:?} of {:?}", transaction.id);
        self.inner.certify(transaction)
    }

    fn collect(&mut self, _staleness: Timestamp) {}

    fn reset(&mut self, at: Timestamp) {
        self.inner.reset(at);
    }

    fn clock(&self) -> Timestamp {
        self.inner.clock()
    }
}

fn check_lsv<W: Workload>(workload: W, agree: fn(Lsv, Lsv) -> bool) {
    let limits = Limits { spare_max: usize::MAX, ..Limits::default() };
    let mut twin = LsvTwin { inner: Rssi::new(limits), agree };
    let setup = Setup { read_only: Some(0.2), seconds: 5.0, ..Setup::default() };
    run_with(&setup, workload, &mut twin, true);
    assert!(twin.clock() > Timestamp(500));
}

/// RSSI paper, section 3.1: lsv is the highest commit timestamp among the versions accessed. Of
/// TPC-C++ we know versions of rows where the certifier knows of columns; that is not lower.
#[test]
fn versions_give_the_lsv_that_all_writes_imply() {
    check_lsv(crowded(), |ours, derived| ours == derived);
    check_lsv(Ssibench::new(Parameters::default()), |ours, derived| ours == derived);
    check_lsv(Tpccpp::new(2), |ours, derived| ours.high >= derived.high);
}
