//! A small database with all its versions, sites that lag behind, and random transactions on it:
//! what they read and wrote is known in full, so that oracles can judge what was admitted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_certify::certification::{Lsv, SiteId, Timestamp, Transaction, TxnId};
use hihooi_replication::items::RelId;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// The columns of a row: 1 and 2.
pub type Row = [i64; 2];
/// The rows of all tables.
pub type State = BTreeMap<(RelId, RowKey), Row>;
/// What a read showed.
pub type Seen = Vec<((RelId, RowKey), [Option<i64>; 2])>;

const VALUES: i64 = 6;

/// How a history comes about.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Rows of each of the two tables.
    pub rows: u128,
    /// Reads and writes of a transaction, at most each.
    pub items: usize,
    /// Of 100 reads, so many are of ranges, tables or everything.
    pub wide: u32,
    /// Transactions that are pending at once, at most.
    pub pending: usize,
    /// Of 100 transactions, so many know bounds of their lsv only.
    pub inexact: u32,
    /// Reads of a transaction happen at different moments (vDBSM paper: two-phase locking).
    pub moments: bool,
}

impl Setting {
    /// A random one.
    pub fn random(random: &mut Pcg64Mcg) -> Setting {
        Setting {
            rows: random.random_range(1..8),
            items: random.random_range(1..5),
            wide: [0, 10, 40][random.random_range(0..3)],
            pending: random.random_range(2..12),
            inexact: [0, 0, 50][random.random_range(0..3)],
            moments: false,
        }
    }
}

/// A transaction that wants to commit, and what it really does.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What the certifier is told.
    pub transaction: Transaction,
    /// What each read showed.
    pub seen: Vec<Seen>,
    /// Up to which commit each read saw.
    pub moments: Vec<Timestamp>,
    /// For each write: the columns that it sets, or that the row goes or comes.
    pub effects: Vec<Effect>,
    /// Its exact lsv.
    pub lsv: Timestamp,
}

/// What a write does to its row.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// The row comes.
    Insert(Row),
    /// These columns get a value.
    Set([Option<i64>; 2]),
    /// The row goes.
    Delete,
}

/// A transaction that committed.
#[derive(Clone, Debug)]
pub struct Committed {
    /// What it was.
    pub attempt: Attempt,
    /// Its position.
    pub at: Timestamp,
}

/// The database, its sites and what committed.
pub struct World {
    /// Where chance comes from.
    pub random: Pcg64Mcg,
    /// How it goes.
    pub setting: Setting,
    /// All that committed, in order.
    pub committed: Vec<Committed>,
    states: Vec<State>,
    sites: [u64; 3],
    pending: Vec<(u32, u64)>,
    count: u64,
}

impl World {
    /// At the beginning some rows are there.
    pub fn new(seed: u64) -> World {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let setting = Setting::random(&mut random);
        let mut state = State::new();
        for key in 0..setting.rows {
            for table in [RelId(1), RelId(2)] {
                if random.random_ratio(2, 3) {
                    let row = [random.random_range(0..VALUES), random.random_range(0..VALUES)];
                    state.insert((table, RowKey(key)), row);
                }
            }
        }
        World {
            random,
            setting,
            committed: Vec::new(),
            states: vec![state],
            sites: [0; 3],
            pending: Vec::new(),
            count: 0,
        }
    }

    /// The position of the last attempt.
    pub fn clock(&self) -> Timestamp {
        Timestamp(self.states.len() as u64 - 1)
    }

    /// No transaction that comes to certification began before this.
    pub fn staleness(&self) -> Timestamp {
        let begins = self.pending.iter().map(|(_, begin)| *begin);
        Timestamp(begins.chain(self.sites).min().unwrap_or(0))
    }

