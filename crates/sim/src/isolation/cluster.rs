//! The simulated cluster: clients, sites, the total order, and one run of it. [`crate::isolation`] says what is
//! modelled and what is not.

use std::collections::VecDeque;

use hihooi_certify::certification::{Cause, Certifier, Lsv, SiteId, Timestamp, Transaction, TxnId};
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::isolation::Setup;
use crate::isolation::report::{Report, Tally};
use crate::isolation::site::{Job, Site};
use crate::workload::versions::Versions;
use crate::workload::{Footprint, Work, Workload};

/// Attempts between two collections of what no snapshot needs any more.
const COLLECT_EVERY: u64 = 8;

/// A run in progress. Bounded by the clients: each has one transaction, and one client's
/// writesets still to be applied elsewhere share the engines with new transactions, which slows
/// those down.
pub struct Cluster<'a, W: Workload> {
    setup: &'a Setup,
    workload: W,
    certifier: &'a mut dyn Certifier,
    certify_read_only: bool,
    now: u64,
    sites: Vec<Site>,
    clients: Vec<Client<W::Plan>>,
    versions: Versions,
    staleness: Timestamp,
    /// Demands of jobs: of its own, so that equal seeds give clients equal plans.
    random: Pcg64,
    /// Ordered attempts from position `first` on, until every site has acted on them.
    ordered: VecDeque<Ordered>,
    first: Timestamp,
    /// Messages between sites; each takes as long, so they arrive in the order of sending.
    messages: VecDeque<Message>,
    read_only: Tally,
    write: Tally,
}

struct Client<P> {
    site: usize,
    random: Pcg64,
    number: u64,
    plan: Option<P>,
    sent_at: u64,
    snapshot: Timestamp,
    footprint: Footprint,
    /// In the engine, not yet certified.
    executing: bool,
    writes: bool,
    /// From the end of execution until its site decided; 0 if that was not needed.
    ordering_ns: u64,
}

/// An attempt with its place in the total order.
struct Ordered {
    sent_at: u64,
    client: usize,
    home: usize,
    verdict: Result<(), Cause>,
    /// Work to repeat at other sites; `None` if there is nothing to apply.
    to_apply: Option<Work>,
    /// Sites that have not acted on it.
    sites_left: usize,
}

/// About the transaction at a position, towards that visit.
struct Message {
    arrives_at: u64,
    at: Timestamp,
    visit: usize,
}

enum Event {
    JobEnds { site: usize },
    Arrives,
}

