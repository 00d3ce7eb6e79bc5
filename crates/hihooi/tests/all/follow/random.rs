//! Random cases: a grammar of statements (`grammar.txt`), expanded by a generator with a seed. Most
//! statements of a case work, many fail, as PostgreSQL likes; whatever it did, replicas must have it.

use std::fmt::Write;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::harness::grammar::{self, Grammar};

/// Steps of a case.
const STEPS: u64 = 30;

/// What each case begins with, so that there is something to change.
const BEGIN: &str = "\
-- fallible
-- lines
CREATE ROLE random_a;
CREATE ROLE random_b;
GRANT ALL ON SCHEMA :schema TO random_a, random_b;
SET lock_timeout = '2s';
CREATE TABLE t1 (id int PRIMARY KEY, a int, b text);
CREATE TABLE t2 (id int, a int, b text);
INSERT INTO t1 SELECT g, g, 'b' FROM generate_series(1, 5) g;
INSERT INTO t2 SELECT g, g, 'b' FROM generate_series(1, 5) g;
CREATE TABLE p (id int, a int, b text) PARTITION BY RANGE (id);
CREATE TABLE t3 PARTITION OF p FOR VALUES FROM (0) TO (15);
CREATE TYPE mood AS ENUM ('x', 'y');
CREATE DOMAIN posint AS int CHECK (VALUE > -5);
CREATE TYPE pair AS (x int, y text);
CREATE VIEW v1 AS SELECT * FROM t1;
CREATE INDEX i1 ON t2 (a);
CREATE SEQUENCE s1;
CREATE FUNCTION f2() RETURNS void LANGUAGE plpgsql AS 'BEGIN CREATE TABLE t3 (id int); END';
CREATE FUNCTION f1(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
CREATE FUNCTION et() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''%'', tg_tag; END';
";
/// What removes what isn't in the case's schema. Also in the end of a block that was left open.
const END: &str = "\
-- finally
DROP EVENT TRIGGER IF EXISTS random_e;
DROP EVENT TRIGGER IF EXISTS random_f;
DROP PUBLICATION IF EXISTS random_pub;
DROP SCHEMA IF EXISTS random_s, random_r CASCADE;
DROP EXTENSION IF EXISTS citext, hstore, pg_trgm, btree_gist, ltree, intarray CASCADE;
DROP OWNED BY random_a, random_b CASCADE;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC;
DROP OWNED BY random_c CASCADE;
DROP OWNED BY random_d CASCADE;
DROP ROLE IF EXISTS random_c;
DROP ROLE IF EXISTS random_d;
DROP ROLE random_a, random_b;
";

/// The case of a seed, in the form of case files, a statement or directive a line.
pub fn case(grammar: &Grammar, seed: u64) -> String {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut text = format!("-- case: random {seed}\n{BEGIN}");
    write_step(&grammar.text("begin", &mut random), &mut text);
    for _ in 0..STEPS {
        match random.next_u64() % 16 {
            0 => text.push_str("-- session: 1\n"),
            1 => text.push_str("-- session: 2\n"),
            2 => text.push_str("-- extended\n"),
            _ => {}
        }
        write_step(&grammar.text("step", &mut random), &mut text);
    }
    text + END
}

/// Writes the statements and directives of a step, a line each.
fn write_step(step: &str, text: &mut String) {
    for part in step.split(" | ") {
        let end = if part.starts_with("-- ") { "" } else { ";" };
        writeln!(text, "{part}{end}").expect("a string");
    }
}

/// The case without the lines that make no difference to `fails`, which costs a run a try. What it begins
/// with stays (without `fallible`, a statement that fails would do), and so does what cleans up: another
/// try meets what is left.
pub fn shrunk(case: &str, fails: impl FnMut(&str) -> bool) -> String {
    let first = 1 + BEGIN.lines().take_while(|line| line.starts_with("--")).count();
    let kept = case.lines().rev().take_while(|line| *line != "-- finally").count() + 1;
    grammar::shrunk(case, first, kept, fails)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grammar() -> Grammar {
        Grammar::read(include_str!("grammar.txt"))
    }

    #[test]
    fn a_seed_is_a_case() {
        assert_eq!(case(&grammar(), 7), case(&grammar(), 7));
        assert_ne!(case(&grammar(), 7), case(&grammar(), 8));
    }

    #[test]
    fn shrinking_leaves_what_fails_and_how_it_is_played() {
        let case = super::case(&grammar(), 7);
        let needed = ["CREATE SEQUENCE s1;", "CREATE INDEX i1 ON t2 (a);"];
        let short = shrunk(&case, |fewer| needed.iter().all(|line| fewer.contains(line)));
        let body = "-- case: random 7\n-- fallible\n-- lines\nCREATE INDEX i1 ON t2 (a);\n\
                    CREATE SEQUENCE s1;\n";
        assert_eq!(short, format!("{body}{END}").trim_end());
    }
}
