//! The workload file of `plan balance`: TOML, with one `[[transaction]]` for each transaction. An unknown key
//! is an error that names its line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use hihooi_balance::Weight;
use hihooi_balance::relation::{Access, CLASSES_MAX, ClassId, Relation};
use hihooi_balance::workload::{Transaction, Workload};
use hihooi_postgres::cluster::plain;
use serde::Deserialize;
use toml::Spanned;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The highest weight in a file.
const FILE_WEIGHT_MAX: f64 = 1e6;

/// Weights have six decimals.
const UNITS_PER_WEIGHT: f64 = 1e6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    transaction: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    repeat: BTreeMap<String, u32>,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
}

fn one() -> f64 {
    1.0
}

/// One transaction, parameters filled in.
struct Instance {
    name: String,
    weight: Weight,
    reads: Vec<String>,
    writes: Vec<String>,
}

/// Reads a workload.
///
/// # Errors
/// One line with the file's name and, where there is one, the line in it.
pub fn read(path: &Path) -> Result<Workload, String> {
    let named = |problem: String| format!("{}: {problem}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| named(plain(&error)))?;
    let bounded = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let length = bounded.map_err(|error| named(plain(&error)))? as u64;
    if length > FILE_BYTES_MAX {
        return Err(named(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(named)
}

fn parse(text: &str) -> Result<Workload, String> {
    let at = |offset: usize, problem: &str| {
        let line = text[..offset.min(text.len())].matches('\n').count() + 1;
        format!("line {line}: {problem}")
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let problem = error.message().lines().collect::<Vec<_>>().join(" ");
        error.span().map_or(problem.clone(), |span| at(span.start, &problem))
    })?;
    let mut instances = Vec::new();
    let mut names = BTreeSet::new();
    for entry in &file.transaction {
        let problem = |problem: String| at(entry.span().start, &problem);
        if !names.insert(&entry.get_ref().name) {
            let name = &entry.get_ref().name;
            return Err(problem(format!("a second transaction is called {name:?}")));
        }
        expand(entry.get_ref(), &mut instances).map_err(problem)?;
    }
    if instances.is_empty() {
        return Err("no [[transaction]] in it".to_owned());
    }
    Ok(workload(instances))
}

/// Adds an entry's transactions: one for each combination of its parameters' values.
fn expand(entry: &Entry, instances: &mut Vec<Instance>) -> Result<(), String> {
    if let Some((name, _)) = entry.repeat.iter().find(|(_, count)| **count == 0) {
        return Err(format!("repeat.{name} must be at least 1"));
    }
    let counts = entry.repeat.values().map(|&count| u64::from(count));
    let count = counts.fold(1u64, u64::saturating_mul);
    if count.saturating_add(instances.len() as u64) > CLASSES_MAX as u64 {
        return Err(format!("more than {CLASSES_MAX} transactions"));
    }
    let weight = weight(entry.weight, count)?;
    for number in 0..count {
        let values = values(&entry.repeat, number);
        let each = |items: &[String]| -> Result<Vec<String>, String> {
            items.iter().map(|item| fill(item, &values)).collect()
        };
        instances.push(Instance {
            name: instance_name(&entry.name, &values),
            weight,
            reads: each(&entry.reads)?,
            writes: each(&entry.writes)?,
        });
    }
    Ok(())
}

/// The share of each of so many transactions.
fn weight(whole: f64, count: u64) -> Result<Weight, String> {
    if !(whole > 0.0 && whole <= FILE_WEIGHT_MAX) {
        return Err(format!("weight must be above 0 and at most {FILE_WEIGHT_MAX}"));
    }
    #[allow(clippy::cast_precision_loss)] // at most CLASSES_MAX
    let units = (whole * UNITS_PER_WEIGHT / count as f64).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 10^12
    Weight::new(units as u64).ok_or_else(|| "weight is below 0.000001 each".to_owned())
}

/// The values of the parameters of one combination; the last one changes fastest.
fn values(repeat: &BTreeMap<String, u32>, mut number: u64) -> BTreeMap<&str, u64> {
    let mut values = BTreeMap::new();
    for (name, &count) in repeat.iter().rev() {
        values.insert(name.as_str(), number % u64::from(count) + 1);
        number /= u64::from(count);
    }
    values
}

fn instance_name(name: &str, values: &BTreeMap<&str, u64>) -> String {
    let each: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if each.is_empty() { name.to_owned() } else { format!("{name}({})", each.join(",")) }
}

/// An item with the values of its `{parameters}`.
fn fill(item: &str, values: &BTreeMap<&str, u64>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("item {item:?} has a {{ without }}"))?;
        let value =
            values.get(name).ok_or_else(|| format!("item {item:?}: {name:?} is not in repeat"))?;
        filled.push_str(before);
        filled.push_str(&value.to_string());
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Those that write are classes of their own; the others are read-only.
fn workload(instances: Vec<Instance>) -> Workload {
    let updates: Vec<&Instance> =
        instances.iter().filter(|instance| !instance.writes.is_empty()).collect();
    let accesses: Vec<Access<'_>> = updates
        .iter()
        .map(|instance| Access {
            reads: instance.reads.iter().map(String::as_str).collect(),
            writes: instance.writes.iter().map(String::as_str).collect(),
        })
        .collect();
    let relation = Relation::from_items(&accesses);
    let mut classes = (0..).map(ClassId);
    let transactions = instances.iter().map(|instance| Transaction {
        name: instance.name.clone(),
        weight: instance.weight,
        update: if instance.writes.is_empty() { None } else { classes.next() },
    });
    Workload { transactions: transactions.collect(), relation }
}
