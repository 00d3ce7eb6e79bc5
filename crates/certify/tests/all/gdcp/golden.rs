//! Figure 2 of the RSSI paper, told in its appendix B.1, message by message: three replicas on a
//! ring, one transaction each, lsv3 < lsv2 < lsv1 and c1 < c2 < c3. `HIHOOI_BLESS=1` rewrites the
//! golden file.

use std::collections::VecDeque;
use std::fmt::Write as _;

use hihooi_certify::certification::items::{Read, Write};
use hihooi_certify::certification::{Lsv, SiteId, Timestamp, Transaction, TxnId};
use hihooi_certify::gdcp::manager::{Event, RingManager};
use hihooi_certify::gdcp::message::{Body, Incoming, Message};
use hihooi_certify::gdcp::view::{Succession, View};
use hihooi_certify::gdcp::{Effect, Limits, Outcome};

use super::oracle::{id, row, update};

const START: Timestamp = Timestamp(3);

fn transaction(site: u32, lsv: u64, reads: Vec<Read>, writes: Vec<Write>) -> Transaction {
    let lsv = Lsv { low: Timestamp(lsv), high: Timestamp(lsv) };
    Transaction { id: id(site, 1), begin: START, lsv, reads, versions: Vec::new(), writes }
}

struct Figure {
    managers: Vec<RingManager>,
    links: Vec<VecDeque<Message>>,
    text: String,
}

fn names(ids: &[TxnId]) -> String {
    let names: Vec<String> = ids.iter().map(|id| format!("T{}", id.site.0)).collect();
    if names.is_empty() { "-".into() } else { names.join(",") }
}

fn show(message: &Message) -> String {
    let writeset = format!("W{}", message.order.position + 1);
    let edges = |incoming: &Incoming| match incoming.doomed {
        Some(_) => "(marked)".into(),
        None => names(&incoming.readers),
    };
    match &message.body {
        Body::Gather { proposal, incoming, .. } => {
            format!("<{writeset}, out {}, in {}>", names(&proposal.out), edges(incoming))
        }
        Body::Decide { incoming, .. } => format!("<{writeset}, in {}, Decide>", edges(incoming)),
        Body::Safe => format!("<{writeset}, Safe>"),
    }
}

impl Figure {
    fn new(by_the_letter: bool) -> Figure {
        let limits = Limits { by_the_letter, ..Limits::default() };
        let members = (1..=3).map(|site| (SiteId(site), 0)).collect();
        let view = View { number: 1, members, start: START };
        let succession = Succession { view, decisions: Vec::new() };
        let mut managers: Vec<RingManager> =
            (1..=3).map(|site| RingManager::new(SiteId(site), 0, START, limits)).collect();
        for manager in &mut managers {
            manager.step(Event::NewView(succession.clone()));
        }
        Figure { managers, links: vec![VecDeque::new(); 3], text: String::new() }
    }

    fn step(&mut self, site: usize, event: Event) {
        for effect in self.managers[site].step(event) {
            let what = match effect {
                Effect::Transmit(message) => {
                    self.links[(site + 1) % 3].push_back(message);
                    continue;
                }
                Effect::Decided(decided) => {
                    let verb = match decided.outcome {
                        Outcome::Committed => "delivers",
                        _ => "discards",
                    };
                    format!("{verb} T{} at {}", decided.id.site.0, decided.at.0)
                }
                Effect::Released(at) => format!("releases up to {}", at.0),
                other => panic!("not in the figure: {other:?}"),
            };
            writeln!(self.text, "  R{}: {what}", site + 1).expect("a string");
        }
    }

    /// All messages that were sent before this round arrive in it.
    fn round(&mut self, number: u32) -> bool {
        let arriving = std::mem::replace(&mut self.links, vec![VecDeque::new(); 3]);
        if arriving.iter().all(VecDeque::is_empty) {
            return false;
        }
        writeln!(self.text, "round {number}").expect("a string");
        for (site, messages) in arriving.into_iter().enumerate() {
            for message in messages {
                let sender = (site + 2) % 3 + 1;
                let shown = show(&message);
                writeln!(self.text, "  R{sender} -> R{}: {shown}", site + 1).expect("a string");
                self.step(site, Event::Receive(message));
            }
        }
        true
    }
}

#[test]
fn figure_2() {
    let text = play(true);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/gdcp/figure_2.txt");
    if std::env::var_os("HIHOOI_BLESS").is_some() {
        std::fs::write(file, &text).expect("the golden file is writable");
    }
    let golden = std::fs::read_to_string(file).expect("the golden file");
    assert_eq!(text, golden, "HIHOOI_BLESS=1 rewrites it");
}

/// Decision 0003: with lsv chosen the same messages travel, and T3 commits, since nothing leads
/// back from it.
#[test]
fn figure_2_with_lsv_chosen() {
    assert_eq!(play(false), play(true).replace("discards T3", "delivers T3"));
}

fn play(by_the_letter: bool) -> String {
    let mut figure = Figure::new(by_the_letter);
    // T1 reads what T2 writes, T2 reads what T3 writes.
    let transactions = [
        transaction(1, 3, vec![row(1), row(2)], vec![update(1)]),
        transaction(2, 2, vec![row(2), row(3)], vec![update(2)]),
        transaction(3, 1, vec![row(3)], vec![update(3)]),
    ];
    for (site, transaction) in transactions.into_iter().enumerate() {
        figure.step(site, Event::Submit(transaction));
    }
    let rounds = (1..).take_while(|&number| figure.round(number)).count();
    assert_eq!(rounds, 7, "five as in the paper, two for the release");
    figure.text
}
