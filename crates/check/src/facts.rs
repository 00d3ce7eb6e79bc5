//! The facts in a history, for each key: which transactions committed, in which order a list grew, and what
//! each transaction read of the others.
//!
//! The order of a list's versions is what its longest read shows: a list only grows at its end.

use ahash::{AHashMap, AHashSet};

use crate::history::{History, Key, Outcome, Shape, Step, Txn, Value};

/// A committed transaction's read of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRead {
    pub txn: Txn,
    pub start: u32,
    /// All that was read.
    pub len: u32,
    /// Without the reader's own appends at the end.
    pub external: u32,
}

/// A committed transaction's read of a register before it wrote that register itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterRead {
    pub txn: Txn,
    /// `None`: never set.
    pub seen: Option<Value>,
}

/// The last value that a transaction that may have committed left in a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub txn: Txn,
    pub value: Value,
    /// What the transaction had read of the key before its first write.
    pub base: Base,
}

/// What a transaction read of a key before its first write there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Base {
    Unread,
    /// A list of that many values of others, ending in this one.
    List(u32, Option<Value>),
    Register(Option<Value>),
}

/// A read that doesn't show the transaction's own earlier writes as they must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnWriteBroken {
    pub txn: Txn,
    pub key: Key,
}

/// All there is to know about one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyFacts {
    pub list_reads: Vec<ListRead>,
    pub register_reads: Vec<RegisterRead>,
    /// One for each writing transaction that committed, in the order of their numbers.
    pub writes: Vec<Write>,
    /// Index of the longest read.
    pub longest: Option<usize>,
    /// Reads that are no beginning of the longest one.
    pub incompatible: Vec<usize>,
}

/// What a history says.
pub(crate) struct Facts<'a> {
    pub history: &'a History,
    pub keys: Vec<KeyFacts>,
    /// By transaction: told so, or of unknown outcome and seen by one that committed.
    pub committed: Vec<bool>,
    pub own_writes_broken: Vec<OwnWriteBroken>,
}

impl<'a> Facts<'a> {
    pub fn of(history: &'a History) -> Facts<'a> {
        let told = |r: &crate::history::Record| r.outcome == Outcome::Committed;
        let mut facts = Facts {
            history,
            keys: vec![KeyFacts::default(); history.keys()],
            committed: history.records.iter().map(told).collect(),
            own_writes_broken: Vec::new(),
        };
        history.txns().for_each(|txn| facts.note_reads(txn));
        facts.keys.iter_mut().for_each(|key| key.find_longest(history));
        facts.note_unknown_that_committed();
        history.txns().for_each(|txn| facts.note_writes(txn));
        facts
    }

    /// The values that a list read showed.
    pub fn elements(&self, read: &ListRead) -> &'a [Value] {
        self.history.elements(read.start, read.len)
    }

