//! Random texts: a grammar, expanded by a generator with a seed. A line `[name]` begins a symbol; the lines behind it
//! are its alternatives, a number in front says how often one is taken for one of the others. `<name>` is replaced by an
//! alternative of that symbol; `<'name>` as well, as a dollar-quoted string. The first alternative is taken where nesting
//! gets deep. Lines that start with `#` are comments.

use std::collections::BTreeMap;
use std::fmt::Write;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Nesting from which on a symbol's first alternative is taken.
const DEPTH_MAX: usize = 5;

/// Alternatives with their weights, by symbol.
pub struct Grammar(BTreeMap<String, Vec<(u64, String)>>);

impl Grammar {
    pub fn read(text: &str) -> Grammar {
        let mut symbols: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(symbol) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                current = symbol.to_owned();
                continue;
            }
            let weighted = line.split_once(' ').and_then(|(n, rest)| Some((n.parse().ok()?, rest)));
            let (weight, text) = weighted.unwrap_or((1, line));
            symbols.entry(current.clone()).or_default().push((weight, text.to_owned()));
        }
        Grammar(symbols)
    }

    /// A text of a symbol.
    pub fn text(&self, symbol: &str, random: &mut Pcg64) -> String {
        self.expand(symbol, 0, random)
    }

    fn expand(&self, symbol: &str, depth: usize, random: &mut Pcg64) -> String {
        let alternatives = self.0.get(symbol).unwrap_or_else(|| panic!("no symbol {symbol}"));
        let total: u64 = alternatives.iter().map(|(weight, _)| weight).sum();
        let mut at = if depth >= DEPTH_MAX { 0 } else { random.next_u64() % total };
        let chosen = alternatives.iter().find(|(weight, _)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        let mut rest = chosen.expect("one of them").1.as_str();
        let mut text = String::new();
        while let Some((before, behind)) = rest.split_once('<') {
            text.push_str(before);
            // An operator, not a symbol.
            let Some((symbol, behind)) = behind.split_once('>').filter(|(s, _)| is_symbol(s))
            else {
                text.push('<');
                rest = behind;
                continue;
            };
            match symbol.strip_prefix('\'') {
                Some(symbol) => {
                    let quoted = self.expand(symbol, depth + 1, random);
                    write!(text, "$q{depth}${quoted}$q{depth}$").expect("a string");
                }
                None => text.push_str(&self.expand(symbol, depth + 1, random)),
            }
            rest = behind;
        }
        text + rest
    }
}

fn is_symbol(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '\'')
}

/// The lines without those that make no difference to `fails`, which costs a run a try; the `kept` last ones stay, and so do
/// the `first` ones.
pub fn shrunk(
    text: &str,
    first: usize,
    kept: usize,
    mut fails: impl FnMut(&str) -> bool,
) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut size = lines.len() / 2;
    while size > 0 {
        let mut at = first;
        while at < lines.len() - kept {
            let mut fewer = lines.clone();
            fewer.drain(at..(at + size).min(lines.len() - kept));
            if fails(&fewer.join("\n")) {
                lines = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    lines.join("\n")
}