impl<'a, W: Workload> Cluster<'a, W> {
    /// A cluster at time 0, no transaction sent yet.
    pub fn new(
        setup: &'a Setup,
        workload: W,
        certifier: &'a mut dyn Certifier,
        certify_read_only: bool,
    ) -> Cluster<'a, W> {
        let client = |number: usize| Client {
            site: number % setup.sites,
            random: Pcg64::new(u128::from(setup.seed), number as u128 + 1),
            number: 0,
            plan: None,
            sent_at: 0,
            snapshot: Timestamp(0),
            footprint: Footprint::default(),
            executing: false,
            writes: false,
            ordering_ns: 0,
        };
        Cluster {
            workload,
            certifier,
            certify_read_only,
            now: 0,
            sites: (0..setup.sites).map(|_| Site::default()).collect(),
            clients: (0..setup.clients).map(client).collect(),
            versions: Versions::default(),
            staleness: Timestamp(0),
            random: Pcg64::new(u128::from(setup.seed), 0),
            ordered: VecDeque::new(),
            first: Timestamp(1),
            messages: VecDeque::new(),
            read_only: Tally::default(),
            write: Tally::default(),
            setup,
        }
    }

    /// Runs to the end and reports.
    pub fn run(mut self) -> Report {
        (0..self.clients.len()).for_each(|client| self.send(client));
        let end = self.setup.end_ns();
        while let Some((at, event)) = self.next_event().filter(|(at, _)| *at <= end) {
            self.now = at;
            match event {
                Event::JobEnds { site } => self.job_ends(site),
                Event::Arrives => self.arrives(),
            }
        }
        self.report()
    }

    fn next_event(&self) -> Option<(u64, Event)> {
        let job = |(site, it): (usize, &Site)| Some((it.next_end()?, site));
        let job = self.sites.iter().enumerate().filter_map(job).min();
        let arrival = self.messages.front().map(|message| message.arrives_at);
        match (arrival, job) {
            (Some(at), Some((end, _))) if at <= end => Some((at, Event::Arrives)),
            (_, Some((end, site))) => Some((end, Event::JobEnds { site })),
            (at, None) => Some((at?, Event::Arrives)),
        }
    }

    fn job_ends(&mut self, site: usize) {
        match self.sites[site].pop(self.now) {
            Some(Job::Execute(client)) => self.executed(client),
            Some(Job::Visit(at, visit)) => self.visited(site, at, visit),
            Some(Job::Apply(at)) => {
                self.sites[site].applied.mark(at);
                self.show(site);
            }
            None => unreachable!("a site without jobs ended one"),
        }
    }

    /// The client sends its next transaction, or the last one again, and its site takes a snapshot.
    fn send(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let site = &mut self.sites[client.site];
        client.snapshot = site.applied.end();
        client.number += 1;
        client.executing = true;
        let plan = client.plan.get_or_insert_with(|| {
            client.sent_at = self.now;
            self.workload.draw(self.setup.read_only, &mut client.random)
        });
        client.footprint = self.workload.footprint(plan, client.snapshot);
        client.writes = !client.footprint.writes.is_empty();
        let mean_ns = self.setup.costs.execution_ns(client.footprint.work);
        let demand = demand(&mut self.random, mean_ns);
        site.engine.push(self.now, demand, Job::Execute(number));
    }

    fn executed(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.executing = false;
        client.ordering_ns = 0;
        if client.writes || self.certify_read_only {
            self.order(number);
        } else {
            self.answer(number, Ok(()));
        }
    }

    /// The transaction gets its place in the total order. All managers will decide as the
    /// certifier does now, since the order is all that decisions depend on.
    fn order(&mut self, number: usize) {
        let transaction = self.transaction(number);
        let decision = self.certifier.certify(&transaction);
        let client = &mut self.clients[number];
        let commits = decision.verdict.is_ok() && client.writes;
        if commits {
            self.versions.write(&client.footprint.touched, decision.at, self.staleness);
            let plan = client.plan.as_ref().expect("a client that executed has a plan");
            self.workload.committed(plan, client.snapshot, decision.at);
        }
        self.ordered.push_back(Ordered {
            sent_at: self.now,
            client: number,
            home: client.site,
            verdict: decision.verdict,
            to_apply: commits.then_some(client.footprint.work),
            sites_left: self.sites.len(),
        });
        self.visit(self.clients[number].site, decision.at, 0);
        if decision.at.0.is_multiple_of(COLLECT_EVERY) {
            self.collect();
        }
    }

    fn transaction(&mut self, number: usize) -> Transaction {
        let client = &mut self.clients[number];
        let lsv = self.versions.latest(&client.footprint.seen, client.snapshot);
        Transaction {
            id: TxnId { site: SiteId(client.site as u32), number: client.unique(number) },
            begin: client.snapshot,
            lsv: Lsv { low: lsv, high: lsv },
            reads: std::mem::take(&mut client.footprint.reads),
            versions: Vec::new(),
            writes: std::mem::take(&mut client.footprint.writes),
        }
    }

    /// A site's manager takes up a message: half of its work for the transaction.
    fn visit(&mut self, site: usize, at: Timestamp, visit: usize) {
        let demand = (self.setup.costs.certification_ns() / 2).max(1);
        let site = &mut self.sites[site];
        let server = if self.setup.own_managers { &mut site.manager } else { &mut site.engine };
        server.push(self.now, demand, Job::Visit(at, visit));
    }

    /// The manager sends the message on. On the first round the sites collect edges; with the
    /// message's return home, and at the others on the second round, the decision is known (RSSI
    /// paper, section 4.1).
    fn visited(&mut self, site: usize, at: Timestamp, visit: usize) {
        let rounds = 2 * self.sites.len();
        if visit + 1 < rounds {
            let hop_ns = if self.sites.len() > 1 { self.setup.costs.hop_ns() } else { 0 };
            let arrives_at = self.now + hop_ns;
            self.messages.push_back(Message { arrives_at, at, visit: visit + 1 });
        }
        if visit >= self.sites.len() {
            self.sites[site].decided.mark(at);
            for at in self.sites[site].decided.advance() {
                self.act(site, Timestamp(at));
            }
            self.show(site);
        }
    }

    fn arrives(&mut self) {
        let Message { at, visit, .. } = self.messages.pop_front().expect("a message was due");
        let home = self.ordered[self.place(at)].home;
        self.visit((home + visit) % self.sites.len(), at, visit);
    }

    /// A site acts on the next position whose decision it knows.
    fn act(&mut self, site: usize, at: Timestamp) {
        let place = self.place(at);
        let Ordered { sent_at, client, home, verdict, to_apply, .. } = self.ordered[place];
        self.ordered[place].sites_left -= 1;
        match to_apply {
            Some(work) if site != home => {
                let demand = demand(&mut self.random, self.setup.costs.application_ns(work));
                self.sites[site].engine.push(self.now, demand, Job::Apply(at));
            }
            _ => self.sites[site].applied.mark(at),
        }
        if site == home {
            self.clients[client].ordering_ns = self.now - sent_at;
            match to_apply {
                Some(_) => self.sites[site].wait(at, client),
                None => self.answer(client, verdict),
            }
        }
        while self.ordered.front().is_some_and(|first| first.sites_left == 0) {
            self.ordered.pop_front();
            self.first.0 += 1;
        }
    }

    fn place(&self, at: Timestamp) -> usize {
        (at.0 - self.first.0) as usize
    }

    fn show(&mut self, site: usize) {
        for client in self.sites[site].show() {
            self.answer(client, Ok(()));
        }
    }

    /// The client learns what became of its transaction, and goes on.
    fn answer(&mut self, number: usize, verdict: Result<(), Cause>) {
        let client = &mut self.clients[number];
        if self.now > self.setup.ramp_up_ns() {
            let tally = if client.writes { &mut self.write } else { &mut self.read_only };
            match verdict {
                Ok(()) => tally.committed(self.now - client.sent_at, client.ordering_ns),
                Err(cause) => tally.aborted(cause),
            }
        }
        if verdict.is_ok() || !self.setup.retry {
            client.plan = None;
        }
        self.send(number);
    }

    /// Forgets what neither a transaction in execution nor a new one could conflict with.
    fn collect(&mut self) {
        let executing = self.clients.iter().filter(|client| client.executing);
        let snapshots = executing.map(|client| client.snapshot);
        let ends = self.sites.iter().map(|site| site.applied.end());
        self.staleness = snapshots.chain(ends).min().unwrap_or_default();
        self.certifier.collect(self.staleness);
    }

    fn report(self) -> Report {
        let (read_only, write) = (self.read_only.finish(), self.write.finish());
        let commits = read_only.commits + write.commits;
        let attempts = read_only.attempts() + write.attempts();
        Report {
            seconds: self.setup.seconds,
            throughput: commits as f64 / self.setup.seconds,
            abort_share: (attempts - commits) as f64 / attempts.max(1) as f64,
            read_only,
            write,
        }
    }
}

impl<P> Client<P> {
    /// A number for its current attempt that no other client has.
    fn unique(&self, client: usize) -> u64 {
        (client as u64) << 40 | self.number
    }
}

/// A time of this mean, uniform from 0 to twice the mean; never nothing, so that time passes.
fn demand(random: &mut Pcg64, mean_ns: u64) -> u64 {
    random.random_range(0..=2 * mean_ns).max(1)
}