    /// The state of the database after all.
    pub fn state(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// The state of the database before all.
    pub fn first_state(&self) -> &State {
        &self.states[0]
    }

    /// The next transaction that wants to commit.
    pub fn attempt(&mut self) -> Attempt {
        loop {
            let site = self.random.random_range(0..3u32);
            let position = &mut self.sites[site as usize];
            if self.random.random_ratio(1, 2) {
                *position = self.random.random_range(*position..=self.states.len() as u64 - 1);
            }
            if self.pending.len() < self.setting.pending && self.random.random_ratio(3, 5) {
                self.pending.push((site, *position));
            } else if !self.pending.is_empty() {
                let which = self.random.random_range(0..self.pending.len());
                let (site, begin) = self.pending.remove(which);
                return self.make(site, begin);
            }
        }
    }

    /// The attempt was decided.
    pub fn decided(&mut self, attempt: &Attempt, commits: bool) {
        let mut state = self.state().clone();
        if commits {
            attempt.apply(&mut state);
            let at = Timestamp(self.states.len() as u64);
            self.committed.push(Committed { attempt: attempt.clone(), at });
        }
        self.states.push(state);
    }

    fn make(&mut self, site: u32, begin: u64) -> Attempt {
        let reads: Vec<Read> =
            (0..self.random.random_range(0..=self.setting.items)).map(|_| self.read()).collect();
        let writes = self.random.random_range(0..=self.setting.items);
        let latest = self.sites[site as usize].max(begin);
        let moments: Vec<u64> = reads
            .iter()
            .map(|_| match self.setting.moments && writes > 0 {
                true => self.random.random_range(begin..=latest),
                false => begin,
            })
            .collect();
        let seen = reads
            .iter()
            .zip(&moments)
            .map(|(read, moment)| show(read, &self.states[*moment as usize]))
            .collect();
        let (writes, effects) = self.writes(writes, begin, &reads, &moments);
        let lsv = self.version(&reads, &writes, begin);
        let versions = match self.setting.moments {
            true => {
                let each = reads.iter().zip(&moments);
                each.map(|(read, moment)| self.version(std::slice::from_ref(read), &[], *moment))
                    .collect()
            }
            false => Vec::new(),
        };
        self.count += 1;
        let id = TxnId { site: SiteId(site), number: self.count };
        let bounds = self.bounds(lsv, begin);
        let transaction =
            Transaction { id, begin: Timestamp(begin), lsv: bounds, reads, versions, writes };
        let moments = moments.into_iter().map(Timestamp).collect();
        Attempt { transaction, seen, moments, effects, lsv }
    }

    fn bounds(&mut self, lsv: Timestamp, begin: u64) -> Lsv {
        if self.random.random_range(0..100) >= self.setting.inexact {
            return Lsv { low: lsv, high: lsv };
        }
        Lsv {
            low: Timestamp(self.random.random_range(0..=lsv.0)),
            high: Timestamp(self.random.random_range(lsv.0..=begin)),
        }
    }

    /// The last to commit, up to a moment, of those that touched the reads or wrote the rows.
    fn version(&self, reads: &[Read], writes: &[Write], moment: u64) -> Timestamp {
        let touches = |write: &Write| {
            reads.iter().any(|read| read.touched_by(write))
                || writes.iter().any(|other| other.same_row(write))
        };
        let before = self.committed.iter().rev().filter(|one| one.at.0 <= moment);
        before
            .filter(|one| one.attempt.transaction.writes.iter().any(touches))
            .map(|one| one.at)
            .next()
            .unwrap_or_default()
    }

    fn columns(&mut self) -> Columns {
        let sets = [vec![], vec![1], vec![2], vec![1, 2]];
        let set = &sets[self.random.random_range(0..sets.len())];
        Columns::of(set.iter().map(|column| Column(*column)))
    }

    fn place(&mut self) -> (RelId, RowKey) {
        let key = self.random.random_range(0..self.setting.rows);
        (RelId(self.random.random_range(1..3)), RowKey(key))
    }

    fn read(&mut self) -> Read {
        let ((table, key), columns) = (self.place(), self.columns());
        if self.random.random_range(0..100) >= self.setting.wide {
            return Read::Row { table, key, columns };
        }
        match self.random.random_range(0..20) {
            0 => Read::Everything,
            1..4 => Read::Table { table, columns },
            _ => {
                let conditions = (0..self.random.random_range(0..3)).map(|_| self.condition());
                Read::Rows { table, conditions: conditions.collect(), columns }
            }
        }
    }

    fn condition(&mut self) -> Condition {
        let mut bound = || {
            let value = Datum::Int(self.random.random_range(0..VALUES));
            match self.random.random_range(0..5) {
                0 => Bound::Unbounded,
                1 | 2 => Bound::Excluded(value),
                _ => Bound::Included(value),
            }
        };
        let (low, high) = (bound(), bound());
        Condition { column: Column(self.random.random_range(1..3)), low, high }
    }

    /// Writes of different rows. Each knows its row as its own read of it showed it, else as the
    /// snapshot did.
    fn writes(
        &mut self,
        count: usize,
        begin: u64,
        reads: &[Read],
        moments: &[u64],
    ) -> (Vec<Write>, Vec<Effect>) {
        let places: BTreeSet<_> = (0..count).map(|_| self.place()).collect();
        let moment = |place: &(RelId, RowKey)| {
            let of_place = |read: &Read| matches!(read, Read::Row { table, key, .. } if (*table, *key) == *place);
            reads.iter().position(of_place).map_or(begin, |i| moments[i])
        };
        let write = |place: (RelId, RowKey)| {
            let before = self.states[moment(&place) as usize].get(&place).copied();
            self.write(place, before)
        };
        places.into_iter().map(write).collect::<Vec<_>>().into_iter().unzip()
    }

    fn write(&mut self, (table, key): (RelId, RowKey), before: Option<Row>) -> (Write, Effect) {
        let mut value = || self.random.random_range(0..VALUES);
        let effect = match (before, value()) {
            (None, _) => Effect::Insert([value(), value()]),
            (Some(_), 0) => Effect::Delete,
            (Some(_), 1 | 2) => Effect::Set([Some(value()), None]),
            (Some(_), 3 | 4) => Effect::Set([None, Some(value())]),
            (Some(_), _) => Effect::Set([Some(value()), Some(value())]),
        };
        let after = effect.on(before);
        let columns = match effect {
            Effect::Set(set) if self.random.random_ratio(4, 5) => {
                let set = [1, 2].into_iter().filter(|one| set[usize::from(*one) - 1].is_some());
                Columns::of(set.map(Column))
            }
            _ => Columns::ALL,
        };
        let (before, after) = (self.image(before), self.image(after));
        (Write { table, key, columns, before, after }, effect)
    }

    /// Sometimes not all of it is known.
    fn image(&mut self, row: Option<Row>) -> Option<Image> {
        let known = [(Column(1), 0), (Column(2), 1)];
        row.map(|row| {
            let known = known.into_iter().filter(|_| self.random.random_ratio(9, 10));
            Image(known.map(|(column, i)| (column, Datum::Int(row[i]))).collect())
        })
    }
}

impl Attempt {
    /// What it does to the database.
    pub fn apply(&self, state: &mut State) {
        for (write, effect) in self.transaction.writes.iter().zip(&self.effects) {
            let place = (write.table, write.key);
            match effect.on(state.get(&place).copied()) {
                Some(row) => state.insert(place, row),
                None => state.remove(&place),
            };
        }
    }
}

impl Effect {
    fn on(self, before: Option<Row>) -> Option<Row> {
        match self {
            Effect::Insert(row) => Some(row),
            Effect::Delete => None,
            Effect::Set([a, b]) => {
                before.map(|[old_a, old_b]| [a.unwrap_or(old_a), b.unwrap_or(old_b)])
            }
        }
    }
}

/// What the read shows of a state.
pub fn show(read: &Read, state: &State) -> Seen {
    let rows = state.iter().filter(|(place, row)| match read {
        Read::Everything => true,
        Read::Table { table, .. } => place.0 == *table,
        Read::Row { table, key, .. } => **place == (*table, *key),
        Read::Rows { table, conditions, .. } => {
            let holds = |condition: &Condition| {
                condition.admits(&Datum::Int(row[usize::from(condition.column.0) - 1]))
            };
            place.0 == *table && conditions.iter().all(holds)
        }
    });
    let looked = |column: u16| match read {
        Read::Everything => true,
        Read::Table { columns, .. } | Read::Row { columns, .. } => columns.has(Column(column)),
        Read::Rows { conditions, columns, .. } => {
            let asked = conditions.iter().any(|condition| condition.column.0 == column);
            asked || columns.has(Column(column))
        }
    };
    let value = |row: &Row, column: u16| looked(column).then_some(row[usize::from(column) - 1]);
    rows.map(|(place, row)| (*place, [value(row, 1), value(row, 2)])).collect()
}
