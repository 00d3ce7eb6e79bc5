//! The kernel: simulated time, one queue of events, nodes, disks, logs, network, clients and faults. A run is
//! determined by its seed: nothing here depends on anything except the configuration.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ahash::AHashMap;
use rand::RngExt;

use crate::client::{Call, Client, Next};
use crate::faults::{Fault, FaultPlan};
use crate::logs::{Delivery, Log};
use crate::network::{Address, Network, NetworkConfig, Transport};
use crate::node::{Boot, CallId, ClientId, Effect, Effects, Event, LogId, Node, NodeId};
use crate::queue::{Connection, Scheduled, What};
use crate::random::{Purpose, Random, generator};
use crate::time::Time;

/// How often a delivery of a log behind a cut is tried again.
const RETRY_US: u64 = 3_000;
/// The gap between two entries of a log that a node is behind by, at most.
const CATCH_UP_US_MAX: u64 = 40;
/// More events than any sensible run: a node that wakes itself for ever ends here.
const EVENTS_MAX: u64 = 20_000_000;

/// A run.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// All that is random.
    pub seed: u64,
    /// How many nodes.
    pub nodes: u16,
    /// How many total-order logs.
    pub logs: u16,
    /// The network.
    pub network: NetworkConfig,
    /// A record is durable after at most so many microseconds.
    pub disk_us_max: u64,
    /// A node's clock is at most so many microseconds ahead of the slowest possible.
    pub skew_us_max: u64,
    /// What goes wrong. The run ends only after the plan's last fault.
    pub faults: FaultPlan,
    /// How long the run goes on once all clients have ended and all faults are over.
    pub settle_us: u64,
    /// Within so many microseconds after the last fault all clients must have ended.
    pub live_us_max: u64,
    /// Whether to print every event.
    pub trace: bool,
}

impl WorldConfig {
    /// Defaults for so many nodes with one log: a bad network, no faults.
    #[must_use]
    pub fn new(seed: u64, nodes: u16) -> WorldConfig {
        WorldConfig {
            seed,
            nodes,
            logs: 1,
            network: NetworkConfig::default(),
            disk_us_max: 300,
            skew_us_max: 0,
            faults: FaultPlan(vec![(Time(0), Fault::Heal)]),
            settle_us: 200_000,
            live_us_max: 60_000_000,
            trace: false,
        }
    }
}

