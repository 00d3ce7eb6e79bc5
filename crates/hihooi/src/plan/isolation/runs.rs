//! The simulations of one call, each independent of the others, on all processors.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hihooi_sim::isolation::protocol::Protocol;
use hihooi_sim::isolation::report::Report;
use hihooi_sim::isolation::sweep::{Point, crossover};
use hihooi_sim::isolation::{Setup, run};
use hihooi_sim::workload::ssibench::{Parameters, Ssibench};
use hihooi_sim::workload::tpccpp::Tpccpp;

/// Progress is told only of calls that take longer.
const QUIET_FOR: Duration = Duration::from_secs(2);

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub enum Workload {
    Ssibench(Parameters),
    /// Of so many warehouses.
    Tpccpp(u32),
}

/// All simulations of a call.
pub struct Runs {
    pub workload: Workload,
    pub setup: Setup,
    /// Parts of the transactions that only read, ascending; `None`: the workload's own mix.
    pub shares: Vec<Option<f64>>,
    pub protocols: Vec<Protocol>,
}

/// One of them.
pub struct Run {
    /// The part of the transactions that only read.
    pub share: Option<f64>,
    pub protocol: Protocol,
    pub report: Report,
}

impl Runs {
    /// Simulates all; by share, then protocol.
    pub fn run(&self) -> Vec<Run> {
        let by_share = |share| self.protocols.iter().map(move |it| (share, *it));
        let jobs: Vec<(Option<f64>, Protocol)> =
            self.shares.iter().copied().flat_map(by_share).collect();
        let (done, finished) = mpsc::channel();
        let next = AtomicUsize::new(0);
        let reports = thread::scope(|scope| {
            let workers = thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..workers.min(jobs.len()) {
                let done = done.clone();
                scope.spawn(|| self.work(&jobs, &next, done));
            }
            drop(done);
            collect(&finished, jobs.len())
        });
        let run = |((share, protocol), report): (_, Option<Report>)| Run {
            share,
            protocol,
            report: report.expect("every job was simulated"),
        };
        jobs.into_iter().zip(reports).map(run).collect()
    }

    /// One processor's share of the jobs.
    fn work(
        &self,
        jobs: &[(Option<f64>, Protocol)],
        next: &AtomicUsize,
        done: mpsc::Sender<(usize, Report)>,
    ) {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else { return };
            if done.send((place, self.simulate(*job))).is_err() {
                return;
            }
        }
    }

    fn simulate(&self, (read_only, protocol): (Option<f64>, Protocol)) -> Report {
        let setup = Setup { read_only, ..self.setup };
        match self.workload {
            Workload::Ssibench(parameters) => run(&setup, Ssibench::new(parameters), protocol),
            Workload::Tpccpp(warehouses) => run(&setup, Tpccpp::new(warehouses), protocol),
        }
    }
}

/// All reports by the place of their job; tells a waiting person how far it is.
fn collect(finished: &mpsc::Receiver<(usize, Report)>, jobs: usize) -> Vec<Option<Report>> {
    let (start, shown) = (Instant::now(), std::io::stderr().is_terminal());
    let mut reports = vec![None; jobs];
    for (count, (place, report)) in (1..).zip(finished) {
        reports[place] = Some(report);
        if shown && count < jobs && start.elapsed() > QUIET_FOR {
            tell(&format!("\r{count} of {jobs} simulations"));
        }
    }
    if shown && start.elapsed() > QUIET_FOR {
        tell("\r\x1b[K");
    }
    reports
}

fn tell(text: &str) {
    let mut terminal = std::io::stderr();
    // Nobody misses progress that can't be shown.
    let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

/// The protocols whose curves may cross: who leads on updates, and who may overtake.
const LEADER: Protocol = Protocol::Rssi;
const CHALLENGER: Protocol = Protocol::CpRoo;

/// Whether both protocols that may cross were simulated, at two shares at least.
pub fn may_cross(runs: &Runs) -> bool {
    let both = [LEADER, CHALLENGER].iter().all(|protocol| runs.protocols.contains(protocol));
    both && runs.shares.len() > 1
}

/// The part of queries from which on `cp-roo` has the higher throughput than `rssi`.
pub fn overtaken_at(results: &[Run]) -> Option<f64> {
    let leaders = results.iter().filter(|run| run.protocol == LEADER);
    let point = |leader: &Run| {
        let challenger = same_share(results, leader.share, CHALLENGER)?;
        let (leader, read_only) = (leader.report.throughput, leader.share?);
        Some(Point { read_only, leader, challenger: challenger.throughput })
    };
    crossover(&leaders.filter_map(point).collect::<Vec<_>>())
}

/// Aborts of a cause that say something about how frequent it is.
const ABORTS_MIN: u64 = 20;

/// At the least share of queries: how many times the part of attempts that `rssi` aborts for
/// descending structures `cp-roo` aborts for rw-conflicts. `None` if they are too few to say.
pub fn rw_over_ds(results: &[Run]) -> Option<f64> {
    let share = results.first()?.share;
    let cp_roo = same_share(results, share, CHALLENGER)?;
    let rssi = same_share(results, share, LEADER)?;
    let (conflicts, structures) = (cp_roo.aborts().read_impact, rssi.aborts().descending());
    let part = |count: u64, report: &Report| count as f64 / report.attempts() as f64;
    let ratio = part(conflicts, cp_roo) / part(structures, rssi);
    (conflicts.min(structures) >= ABORTS_MIN).then_some(ratio)
}

fn same_share(results: &[Run], share: Option<f64>, protocol: Protocol) -> Option<&Report> {
    let same = |run: &&Run| run.share == share && run.protocol == protocol;
    results.iter().find(same).map(|run| &run.report)
}
