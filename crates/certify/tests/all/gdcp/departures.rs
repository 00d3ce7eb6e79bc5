//! Counterexamples: what Algorithm 1 of the RSSI paper, taken to the letter, would let commit.
//! Each history is run twice: as GDCP is here, which aborts one transaction of the cycle, and with
//! messages cut down on their way to what the paper has them carry, where all of them commit and
//! the history is not serializable.

use hihooi_certify::certification::items::{Read, Write};
use hihooi_certify::certification::{Lsv, Timestamp, Transaction, TxnId};
use hihooi_certify::gdcp::Limits;
use hihooi_certify::gdcp::manager::Event;
use hihooi_certify::gdcp::message::{Body, Incoming, Message};

use super::oracle::{id, row, update};
use super::ring::{Cluster, Meddling};

type Cut = fn(&mut Message, &Meddling<'_>);

const AS_IT_IS: Cut = |_, _| {};

fn gathered(message: &mut Message) -> Option<&mut Incoming> {
    match &mut message.body {
        Body::Gather { incoming, .. } => Some(incoming),
        _ => None,
    }
}

/// Line 9 of the first `Rreceive`: only readers that come earlier in the order.
const EARLIER_READERS_ONLY: Cut = |message, known| {
    let order = message.order;
    if let Some(incoming) = gathered(message) {
        incoming.readers.retain(|reader| known.orders.get(reader).is_none_or(|at| *at < order));
    }
};

/// Lines 3 to 5: of the committed readers only the one with the highest lsv.
const ONE_COMMITTED_READER: Cut = |message, known| {
    let Some(incoming) = gathered(message) else { return };
    let committed = incoming.readers.iter().filter(|reader| (known.committed)(**reader).is_some());
    let highest = committed.max_by_key(|reader| (known.lsv)(**reader)).copied();
    incoming
        .readers
        .retain(|reader| (known.committed)(*reader).is_none() || Some(*reader) == highest);
};

/// Line 9: of the pending readers only those with a higher lsv than that one.
const PENDING_READERS_ABOVE_IT: Cut = |message, known| {
    let Some(incoming) = gathered(message) else { return };
    let is_committed = |reader: &&TxnId| (known.committed)(**reader).is_some();
    let committed = incoming.readers.iter().filter(is_committed);
    let highest = committed.map(|reader| (known.lsv)(*reader)).max();
    let is_kept = |reader: &TxnId| is_committed(&reader) || Some((known.lsv)(*reader)) > highest;
    incoming.readers.retain(is_kept);
};

/// Appendix C.2.3: the log entry of a transaction is removed when no pending one started before it
/// committed, and its readset with it.
const FORGOTTEN_READERS_ARE_NOBODY: Cut = |message, known| {
    let Body::Gather { incoming, staleness, .. } = &mut message.body else { return };
    let oldest = staleness.iter().map(|(_, value)| *value).min();
    incoming.readers.retain(|reader| (known.committed)(*reader) > oldest);
    incoming.doomed = None;
};

struct History {
    cluster: Cluster,
}

impl History {
    fn new(size: u32, cut: Cut) -> History {
        History::with(size, cut, Limits::default(), false)
    }

    fn with(size: u32, cut: Cut, limits: Limits, forgets: bool) -> History {
        let mut cluster = Cluster::new(size, limits, forgets);
        cluster.meddle = cut;
        cluster.judge.only_records = true;
        History { cluster }
    }

    fn begin(&mut self, name: (u32, u64), begin: u64) {
        let (id, begin) = (id(name.0, name.1), Timestamp(begin));
        self.cluster.step(name.0 as usize, Event::Begin { id, begin });
    }

    fn submit(&mut self, name: (u32, u64), begin: u64, reads: &[u64], writes: &[u64]) {
        let transaction = Transaction {
            id: id(name.0, name.1),
            begin: Timestamp(begin),
            lsv: Lsv::default(),
            reads: reads.iter().map(|&key| row(key)).collect::<Vec<Read>>(),
            versions: Vec::new(),
            writes: writes.iter().map(|&key| update(key)).collect::<Vec<Write>>(),
        };
        let lsv = self.cluster.judge.oracle.lsv(&transaction);
        let transaction = Transaction { lsv: Lsv { low: lsv, high: lsv }, ..transaction };
        self.cluster.judge.submitted.insert(transaction.id, transaction.clone());
        self.cluster.step(name.0 as usize, Event::Submit(transaction));
    }

    fn commit(&mut self, name: (u32, u64), begin: u64, reads: &[u64], writes: &[u64]) {
        self.submit(name, begin, reads, writes);
        self.cluster.drain();
    }

    /// The next message to a site arrives.
    fn arrive(&mut self, site: usize) {
        let message = self.cluster.links[site].pop_front().expect("a message");
        self.cluster.step(site, Event::Receive(message));
    }

    /// How many committed, and whether that is serializable.
    fn end(mut self) -> (usize, bool) {
        self.cluster.drain();
        let oracle = &self.cluster.judge.oracle;
        (oracle.committed.len(), oracle.is_serializable())
    }
}

/// Runs a history both ways: one more transaction commits if messages are cut down, and that is
/// not serializable.
fn compare(history: fn(Cut) -> History, cut: Cut) {
    let (right, is_serializable) = history(AS_IT_IS).end();
    assert!(is_serializable);
    let (wrong, is_serializable) = history(cut).end();
    assert_eq!(wrong, right + 1);
    assert!(!is_serializable);
}

/// Plain write skew of two sites at once. Each reads what the other writes; neither knows of the
/// other when it is proposed. The later one reads what the earlier one writes, but when the
/// earlier one comes by it is not told, because its reader comes later in the order.
#[test]
fn a_reader_later_in_the_order_that_did_not_know_the_writer() {
    let history = |cut| {
        let mut history = History::new(2, cut);
        history.submit((0, 1), 0, &[1, 2], &[1]);
        history.submit((1, 1), 0, &[1, 2], &[2]);
        history
    };
    compare(history, EARLIER_READERS_ONLY);
}

/// T_i writes what two committed transactions of site 0 have read: T_h, alone, and T_f of a lower
/// lsv, behind the peak T_p of a higher one, which is undecided when T_i passes. The pair of T_h
/// displaces T_f, the follow of T_p -> T_f -> T_i.
#[test]
fn a_follow_displaced_by_a_reader_of_a_higher_lsv() {
    let history = |cut| {
        let mut history = History::new(3, cut);
        history.commit((0, 1), 0, &[], &[10]);
        history.commit((0, 2), 1, &[], &[11]);
        history.commit((0, 3), 2, &[], &[12]);
        let (x, y, z) = (1, 2, 3);
        history.commit((0, 4), 1, &[x], &[y]); // T_f
        history.commit((0, 5), 2, &[x, 10], &[]); // T_h
        history.submit((1, 1), 3, &[11, y], &[z]); // T_p
        history.arrive(2);
        history.submit((2, 1), 5, &[z], &[x]); // T_i
        history
    };
    compare(history, ONE_COMMITTED_READER);
}

/// The same, with T_f pending at its site when T_i passes there, and T_h committed.
#[test]
fn a_pending_follow_filtered_out_by_a_committed_reader_of_a_higher_lsv() {
    let history = |cut| {
        let mut history = History::new(3, cut);
        history.commit((0, 1), 0, &[], &[10]);
        history.commit((0, 2), 1, &[], &[11]);
        history.commit((0, 3), 2, &[], &[12]);
        let (x, y, z) = (1, 2, 3);
        history.commit((2, 1), 2, &[x, 10], &[]); // T_h
        history.submit((0, 4), 4, &[11, y], &[z]); // T_p
        history.submit((2, 2), 1, &[x], &[y]); // T_f
        history.arrive(1);
        history.submit((1, 1), 4, &[z], &[x]); // T_i
        history
    };
    compare(history, PENDING_READERS_ABOVE_IT);
}

/// The schedule of decision 0003. T_p -> T_f -> T_t -> T_p, where T_p has ended and is forgotten
/// when T_f is certified: nobody who is pending by then began before T_p committed. The edge from
/// T_p is the first of the only descending structure.
fn history_with_an_early_peak(cut: Cut, spare_max: usize) -> History {
    let limits = Limits { spare_max, ..Limits::default() };
    let mut history = History::with(2, cut, limits, true);
    let (w, x, y, z) = (1, 2, 3, 4);
    let (p, t, f) = ((0, 5), (1, 1), (1, 2));
    history.commit((0, 1), 0, &[], &[10]);
    history.commit((0, 2), 1, &[], &[x]);
    history.commit((0, 3), 2, &[], &[11]);
    history.commit((0, 4), 3, &[], &[w]);
    history.begin(t, 4);
    history.commit(p, 4, &[x, w], &[z]);
    history.commit((0, 6), 5, &[], &[12]);
    history.begin(f, 6);
    history.commit(t, 4, &[z], &[y]);
    history.submit(f, 6, &[x, y], &[x]);
    history
}

#[test]
fn a_committed_reader_that_is_not_concurrent_with_the_writer() {
    compare(|cut| history_with_an_early_peak(cut, 100), FORGOTTEN_READERS_ARE_NOBODY);
}

/// With a floor for the lsv of later transactions it stays serializable.
#[test]
fn forgetting_a_committed_reader_with_a_floor_for_the_lsv_of_later_writers() {
    let mut history = history_with_an_early_peak(AS_IT_IS, 0);
    let (_, before) = history.cluster.managers[0].remembered();
    history.cluster.drain();
    let (_, readsets) = history.cluster.managers[0].remembered();
    assert!(readsets <= before);
    let (committed, is_serializable) = history.end();
    assert_eq!((committed, is_serializable), (7, true));
}