/// A run in progress.
#[derive(Debug)]
pub struct World<N: Node, C: Client<N>> {
    config: WorldConfig,
    setup: N::Config,
    now: Time,
    queue: BinaryHeap<Scheduled<N>>,
    queued: u64,
    nodes: Vec<Slot<N>>,
    logs: Vec<Log<N>>,
    clients: Vec<ClientSlot<C>>,
    clients_left: usize,
    network: Network,
    streams: BTreeMap<(NodeId, NodeId), Stream<N>>,
    disk_random: Random,
    calls: Vec<Call<N>>,
    agreed: AHashMap<(&'static str, u64), u64>,
    violation: Option<String>,
    faults_over: Time,
    spare: Vec<Effects<N>>,
}

/// A node with its disk.
#[derive(Debug)]
struct Slot<N: Node> {
    node: Option<N>,
    incarnation: u32,
    disk: Vec<N::Record>,
    writing: VecDeque<N::Record>,
    disk_idle_at: Time,
    skew_us: u64,
    random: Random,
}

#[derive(Debug)]
struct ClientSlot<C> {
    client: C,
    random: Random,
    waits_for: Option<CallId>,
}

/// One direction between two nodes under [`Transport::Stream`].
#[derive(Debug)]
struct Stream<N: Node> {
    arrives_at: Time,
    held: VecDeque<N::Message>,
}

impl<N: Node, C: Client<N>> World<N, C> {
    /// A world at its beginning: nodes started, clients about to ask.
    pub fn new(config: WorldConfig, setup: N::Config, clients: Vec<C>) -> World<N, C> {
        let seed = config.seed;
        let mut clocks = generator(seed, Purpose::Clocks);
        let nodes: Vec<Slot<N>> = (0..config.nodes)
            .map(|n| Slot::new(generator(seed, Purpose::Node(n)), &mut clocks, config.skew_us_max))
            .collect();
        let mut world = World {
            setup,
            now: Time::default(),
            queue: BinaryHeap::new(),
            queued: 0,
            logs: (0..config.logs).map(|_| Log::new(nodes.len())).collect(),
            nodes,
            clients_left: clients.len(),
            clients: clients
                .into_iter()
                .zip(0..)
                .map(|(client, n)| ClientSlot {
                    client,
                    random: generator(seed, Purpose::Client(n)),
                    waits_for: None,
                })
                .collect(),
            network: Network::new(config.network, generator(seed, Purpose::Network)),
            streams: BTreeMap::new(),
            disk_random: generator(seed, Purpose::Disk),
            calls: Vec::new(),
            agreed: AHashMap::new(),
            violation: None,
            faults_over: config.faults.0.iter().map(|(at, _)| *at).max().unwrap_or_default(),
            spare: Vec::new(),
            config,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for (at, fault) in self.config.faults.0.clone() {
            self.schedule(at, What::Fault(fault));
        }
        for node in 0..self.config.nodes {
            self.start(NodeId(node));
        }
        for client in (0..).take(self.clients.len()).map(ClientId) {
            self.schedule(self.now, What::ClientWakes { client, call: None });
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What was violated: a node said so, two nodes disagreed, or a client had not ended in time
    /// after the last fault.
    pub fn run(&mut self) -> Result<(), String> {
        let live_until = self.faults_over + self.config.live_us_max;
        let mut quiet_since = None;
        while let Some(Scheduled { at, what, .. }) = self.queue.pop() {
            self.now = at;
            if self.clients_left == 0 && at > self.faults_over {
                let since = *quiet_since.get_or_insert(at);
                if at - since > self.config.settle_us {
                    break;
                }
            } else if at > live_until || self.queued > EVENTS_MAX {
                return Err(self.not_live());
            }
            self.happen(what);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn not_live(&self) -> String {
        let waiting = self.clients.iter().filter_map(|c| c.waits_for);
        let calls: Vec<String> =
            waiting.map(|c| format!("{:?}", self.calls[c.0 as usize])).take(3).collect();
        format!(
            "{} clients have not ended at {}, faults were over at {}: {}",
            self.clients_left,
            self.now,
            self.faults_over,
            calls.join("; ")
        )
    }

    /// The configuration of the nodes.
    pub fn setup(&self) -> &N::Config {
        &self.setup
    }

    /// The instant.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When the last fault was over; 0 if there were none.
    pub fn faults_over(&self) -> Time {
        self.faults_over
    }

    /// How many events were queued.
    pub fn events(&self) -> u64 {
        self.queued
    }

    /// What the clients saw, in the order of invocation.
    pub fn calls(&self) -> &[Call<N>] {
        &self.calls
    }

    /// A node's state; `None` while it is down.
    pub fn node(&self, id: NodeId) -> Option<&N> {
        self.nodes[usize::from(id.0)].node.as_ref()
    }

    /// All nodes that run.
    pub fn running(&self) -> impl Iterator<Item = (NodeId, &N)> {
        (0..).map(NodeId).zip(&self.nodes).filter_map(|(id, slot)| Some((id, slot.node.as_ref()?)))
    }

    /// The entries of a log.
    pub fn log(&self, log: LogId) -> &[N::Entry] {
        &self.logs[usize::from(log.0)].entries
    }

    fn schedule(&mut self, at: Time, what: What<N>) {
        self.queued += 1;
        self.queue.push(Scheduled { at, number: self.queued, what });
    }

    fn happen(&mut self, what: What<N>) {
        if self.config.trace && !matches!(what, What::ClientWakes { call: None, .. }) {
            println!("{} {what:?}", self.now);
        }
        match what {
            What::Message { from, to, message, connection } => {
                self.arrive(from, to, message, connection);
            }
            What::Request { client, to, call } => self.ask(client, to, call),
            What::Reply { from, call, response } => self.answer(from, call, response),
            What::Append { from, log, entry } => self.append(from, log, entry),
            What::Appended { to, log, position, entry } => {
                if !self.network.is_cut(Address::Logs, Address::Node(to)) {
                    self.tell(to, Event::Appended { log, position, entry });
                }
            }
            What::Deliver(delivery) => self.deliver(delivery),
            What::Persisted { node, incarnation } => self.persisted(node, incarnation),
            What::Timer { node, incarnation, timer } => {
                if self.slot(node).incarnation == incarnation {
                    self.tell(node, Event::Timer(timer));
                }
            }
            What::ClientWakes { client, call } => self.client_wakes(client, call),
            What::Fault(fault) => self.strike(fault),
        }
    }

    fn slot(&mut self, node: NodeId) -> &mut Slot<N> {
        &mut self.nodes[usize::from(node.0)]
    }

    // Nodes

    fn start(&mut self, id: NodeId) {
        let (now, nodes) = (self.now, self.config.nodes);
        let slot = &mut self.nodes[usize::from(id.0)];
        if slot.node.is_some() {
            return;
        }
        let mut out = self.spare.pop().unwrap_or_default();
        let boot = Boot {
            id,
            nodes,
            incarnation: slot.incarnation,
            now: now + slot.skew_us,
            disk: &slot.disk,
            seed: slot.random.random(),
        };
        slot.node = Some(N::start(&self.setup, boot, &mut out));
        self.perform(id, out);
    }

    fn tell(&mut self, to: NodeId, event: Event<N>) {
        let now = self.now;
        let slot = &mut self.nodes[usize::from(to.0)];
        let Some(node) = slot.node.as_mut() else { return };
        let mut out = self.spare.pop().unwrap_or_default();
        node.step(now + slot.skew_us, event, &mut out);
        self.perform(to, out);
    }

    fn perform(&mut self, node: NodeId, mut effects: Effects<N>) {
        for effect in effects.0.drain(..) {
            self.perform_one(node, effect);
        }
        self.spare.push(effects);
    }

    fn perform_one(&mut self, node: NodeId, effect: Effect<N>) {
        if self.config.trace {
            println!("{}   {node:?}: {effect:?}", self.now);
        }
        let incarnation = self.slot(node).incarnation;
        match effect {
            Effect::Send { to, message } => self.send(node, to, message),
            Effect::Reply { call, response } => {
                self.once(What::Reply { from: node, call, response });
            }
            Effect::Append { log, entry } => {
                self.datagram(|| What::Append { from: node, log, entry: entry.clone() });
            }
            Effect::Follow { log, from } => {
                self.logs[usize::from(log.0)].follow(usize::from(node.0), from, incarnation);
                self.wake(log, usize::from(node.0), 0);
            }
            Effect::Persist(record) => self.persist(node, record),
            Effect::Timer { after_us, timer } => {
                self.schedule(self.now + after_us, What::Timer { node, incarnation, timer });
            }
            Effect::Agree { topic, at, value } => self.agree(node, topic, at, value),
            Effect::Violated(what) => self.violate(format!("{node:?}: {what}")),
        }
    }

    fn violate(&mut self, what: String) {
        let at = self.now;
        self.violation.get_or_insert_with(|| format!("at {at}: {what}"));
    }

    fn agree(&mut self, node: NodeId, topic: &'static str, at: u64, value: u64) {
        let first = *self.agreed.entry((topic, at)).or_insert(value);
        if first != value {
            self.violate(format!("{node:?} says {topic} {at} is {value}; it was {first} before"));
        }
    }

    // Network

    fn datagram(&mut self, mut copy: impl FnMut() -> What<N>) {
        let fate = self.network.datagram();
        for us in [fate.first, fate.second].into_iter().flatten() {
            self.schedule(self.now + us, copy());
        }
    }

    fn once(&mut self, what: What<N>) {
        if let Some(us) = self.network.once() {
            self.schedule(self.now + us, what);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: N::Message) {
        if from == to {
            self.schedule(self.now, What::Message { from, to, message, connection: None });
        } else if self.network.transport() == Transport::Datagram {
            self.datagram(|| What::Message {
                from,
                to,
                message: message.clone(),
                connection: None,
            });
        } else {
            let connection = (self.slot(from).incarnation, self.slot(to).incarnation);
            self.send_on(from, to, message, connection);
        }
    }

    fn send_on(&mut self, from: NodeId, to: NodeId, message: N::Message, connection: Connection) {
        let at = self.now + self.network.delay_us();
        let stream = self.stream(from, to);
        stream.arrives_at = stream.arrives_at.max(at);
        let at = stream.arrives_at;
        self.schedule(at, What::Message { from, to, message, connection: Some(connection) });
    }

    fn stream(&mut self, from: NodeId, to: NodeId) -> &mut Stream<N> {
        self.streams
            .entry((from, to))
            .or_insert_with(|| Stream { arrives_at: Time::default(), held: VecDeque::new() })
    }

    fn arrive(&mut self, from: NodeId, to: NodeId, message: N::Message, on: Option<Connection>) {
        let cut = self.network.is_cut(Address::Node(from), Address::Node(to));
        match on {
            None if cut => {}
            None => self.tell(to, Event::Message { from, message }),
            Some(connection) => {
                if (self.slot(from).incarnation, self.slot(to).incarnation) != connection {
                    return;
                }
                let held = &mut self.stream(from, to).held;
                if cut || !held.is_empty() {
                    held.push_back(message);
                } else {
                    self.tell(to, Event::Message { from, message });
                }
            }
        }
    }

    /// Hands over what waited behind cuts that are over, in front of what is on its way.
    fn release_streams(&mut self) {
        let waiting = self.streams.iter().filter(|(_, s)| !s.held.is_empty());
        let waiting: Vec<(NodeId, NodeId)> = waiting.map(|(ends, _)| *ends).collect();
        for (from, to) in waiting {
            if !self.network.is_cut(Address::Node(from), Address::Node(to)) {
                for message in std::mem::take(&mut self.stream(from, to).held) {
                    self.tell(to, Event::Message { from, message });
                }
            }
        }
    }

    // Logs

    fn append(&mut self, from: NodeId, log: LogId, entry: N::Entry) {
        if self.network.is_cut(Address::Node(from), Address::Logs) {
            return;
        }
        let position = self.logs[usize::from(log.0)].append(entry.clone());
        self.datagram(|| What::Appended { to: from, log, position, entry: entry.clone() });
        for node in 0..self.nodes.len() {
            let us = self.network.delay_us();
            self.wake(log, node, us);
        }
    }

    fn wake(&mut self, log: LogId, node: usize, after_us: u64) {
        if let Some(incarnation) = self.logs[usize::from(log.0)].wake(node) {
            let delivery = Delivery { node: node as u16, incarnation, log };
            self.schedule(self.now + after_us, What::Deliver(delivery));
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        let Delivery { node, incarnation, log } = delivery;
        if self.network.is_cut(Address::Logs, Address::Node(NodeId(node))) {
            self.schedule(self.now + RETRY_US, What::Deliver(delivery));
            return;
        }
        let next = self.logs[usize::from(log.0)].next(usize::from(node), incarnation);
        if let Some((position, entry)) = next {
            self.tell(NodeId(node), Event::Entry { log, position, entry });
            let us = self.slot(NodeId(node)).random.random_range(0..=CATCH_UP_US_MAX);
            self.wake(log, usize::from(node), us);
        }
    }

    // Disks

    fn persist(&mut self, node: NodeId, record: N::Record) {
        let us = self.disk_random.random_range(1..=self.config.disk_us_max.max(1));
        let at = self.now + us;
        let slot = self.slot(node);
        slot.writing.push_back(record);
        slot.disk_idle_at = slot.disk_idle_at.max(at);
        let (at, incarnation) = (slot.disk_idle_at, slot.incarnation);
        self.schedule(at, What::Persisted { node, incarnation });
    }

    fn persisted(&mut self, node: NodeId, incarnation: u32) {
        let slot = self.slot(node);
        if slot.incarnation == incarnation {
            slot.disk.extend(slot.writing.pop_front());
            let records = slot.disk.len() as u64;
            self.tell(node, Event::Persisted { records });
        }
    }

    // Clients

    fn client_wakes(&mut self, client: ClientId, call: Option<CallId>) {
        let slot = &mut self.clients[usize::from(client.0)];
        if slot.waits_for == call {
            slot.waits_for = None;
            if let Some(call) = call {
                self.calls[call.0 as usize].ended = Some(self.now);
            }
            self.client_acts(client, call);
        }
    }

    fn client_acts(&mut self, client: ClientId, last: Option<CallId>) {
        let slot = &mut self.clients[usize::from(client.0)];
        let last = last.map(|call| &self.calls[call.0 as usize]);
        match slot.client.next(self.now, &mut slot.random, last) {
            Next::Ask { to, request, timeout_us } => {
                let call = CallId(self.calls.len() as u64);
                slot.waits_for = Some(call);
                let invoked = self.now;
                if self.config.trace {
                    println!("{invoked} {client:?} asks {to:?} {call:?}: {request:?}");
                }
                self.calls.push(Call { client, to, request, invoked, ended: None, response: None });
                self.once(What::Request { client, to, call });
                let wake = What::ClientWakes { client, call: Some(call) };
                self.schedule(self.now + timeout_us, wake);
            }
            Next::Wait(us) => {
                self.schedule(self.now + us, What::ClientWakes { client, call: None });
            }
            Next::End => self.clients_left -= 1,
        }
    }

    fn ask(&mut self, client: ClientId, to: NodeId, call: CallId) {
        if !self.network.is_cut(Address::Client(client), Address::Node(to)) {
            let request = self.calls[call.0 as usize].request.clone();
            self.tell(to, Event::Request { call, client, request });
        }
    }

    fn answer(&mut self, from: NodeId, call: CallId, response: N::Response) {
        let record = &mut self.calls[call.0 as usize];
        let client = record.client;
        let slot = &mut self.clients[usize::from(client.0)];
        let cut = self.network.is_cut(Address::Node(from), Address::Client(client));
        if slot.waits_for == Some(call) && !cut {
            slot.waits_for = None;
            record.ended = Some(self.now);
            record.response = Some(response);
            self.client_acts(client, Some(call));
        }
    }

    // Faults

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(node) => self.crash(node),
            Fault::Restart(node) => self.start(node),
            Fault::Cut(a, b) => pairs(&a, &b).for_each(|(a, b)| self.network.cut(a, b)),
            Fault::Join(a, b) => pairs(&a, &b).for_each(|(a, b)| self.network.join(a, b)),
            Fault::Heal => {
                self.network.heal();
                (0..self.config.nodes).for_each(|node| self.start(NodeId(node)));
            }
        }
        self.release_streams();
    }

    fn crash(&mut self, id: NodeId) {
        let slot = &mut self.nodes[usize::from(id.0)];
        if slot.node.take().is_some() {
            slot.incarnation += 1;
            let kept = self.disk_random.random_range(0..=slot.writing.len() as u64) as usize;
            slot.disk.extend(slot.writing.drain(..).take(kept));
            slot.disk_idle_at = self.now;
            self.logs.iter_mut().for_each(|log| log.forget(usize::from(id.0)));
            self.streams.retain(|(a, b), _| *a != id && *b != id);
        }
    }
}

impl<N: Node> Slot<N> {
    fn new(random: Random, clocks: &mut Random, skew_us_max: u64) -> Slot<N> {
        Slot {
            node: None,
            incarnation: 0,
            disk: Vec::new(),
            writing: VecDeque::new(),
            disk_idle_at: Time::default(),
            skew_us: clocks.random_range(0..=skew_us_max),
            random,
        }
    }
}

fn pairs<'a>(a: &'a [Address], b: &'a [Address]) -> impl Iterator<Item = (Address, Address)> + 'a {
    a.iter().flat_map(move |a| b.iter().map(move |b| (*a, *b)))
}