    /// The values of a list in the order of their versions, as far as anybody saw them.
    pub fn order(&self, key: Key) -> &'a [Value] {
        let facts = &self.keys[key as usize];
        facts.longest.map_or(&[], |at| self.elements(&facts.list_reads[at]))
    }

    fn note_reads(&mut self, txn: Txn) {
        if self.history.record(txn).outcome != Outcome::Committed {
            return;
        }
        let mut own = OwnWrites::default();
        for step in self.history.steps(txn) {
            let (key, is_kept) = match *step {
                Step::Append(key, value) | Step::Write(key, value) => {
                    let early = own.read.get(&key).into_iter().flatten();
                    let shown = |&(start, len): &(u32, u32)| {
                        self.history.elements(start, len).contains(&value)
                    };
                    let shown_early = early.into_iter().any(shown);
                    own.written.entry(key).or_default().push(value);
                    (key, !shown_early)
                }
                Step::List { key, start, len } => {
                    let is_kept = self.note_read(txn, key, *step, own.of(key));
                    own.read.entry(key).or_default().push((start, len));
                    (key, is_kept)
                }
                Step::Register(key, _) | Step::Nothing(key) => {
                    (key, self.note_read(txn, key, *step, own.of(key)))
                }
            };
            if !is_kept {
                self.own_writes_broken.push(OwnWriteBroken { txn, key });
            }
        }
    }

    /// Notes a read by a transaction that had written `own` before; whether those show.
    fn note_read(&mut self, txn: Txn, key: Key, step: Step, own: &[Value]) -> bool {
        let history = self.history;
        let facts = &mut self.keys[key as usize];
        match step {
            Step::List { start, len, .. } => {
                let list = history.elements(start, len);
                let external = list.len() - own_at_end(list, own);
                let external = external as u32;
                facts.list_reads.push(ListRead { txn, start, len, external });
                shows(list, own)
            }
            Step::Nothing(_) if history.shapes[key as usize] == Shape::List => {
                facts.list_reads.push(ListRead { txn, start: 0, len: 0, external: 0 });
                own.is_empty()
            }
            _ => {
                let seen = if let Step::Register(_, value) = step { Some(value) } else { None };
                match own.last() {
                    Some(&mine) => seen == Some(mine),
                    None => {
                        facts.register_reads.push(RegisterRead { txn, seen });
                        let own = seen.and_then(|value| history.writer(key, value));
                        own.is_none_or(|writer| writer.txn != txn)
                    }
                }
            }
        }
    }

    fn note_unknown_that_committed(&mut self) {
        let history = self.history;
        for key in 0..self.keys.len() as Key {
            let facts = &self.keys[key as usize];
            let odd = facts.incompatible.iter().chain(facts.longest.iter());
            let lists = odd.flat_map(|&at| {
                let read = &facts.list_reads[at];
                history.elements(read.start, read.len)
            });
            let registers = facts.register_reads.iter().filter_map(|read| read.seen.as_ref());
            for &value in lists.chain(registers) {
                if let Some(writer) = history.writer(key, value)
                    && history.record(writer.txn).outcome == Outcome::Unknown
                {
                    self.committed[writer.txn as usize] = true;
                }
            }
        }
    }

    fn note_writes(&mut self, txn: Txn) {
        if !self.committed[txn as usize] {
            return;
        }
        let reads_count = self.history.record(txn).outcome == Outcome::Committed;
        let mut bases: AHashMap<Key, Base> = AHashMap::new();
        let steps = self.history.steps(txn);
        let writes = steps.iter().any(|s| matches!(s, Step::Append(..) | Step::Write(..)));
        for step in steps.iter().filter(|_| writes) {
            match *step {
                Step::Append(key, value) | Step::Write(key, value) => {
                    let base = *bases.entry(key).or_insert(Base::Unread);
                    let last = self.history.writer(key, value).is_some_and(|writer| writer.last);
                    if last {
                        self.keys[key as usize].writes.push(Write { txn, value, base });
                    }
                }
                _ if !reads_count => {}
                Step::List { key, start, len } => {
                    let last = self.history.elements(start, len).last().copied();
                    bases.entry(key).or_insert(Base::List(len, last));
                }
                Step::Register(key, value) => {
                    bases.entry(key).or_insert(Base::Register(Some(value)));
                }
                Step::Nothing(key) => {
                    let list = self.history.shapes[key as usize] == Shape::List;
                    let base = if list { Base::List(0, None) } else { Base::Register(None) };
                    bases.entry(key).or_insert(base);
                }
            }
        }
    }
}

impl KeyFacts {
    fn find_longest(&mut self, history: &History) {
        let len = |at: &usize| self.list_reads[*at].len;
        // The first of the longest ones.
        let Some(longest) = (0..self.list_reads.len()).rev().max_by_key(len) else { return };
        let of = |read: &ListRead| history.elements(read.start, read.len);
        let order = of(&self.list_reads[longest]);
        let odd = |at: &usize| !order.starts_with(of(&self.list_reads[*at]));
        self.incompatible = (0..self.list_reads.len()).filter(odd).collect();
        self.longest = Some(longest);
    }

    /// Values of a list that nobody read, by those who appended them.
    pub fn unread<'b>(&'b self, order: &[Value]) -> impl Iterator<Item = &'b Write> + use<'b> {
        let seen: AHashSet<Value> = order.iter().copied().collect();
        self.writes.iter().filter(move |write| !seen.contains(&write.value))
    }
}

/// How many values at the end of a list are the reader's own.
fn own_at_end(list: &[Value], own: &[Value]) -> usize {
    list.iter().rev().take_while(|value| own.contains(value)).count()
}

/// Whether a list shows all of `own`, in their order, at its end. Values of others behind them
/// are left to the version order, which then has a cycle.
fn shows(list: &[Value], own: &[Value]) -> bool {
    let mut rest = own.iter().peekable();
    for value in list {
        if rest.peek() == Some(&value) {
            rest.next();
        }
    }
    rest.peek().is_none()
}

/// What a transaction has written, and which lists it has read, so far.
#[derive(Default)]
struct OwnWrites {
    written: AHashMap<Key, Vec<Value>>,
    /// Start and length.
    read: AHashMap<Key, Vec<(u32, u32)>>,
}

impl OwnWrites {
    fn of(&self, key: Key) -> &[Value] {
        if self.written.is_empty() {
            return &[];
        }
        self.written.get(&key).map_or(&[], Vec::as_slice)
    }
}
