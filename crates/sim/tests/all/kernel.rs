//! The kernel itself, on the smallest protocol worth the name: a counter replicated over the
//! total-order log. Read it as the example of how a protocol is put on the simulator.

use std::collections::BTreeMap;

use hihooi_sim::{
    Boot, Call, CallId, Client, Effects, Event, FaultBounds, FaultPlan, LogId, NetworkConfig, Next,
    Node, NodeId, Position, Purpose, Random, Run, Time, Transport, World, WorldConfig, explore,
    generator, hunt,
};
use rand::RngExt;

const LOG: LogId = LogId(0);

/// A mistake to be found.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Planted {
    Nothing,
    /// Answers when the append was sent, not when the entry came back.
    AnswersEarly,
    /// Counts an entry that was ordered twice twice.
    CountsTwice,
    /// Writes progress first and the count afterwards, so that a crash can come between.
    TornProgress,
}

/// One copy of the counter.
#[derive(Debug)]
struct Counter {
    planted: Planted,
    count: u64,
    /// Calls that were counted, for entries that come twice.
    counted: BTreeMap<CallId, u64>,
    /// Calls of clients that wait here.
    waiting: Vec<CallId>,
}

/// The journal: what was counted up to which position.
#[derive(Clone, Debug)]
enum Record {
    Counted(CallId, Position),
    ProgressOnly(Position),
    CountOnly(CallId),
}

impl Node for Counter {
    type Message = ();
    type Request = ();
    type Response = u64;
    type Entry = CallId;
    type Record = Record;
    type Timer = CallId;
    type Config = Planted;

    fn start(planted: &Planted, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> Counter {
        let mut counter =
            Counter { planted: *planted, count: 0, counted: BTreeMap::new(), waiting: Vec::new() };
        let mut next = Position(0);
        for record in boot.disk {
            match record {
                Record::Counted(call, position) => {
                    counter.count_once(*call);
                    next = Position(position.0 + 1);
                }
                Record::CountOnly(call) => counter.count_once(*call),
                Record::ProgressOnly(position) => next = Position(position.0 + 1),
            }
        }
        out.follow(LOG, next);
        counter
    }

    fn step(&mut self, _now: Time, event: Event<Self>, out: &mut Effects<Self>) {
        match event {
            Event::Request { call, .. } if !self.waiting.contains(&call) => {
                self.waiting.push(call);
                self.append(call, out);
                if self.planted == Planted::AnswersEarly {
                    out.reply(call, self.count + 1);
                }
            }
            Event::Timer(call) if self.waiting.contains(&call) => self.append(call, out),
            Event::Entry { position, entry, .. } => self.counts(position, entry, out),
            _ => {}
        }
    }
}

impl Counter {
    /// Appends, and again if nothing came of it.
    fn append(&self, call: CallId, out: &mut Effects<Self>) {
        out.append(LOG, call);
        out.timer(20_000, call);
    }

    fn count_once(&mut self, call: CallId) {
        if self.planted == Planted::CountsTwice || !self.counted.contains_key(&call) {
            self.count += 1;
            self.counted.insert(call, self.count);
        }
    }

