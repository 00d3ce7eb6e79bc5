//! I1, with scripts that nobody thought of: a grammar of what clients send (`conversations/grammar.txt`), expanded by a
//! generator with a seed. Every message of the answers must be as a plain server's, whether replicas serve or are paused;
//! and in the end replicas must be equal. `HIHOOI_RUNS=500 HIHOOI_SEED=1` says how many from which seed,
//! `HIHOOI_SHRINK=1` makes those that differ short.

use std::fmt::Write;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use crate::harness::grammar::{self, Grammar};
use crate::harness::script::Script;
use crate::harness::{alone, shared};
use crate::transparency::{Paused, Readers, difference};

const RUNS: u64 = 20;
/// Steps of a conversation.
const STEPS: usize = 16;

/// Where an error arose in PostgreSQL's source depends on which connection of a pool is used.
const BEGIN: &str = "\
! anywhere
Q create table t (id int primary key, a int, b text); create table u (id int primary key, at timestamptz)
>
Q insert into t select g, g, 'b' || g from generate_series(1, 5) g; insert into u values (1, '2024-07-01 12:00+00')
>
";
/// Whatever is open is ended, so that the last answers show whether both servers are at the same place.
const END: &str = "\
Q rollback
>
Q select * from t order by id
>
Q show timezone; show datestyle
>
";

fn conversation(grammar: &Grammar, seed: u64) -> String {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut text = BEGIN.to_owned();
    for _ in 0..STEPS {
        for line in grammar.text("step", &mut random).split(" | ") {
            writeln!(text, "{line}").expect("a string");
        }
    }
    text + END
}

#[test]
fn random_conversations_are_answered_alike() {
    let _alone = alone();
    let given = |name| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
    let (first, runs) = (given("HIHOOI_SEED").unwrap_or(1), given("HIHOOI_RUNS").unwrap_or(RUNS));
    let grammar = Grammar::read(include_str!("conversations/grammar.txt"));
    let mut failed = Vec::new();
    for readers in [Readers::Replicas, Readers::Primary] {
        let _paused = (readers == Readers::Primary).then(Paused::all);
        for seed in first..first + runs {
            let differs = |lines: &str| {
                let name = format!("conversation {seed}");
                difference(Script { name: &name, lines }, readers)
            };
            let mut lines = conversation(&grammar, seed);
            let Some(mut told) = differs(&lines) else { continue };
            eprintln!("{told}");
            if given("HIHOOI_SHRINK").is_some() {
                let (begin, end) = (BEGIN.lines().count(), END.lines().count());
                lines = grammar::shrunk(&lines, begin, end, |fewer| differs(fewer).is_some());
                told = differs(&lines).unwrap_or(told);
            }
            eprintln!("as a script:\n{lines}\n{told}");
            failed.push((readers, seed));
        }
    }
    assert!(failed.is_empty(), "answered otherwise (I1): HIHOOI_SEED={failed:?}");
    shared().assert_verified();
}
