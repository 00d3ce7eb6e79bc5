//! Reads histories as JSON lines in Jepsen's format.
//!
//! One object a line: `index`, `time` (ns), `process`, `type` (`invoke`, `ok`, `fail`, `info`), `f` and
//! `value`; other keys are ignored. Anything that isn't an object is refused. Lines whose `f` is not `txn` come
//! from the nemesis or the set-up and are skipped. If a line of any transaction has no time, the order of the
//! lines is used instead of time for all of them.

use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read};

use ahash::AHashMap;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::history::{Atom, BadHistory, History, Op, Outcome, Seen, Txn};

/// A longer line is refused.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// The parts stay unread until the line is known to be a transaction's.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    f: Option<&'a RawValue>,
    #[serde(borrow, default)]
    process: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    time: Option<&'a RawValue>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "final")]
    is_final: Option<&'a RawValue>,
}

impl Line<'_> {
    fn is_final(&self) -> bool {
        self.is_final.is_some_and(|raw| raw.get() == "true")
    }
}

/// A transaction that was invoked and is not complete.
struct Pending {
    txn: Txn,
    ops: Vec<Op>,
}

struct Reader {
    history: History,
    /// At most one for each process.
    pending: AHashMap<i64, Pending>,
    line: usize,
    has_times: bool,
}

impl History {
    /// Reads a history.
    ///
    /// # Errors
    /// The first line that can't be understood, and why.
    pub fn read(input: impl BufRead) -> Result<History, BadHistory> {
        let mut reader =
            Reader { history: History::new(), pending: AHashMap::new(), line: 0, has_times: true };
        let done = reader.read(input);
        let line = reader.line;
        done.map_err(|why| BadHistory { line, why })?;
        Ok(reader.history)
    }
}

impl Reader {
    fn read(&mut self, mut input: impl BufRead) -> Result<(), String> {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            self.line += 1;
            let mut limited = input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            let len = limited.read_until(b'\n', &mut buffer).map_err(|error| error.to_string())?;
            match len {
                0 => return self.finish(),
                len if len > LINE_BYTES_MAX => {
                    return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
                }
                _ => {}
            }
            let text = std::str::from_utf8(&buffer).map_err(|_| "no UTF-8".to_owned())?.trim();
            if !text.is_empty() {
                self.line(text)?;
            }
        }
    }

    fn line(&mut self, text: &str) -> Result<(), String> {
        match text.as_bytes()[0] {
            b'{' => {}
            b'[' => return Err("an array: one JSON object a line is expected".to_owned()),
            _ => return Err("no JSON object".to_owned()),
        }
        let line: Line = serde_json::from_str(text).map_err(plain)?;
        if text_of(line.f).as_deref() != Some("txn") {
            return Ok(());
        }
        let process = line.process.ok_or("no process")?;
        let process: i64 = serde_json::from_str(process.get())
            .map_err(|_| format!("process {} is no number", process.get()))?;
        let ops = || ops(line.value);
        match text_of(line.kind).as_deref() {
            Some("invoke") => self.invoke(process, &line, ops()?),
            Some("ok") => self.complete(process, &line, Outcome::Committed, Some(ops()?)),
            Some("fail") => self.complete(process, &line, Outcome::Aborted, None),
            Some("info") => self.complete(process, &line, Outcome::Unknown, None),
            _ => Err("type is none of invoke, ok, fail, info".to_owned()),
        }
    }

    fn invoke(&mut self, process: i64, line: &Line, ops: Vec<Op>) -> Result<(), String> {
        if self.pending.contains_key(&process) {
            return Err(format!("process {process} begins a transaction inside another"));
        }
        let time = self.time(line)?;
        let txn = self.history.open(process, time, self.line as u32)?;
        self.history.records[txn as usize].is_final = line.is_final();
        self.pending.insert(process, Pending { txn, ops });
        Ok(())
    }

    fn complete(
        &mut self,
        process: i64,
        line: &Line,
        outcome: Outcome,
        ops: Option<Vec<Op>>,
    ) -> Result<(), String> {
        let time = self.time(line)?;
        let Some(begun) = self.pending.remove(&process) else {
            return Err(format!("process {process} ends a transaction that it didn't begin"));
        };
        let record = &mut self.history.records[begun.txn as usize];
        record.outcome = outcome;
        record.lines.1 = self.line as u32;
        record.is_final |= line.is_final();
        if outcome != Outcome::Unknown {
            record.completed = time;
            if self.has_times && time < record.invoked {
                return Err(format!("process {process} ends a transaction before it began"));
            }
        }
        self.history.fill(begun.txn, ops.unwrap_or(begun.ops))
    }

    /// The line's time, or its number, which [`Reader::finish`] makes the time of all lines.
    fn time(&mut self, line: &Line) -> Result<i64, String> {
        let Some(time) = line.time else {
            self.has_times = false;
            return Ok(i64::MAX);
        };
        let bad = |_| format!("time {} is no whole number of nanoseconds", time.get());
        serde_json::from_str(time.get()).map_err(bad)
    }

    /// What never completed may have committed; its writes count if somebody saw them.
    fn finish(&mut self) -> Result<(), String> {
        let mut rest: Vec<Pending> = std::mem::take(&mut self.pending).into_values().collect();
        rest.sort_by_key(|pending| pending.txn);
        for pending in rest {
            self.line = self.history.record(pending.txn).lines.0 as usize;
            self.history.fill(pending.txn, pending.ops)?;
        }
        if !self.has_times {
            self.history.records.iter_mut().for_each(|record| {
                record.invoked = i64::from(record.lines.0);
                if record.outcome != Outcome::Unknown {
                    record.completed = i64::from(record.lines.1);
                }
            });
        }
        Ok(())
    }
}

