//! Golden test: the paper's Figure 2, as its text tells it (DynaMast paper, section III-A): how
//! commits and their propagation affect the site version vectors of three sites, and how the
//! update application rule blocks. `HIHOOI_BLESS=1` rewrites the golden file.
//!
//! The paper's sites commit before their log is read; here each site's own record comes back to
//! it first, which is not a step of its own.

use std::fmt::Write;

use hihooi_mastering::ids::{PartitionId, SiteId, TxnId};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::Record;
use hihooi_mastering::refresh::Order;
use hihooi_mastering::site::{Effect, Event, Site, SiteConfig};
use hihooi_mastering::vector::{ClientVector, SiteVector};

type Logged = (u64, Record<&'static str>);

struct Figure {
    sites: Vec<Site<&'static str>>,
    text: String,
    step: u32,
}

impl Figure {
    fn new() -> Figure {
        let homes = Homes::Given((0..3).map(SiteId).collect());
        let site = |me| {
            let mut config = SiteConfig::new(SiteId(me), 3, 3, homes.clone());
            config.order = Order::Causal;
            Site::new(config)
        };
        Figure { sites: (0..3).map(site).collect(), text: String::new(), step: 0 }
    }

    fn tell(&mut self, what: &str) {
        self.step += 1;
        let vectors: Vec<String> = (self.sites.iter().zip(1..))
            .map(|(site, n)| format!("svv{n} = {}", site.vector()))
            .collect();
        writeln!(self.text, "{}. {what}\n   {}", self.step, vectors.join("  ")).unwrap();
    }

    /// Begins an update of the site's own partition.
    fn begin(&mut self, site: usize, txn: u64) {
        let (seen, floor) = (ClientVector::zero(3), SiteVector::zero(3));
        let partitions = vec![PartitionId(site as u32)];
        let event = Event::Begin { txn: TxnId(txn), seen, floor, partitions };
        let effects = self.sites[site].step(event);
        let Some(Effect::Begun { snapshot, .. }) = effects.first() else { panic!("{effects:?}") };
        let what = format!("T{txn} begins at S{}, its begin vector is {snapshot}", site + 1);
        self.tell(&what);
    }

    /// Commits it and gives its record for the other sites.
    fn commit(&mut self, site: usize, txn: u64, writes: &'static str) -> Logged {
        let touched = vec![PartitionId(site as u32)];
        let event = Event::Commit { txn: TxnId(txn), writes: Some(writes), touched };
        let effects = self.sites[site].step(event);
        let [Effect::Append(record)] = &effects[..] else { panic!("{effects:?}") };
        let logged = (record.vector.number(), record.clone());
        let what = format!("T{txn} commits at S{} as {}: {writes}", site + 1, record.vector);
        self.sites[site].step(Event::Logged { position: logged.0, record: logged.1.clone() });
        self.tell(&what);
        logged
    }

    /// Brings a record to a site and says what becomes visible.
    fn refresh(&mut self, site: usize, txn: u64, logged: &Logged) {
        let (position, record) = logged.clone();
        let effects = self.sites[site].step(Event::Logged { position, record });
        let applied: Vec<String> = (effects.iter())
            .filter_map(|effect| match effect {
                Effect::Apply { txn, writes, .. } => Some(format!("R({txn}) commits: {writes}")),
                _ => None,
            })
            .collect();
        let outcome = if applied.is_empty() { "blocked".to_owned() } else { applied.join("; ") };
        let what = format!("R(T{txn}) reaches S{}: {outcome}", site + 1);
        self.tell(&what);
    }
}

#[test]
fn figure_2() {
    let mut figure = Figure::new();
    figure.tell("nothing happened yet");
    figure.begin(0, 1);
    let t1 = figure.commit(0, 1, "x := 1");
    figure.refresh(2, 1, &t1);
    figure.begin(2, 2);
    let t2 = figure.commit(2, 2, "y := x + 1");
    figure.refresh(1, 2, &t2);
    figure.refresh(1, 1, &t1);
    figure.refresh(0, 2, &t2);
    compare(&figure.text);
}

fn compare(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/figure2.golden");
    if std::env::var_os("HIHOOI_BLESS").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, golden, "differs from {path}; HIHOOI_BLESS=1 rewrites it");
}