    fn counts(&mut self, position: Position, call: CallId, out: &mut Effects<Self>) {
        self.count_once(call);
        if self.planted == Planted::TornProgress {
            out.persist(Record::ProgressOnly(position));
            out.persist(Record::CountOnly(call));
        } else {
            out.persist(Record::Counted(call, position));
        }
        out.agree("count at position", position.0, self.count);
        if self.waiting.contains(&call) {
            self.waiting.retain(|c| *c != call);
            out.reply(call, self.counted[&call]);
        }
    }
}

/// Asks so often.
struct Counting(u32);

impl Client<Counter> for Counting {
    fn next(&mut self, _: Time, random: &mut Random, _: Option<&Call<Counter>>) -> Next<Counter> {
        if self.0 == 0 {
            return Next::End;
        }
        self.0 -= 1;
        Next::Ask { to: NodeId(random.random_range(0..3)), request: (), timeout_us: 200_000 }
    }
}

/// One run: every answer is unique, and nothing that was answered is lost.
fn counts_right(run: Run, planted: Planted) -> Result<(u64, Vec<String>), String> {
    let bounds = FaultBounds {
        heal_at: Time(400_000),
        crashes_max: 4,
        down_us_max: 100_000,
        cuts_max: 3,
        cut_us_max: 100_000,
    };
    let config = WorldConfig {
        faults: FaultPlan::random(bounds, 3, &mut generator(run.seed, Purpose::Faults)),
        trace: run.trace,
        ..WorldConfig::new(run.seed, 3)
    };
    let clients = (0..4).map(|_| Counting(50)).collect();
    let mut world: World<Counter, Counting> = World::new(config, planted, clients);
    world.run()?;
    let answers: Vec<u64> = world.calls().iter().filter_map(|call| call.response).collect();
    for (id, node) in world.running() {
        if node.count < answers.len() as u64 {
            return Err(format!("{id:?} counted {}, answered {}", node.count, answers.len()));
        }
        if node.count > world.calls().len() as u64 {
            return Err(format!("{id:?} counted {}, asked {}", node.count, world.calls().len()));
        }
    }
    let mut unique = answers.clone();
    unique.sort_unstable();
    unique.dedup();
    if unique.len() < answers.len() {
        return Err("two answers are the same".to_owned());
    }
    Ok((world.events(), world.calls().iter().map(|call| format!("{call:?}")).collect()))
}

#[test]
fn a_counter_over_the_log_counts_right_under_faults() {
    explore("kernel::a_counter_over_the_log_counts_right_under_faults", 0..200, |run| {
        counts_right(run, Planted::Nothing)
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| counts_right(Run { seed, trace: false }, Planted::Nothing).unwrap();
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).1, run(6).1);
}

/// A kernel whose faults hit nothing would pass everything: each mistake is found soon.
#[test]
fn planted_mistakes_are_found() {
    for planted in [Planted::AnswersEarly, Planted::CountsTwice, Planted::TornProgress] {
        let found = hunt(0..40, |run| counts_right(run, planted));
        println!("{planted:?}: {found:?}");
        assert!(found.is_some(), "{planted:?}");
    }
}

/// A failing simulation prints its seed and the one command that replays it.
#[test]
#[should_panic(expected = "replay: HIHOOI_SIM_SEED=3 cargo test --release -p hihooi-sim \
                           --test all kernel::a_name -- --nocapture")]
fn a_failure_tells_how_to_replay_it() {
    explore("kernel::a_name", 0..9, |run| if run.seed < 3 { Ok(()) } else { Err("no".to_owned()) });
}

/// A node that passes a number on to the next, once.
#[derive(Debug)]
struct Relay {
    id: NodeId,
    seen: Vec<u32>,
}

impl Node for Relay {
    type Message = u32;
    type Request = ();
    type Response = ();
    type Entry = ();
    type Record = ();
    type Timer = u32;
    type Config = ();

    fn start(_: &(), boot: Boot<'_, Self>, out: &mut Effects<Self>) -> Relay {
        if boot.id == NodeId(0) {
            (0..100).for_each(|n| out.timer(u64::from(n) * 1_000, n));
        }
        Relay { id: boot.id, seen: Vec::new() }
    }

    fn step(&mut self, _: Time, event: Event<Self>, out: &mut Effects<Self>) {
        let (Event::Timer(number) | Event::Message { message: number, .. }) = event else { return };
        self.seen.push(number);
        if self.id == NodeId(0) {
            out.send(NodeId(1), number);
        }
    }
}

struct Nobody;

impl Client<Relay> for Nobody {
    fn next(&mut self, _: Time, _: &mut Random, _: Option<&Call<Relay>>) -> Next<Relay> {
        Next::End
    }
}

fn relayed(seed: u64, transport: Transport, cuts_max: u32) -> Vec<u32> {
    let bounds = FaultBounds { cuts_max, cut_us_max: 30_000, ..FaultBounds::none(Time(90_000)) };
    let config = WorldConfig {
        network: NetworkConfig {
            transport,
            loss: 0.05,
            duplication: 0.05,
            slow: 0.3,
            ..NetworkConfig::default()
        },
        faults: FaultPlan::random(bounds, 2, &mut generator(seed, Purpose::Faults)),
        ..WorldConfig::new(seed, 2)
    };
    let mut world: World<Relay, Nobody> = World::new(config, (), vec![]);
    world.run().unwrap();
    world.node(NodeId(1)).unwrap().seen.clone()
}

#[test]
fn datagrams_get_lost_doubled_and_reordered() {
    let all: Vec<Vec<u32>> = (0..20).map(|seed| relayed(seed, Transport::Datagram, 0)).collect();
    assert!(all.iter().any(|seen| (0..100).any(|n| !seen.contains(&n))));
    assert!(all.iter().any(|seen| (0..100).any(|n| seen.iter().filter(|s| **s == n).count() == 2)));
    assert!(all.iter().any(|seen| !seen.is_sorted()));
}

#[test]
fn streams_keep_order_and_outlive_cuts() {
    for seed in 0..50 {
        assert!(relayed(seed, Transport::Stream, 3).into_iter().eq(0..100), "seed {seed}");
    }
}