/// The message without its position, which is one inside the line.
fn plain(error: serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("{} (column {})", &text[..end], error.column())
}

/// A JSON string, without its escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The text of a JSON string; nothing for what is none.
fn text_of(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).map(|text: Text| text.0)
}

fn ops(raw: Option<&RawValue>) -> Result<Vec<Op>, String> {
    let raw = raw.ok_or("a transaction without value")?;
    let steps: Vec<OneOp> = serde_json::from_str(raw.get()).map_err(plain)?;
    Ok(steps.into_iter().map(|step| step.0).collect())
}

/// `["append", k, v]`, `["w", k, v]`, `["r", k, v or [v…] or null]`.
struct OneOp(Op);

impl<'de> Deserialize<'de> for OneOp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OneOp, D::Error> {
        from.deserialize_seq(OneOpVisitor)
    }
}

struct OneOpVisitor;

impl<'de> Visitor<'de> for OneOpVisitor {
    type Value = OneOp;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("[\"append\" | \"r\" | \"w\", key, value]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOp, A::Error> {
        let short = || de::Error::custom("a step of fewer than two parts");
        let what: Cow<str> = seq.next_element::<Text>()?.ok_or_else(short)?.0;
        let key = seq.next_element::<OneAtom>()?.ok_or_else(short)?.0;
        let seen = seq.next_element::<OneSeen>()?.map_or(Seen::Nothing, |seen| seen.0);
        while seq.next_element::<de::IgnoredAny>()?.is_some() {}
        match (&*what, seen) {
            ("append", Seen::Value(value)) => Ok(OneOp(Op::Append(key, value))),
            ("w", Seen::Value(value)) => Ok(OneOp(Op::Write(key, value))),
            ("r", seen) => Ok(OneOp(Op::Read(key, seen))),
            ("append" | "w", _) => Err(de::Error::custom("a write needs one number or text")),
            _ => Err(de::Error::custom(format!("{what:?} is none of append, r, w"))),
        }
    }
}

struct OneAtom(Atom);

impl<'de> Deserialize<'de> for OneAtom {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OneAtom, D::Error> {
        match OneSeen::deserialize(from)?.0 {
            Seen::Value(atom) => Ok(OneAtom(atom)),
            _ => Err(de::Error::custom("a key or a value of a list is a number or a text")),
        }
    }
}

struct OneSeen(Seen);

impl<'de> Deserialize<'de> for OneSeen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OneSeen, D::Error> {
        from.deserialize_any(SeenVisitor)
    }
}

struct SeenVisitor;

impl<'de> Visitor<'de> for SeenVisitor {
    type Value = OneSeen;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a whole number, a text, a list of these or null")
    }

    fn visit_i64<E>(self, number: i64) -> Result<OneSeen, E> {
        Ok(OneSeen(Seen::Value(Atom::Int(number))))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<OneSeen, E> {
        let number = i64::try_from(number).map_err(|_| E::custom("a number beyond 64 bits"))?;
        self.visit_i64(number)
    }

    fn visit_str<E>(self, text: &str) -> Result<OneSeen, E> {
        Ok(OneSeen(Seen::Value(Atom::from(text))))
    }

    fn visit_unit<E>(self) -> Result<OneSeen, E> {
        Ok(OneSeen(Seen::Nothing))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneSeen, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element::<OneAtom>()? {
            values.push(value.0);
        }
        Ok(OneSeen(Seen::List(values)))
    }
}
