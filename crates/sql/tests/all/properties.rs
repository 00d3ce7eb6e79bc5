//! Properties of analysis over made-up texts.

use std::collections::BTreeSet;

use hihooi_replication::items::Items;
use hihooi_sql::lexer::{TokenKind, tokens};
use hihooi_sql::{Analysis, Cache, Kind, Replica, analyse};
use proptest::prelude::*;

use crate::common;

/// Tables of the test database that bring no others with them.
const TABLES: &[&str] =
    &["pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history", "grandchild"];

/// Statements that name rows by numbers (#) and words (@), among others that don't matter.
const KEYED: &[&str] = &[
    "SELECT #, a2 FROM r WHERE a3 > # AND a1 = # LIMIT #",
    "SELECT a2 FROM r WHERE a1 = -# AND a2 = -#",
    "SELECT a2 FROM r WHERE a1 = - #",
    "SELECT a2 FROM r x1 WHERE x1.a1 IN (#, -#, 5)",
    "SELECT a2 FROM r WHERE a1 BETWEEN # AND #",
    "SELECT a2 FROM r WHERE # = a1 AND 'N' <> @",
    "SELECT /* 5 */ n FROM named WHERE name = @ AND n = #",
    "SELECT n FROM named WHERE n = # AND name = @ AND name <> @",
    "SELECT n FROM named WHERE name=@ AND n >= #",
    "SELECT n FROM items WHERE d = # AND (w, id) = (#, #) -- 5",
    "UPDATE items SET n = n + # WHERE w = # AND d = # AND id = #",
    "DELETE FROM named WHERE name = @ AND n = #",
    "INSERT INTO r VALUES (#, #), (#, #)",
    "SELECT a2 FROM r WHERE a1 = - -#",
    "SELECT a2 FROM r WHERE a1 = #::int8 OR a1 = #",
];

fn table() -> impl Strategy<Value = String> {
    proptest::sample::select(TABLES).prop_map(str::to_string)
}

fn constant() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u32>().prop_map(|n| n.to_string()),
        (any::<u16>(), any::<u16>()).prop_map(|(a, b)| format!("{a}.{b}")),
        any::<i32>().prop_map(|n| format!("({n})")),
        "[ a-z0-9;é$-]{0,6}".prop_map(|s| format!("'{s}'")),
        "[a-z0-9 ';]{0,6}".prop_map(|s| format!("$x${s}$x$")),
        Just("E'\\'1'".to_string()),
        Just("$1".to_string()),
        Just("1e5".to_string()),
        Just("\"c1\"".to_string()),
        Just("/* 1 /* 2 */ */ c2".to_string()),
        Just("set_config('a.b1', '2', false)".to_string()),
        Just("current_setting('a.b2')".to_string()),
        Just("vol()".to_string()),
        Just("stab()".to_string()),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    constant().prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} + {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("coalesce({a}, {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("CASE WHEN {a} THEN {b} END")),
            (inner.clone(), table()).prop_map(|(a, t)| format!("(SELECT {a} FROM {t} LIMIT 1)")),
            (inner.clone(), table()).prop_map(|(a, t)| format!("{a} IN (SELECT id FROM {t})")),
            (inner.clone(), table())
                .prop_map(|(a, t)| format!("EXISTS (SELECT FROM {t} x WHERE {a})")),
            inner.clone().prop_map(|a| format!("ARRAY[{a}]")),
            inner.clone().prop_map(|a| format!("({a})::text")),
            inner.prop_map(|a| format!("max({a}) OVER (ORDER BY {a})")),
        ]
    })
}

fn statement() -> impl Strategy<Value = String> {
    let e = expression;
    prop_oneof![
        (e(), table(), e()).prop_map(|(a, t, b)| format!("SELECT {a} FROM {t} WHERE {b}")),
        (table(), table(), e())
            .prop_map(|(t, u, a)| format!("SELECT * FROM {t} LEFT JOIN {u} x ON {a} LIMIT 5")),
        (e(), e(), table()).prop_map(|(a, b, t)| format!(
            "VALUES ({a}) UNION SELECT {b} FROM (SELECT * FROM {t}) x ORDER BY 1"
        )),
        (table(), e(), e()).prop_map(|(t, a, b)| format!("UPDATE {t} SET c = {a} WHERE {b}")),
        (table(), e()).prop_map(|(t, a)| format!("DELETE FROM {t} WHERE {a}")),
        (table(), table(), e())
            .prop_map(|(t, u, a)| format!("INSERT INTO {t} SELECT {a} FROM {u}")),
        (table(), e(), table())
            .prop_map(|(t, a, u)| format!("WITH w AS (SELECT {a} FROM {t}) SELECT * FROM w, {u}")),
        e().prop_map(|a| format!("EXPLAIN SELECT {a}")),
        any::<u16>().prop_map(|n| format!("SET statement_timeout = {n}")),
        any::<u16>().prop_map(|n| format!("SET hihooi.wait_ms = {n}")),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let end = proptest::sample::select(vec!["", ";", " ; ", ";;"]);
    prop_oneof![
        4 => (statement(), end).prop_map(|(s, end)| s + end),
        1 => proptest::collection::vec(statement(), 1..4).prop_map(|all| all.join("; ")),
    ]
}

/// An analysis as far as a remembered one promises to be equal: an only statement's range may
/// be the whole text.
fn without_ranges(analysis: &Analysis) -> Analysis {
    let mut analysis = analysis.clone();
    if let [only] = &mut *analysis.statements {
        only.range = 0..0;
    }
    analysis
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// I6: what the cache gives is what a fresh analysis gives, also when numbers differ.
    #[test]
    fn cached_and_fresh_agree(texts in proptest::collection::vec(text(), 1..8), other in any::<u16>()) {
        let catalog = common::catalog();
        let path = common::public();
        let mut cache = Cache::default();
        for text in &texts {
            let renumbered = renumber(text, other);
            // Numbers inside of quotes and names do matter.
            let other_digits: String = text.chars().map(next_digit).collect();
            for text in [text, &renumbered, &other_digits, text] {
                let cached = cache.get(text, &catalog, Some(&path));
                let fresh = analyse(text, &catalog, Some(&path));
                let (cached_facts, fresh_facts) = (without_ranges(&cached), without_ranges(&fresh));
                prop_assert_eq!(cached_facts.statements, fresh_facts.statements, "{}", text);
                if let [only] = &*cached.statements {
                    prop_assert!(only.text(text).contains(fresh.statements[0].text(text)));
                }
            }
        }
    }

    /// Rows of a text whose template was analysed with other constants are those that it names itself.
    #[test]
    fn slots_are_filled_with_a_texts_own_constants(
        template in proptest::sample::select(KEYED),
        constants in proptest::collection::vec((any::<u32>(), "[a-z '0-9]{0,4}"), 2..4),
    ) {
        let catalog = common::catalog();
        let path = common::public();
        let mut cache = Cache::default();
        for (number, word) in &constants {
            let words = format!("'{}'", word.replace('\'', "''"));
            let text = template.replace('#', &number.to_string()).replace('@', &words);
            common::same_rows(&text, &mut cache, &catalog, Some(&path));
        }
        prop_assert_eq!(cache.hits_and_misses().1, 1, "one template");
    }

    /// I6, against a stupid twin: every table whose name stands in a text is in its facts.
    #[test]
    fn no_table_is_missed(text in text()) {
        let catalog = common::catalog();
        let mentioned: BTreeSet<String> = tokens(&text)
            .filter(|token| token.kind == TokenKind::Word && TABLES.contains(&token.text))
            .map(|token| token.text.to_string())
            .collect();
        let mut found = BTreeSet::new();
        for statement in &analyse(&text, &catalog, Some(&common::public())).statements {
            for items in [&statement.reads, &statement.writes] {
                match items {
                    Items::Everything => return Ok(()),
                    items => found.extend(
                        common::items(items, &[], &catalog).split(',').map(str::to_string),
                    ),
                }
            }
        }
        prop_assert!(mentioned.is_subset(&found), "{text}\n{mentioned:?} {found:?}");
    }

    /// A text that mentions a volatile function outside of quotes is never safe.
    #[test]
    fn no_volatile_function_is_missed(text in text()) {
        let catalog = common::catalog();
        let calls = tokens(&text)
            .any(|t| t.kind == TokenKind::Word && matches!(t.text, "vol" | "set_config"));
        let analysis = analyse(&text, &catalog, Some(&common::public()));
        let safe = analysis.statements.iter().all(|s| s.replica == Replica::Safe);
        prop_assert!(!(calls && safe), "{text}");
    }

    /// The tokens of a text are the text, whatever it is.
    #[test]
    fn tokens_lose_nothing(text in "[ a-zéEuU&0-9'\"$/*;.\\-\\\\\n]{0,40}") {
        prop_assert_eq!(tokens(&text).map(|t| t.text).collect::<String>(), text);
    }

    /// Garbage, and statements with pieces missing or doubled, end in facts, not in a panic.
    #[test]
    fn nothing_panics(
        pieces in proptest::collection::vec((0..GOLDEN.len(), 0..200_usize, 0..30_usize), 1..4),
    ) {
        let catalog = common::catalog();
        let mut text = String::new();
        for (file, start, len) in pieces {
            let words: Vec<&str> = GOLDEN[file].split_inclusive([' ', '\n', '(', ')', ',']).collect();
            let start = start * words.len() / 200;
            text.extend(words.iter().skip(start).take(len).filter(|w| !w.starts_with("=>")).copied());
        }
        let analysis = analyse(&text, &catalog, None);
        // `analyse` catches panics; what the parser takes must come out as something else.
        if pg_raw_parse::parse(&text).is_ok() {
            prop_assert!(analysis.statements.iter().all(|s| s.kind != Kind::Unparsable), "{text}");
        }
    }
}

const GOLDEN: &[&str] = &[
    include_str!("golden/reads.txt"),
    include_str!("golden/writes.txt"),
    include_str!("golden/functions.txt"),
    include_str!("golden/utility.txt"),
    include_str!("golden/ddl.txt"),
];

/// The same text with other integers, outside of quotes.
fn renumber(text: &str, other: u16) -> String {
    tokens(text)
        .map(|token| match token.kind {
            TokenKind::Number if token.text.bytes().all(|b| b.is_ascii_digit()) => {
                other.to_string()
            }
            _ => token.text.to_string(),
        })
        .collect()
}

fn next_digit(c: char) -> char {
    c.to_digit(10).and_then(|digit| char::from_digit((digit + 1) % 10, 10)).unwrap_or(c)
}

/// Texts nested beyond reason touch everything instead of overflowing the stack; long chains,
/// which real programs write, are walked to their end.
#[test]
fn depth_is_bounded() {
    let catalog = common::catalog();
    let path = common::public();
    let facts = |text: &str| analyse(text, &catalog, Some(&path)).statements[0].clone();
    for n in [3000, 30_000] {
        for deep in [
            format!("SELECT {}1{}", "(SELECT ".repeat(n), ")".repeat(n)),
            format!("SELECT {} 1", "NOT ".repeat(n)),
            format!("SELECT 1{}", "::int".repeat(n)),
            format!("SELECT {}1{}", "abs(".repeat(n), ")".repeat(n)),
            format!("SELECT * FROM {}parent{}", "(SELECT * FROM ".repeat(n), ") x".repeat(n)),
            format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(n), " END".repeat(n)),
            format!("{}SELECT 1", "EXPLAIN ".repeat(n)),
            format!(
                "SELECT a2 FROM r WHERE {}a1{}",
                "a1 = 1 AND (true AND ".repeat(n),
                ")".repeat(n)
            ),
            format!("SELECT 1 {}", "UNION (SELECT 1 ".repeat(n)) + &")".repeat(n),
        ] {
            assert_eq!(facts(&deep).reads, Items::Everything, "{}", &deep[..60]);
        }
        let long = [
            format!("SELECT 1{} FROM parent", " + 1".repeat(n)),
            format!("SELECT 1 FROM parent{}", " UNION ALL SELECT 1".repeat(n)),
            format!("SELECT 1 FROM parent{}", " CROSS JOIN child".repeat(n)),
            format!("SELECT 1 FROM parent WHERE a = 1{}", " OR a = 1".repeat(n)),
        ];
        for long in long {
            assert_ne!(facts(&long).reads, Items::Everything, "{}", &long[..60]);
        }
    }
}

/// Replicas replay … CONCURRENTLY without it; only the keyword goes.
#[test]
fn concurrently_is_taken_out() {
    use hihooi_sql::lexer::without_concurrently;
    let cases = [
        ("CREATE INDEX CONCURRENTLY i ON t (a)", Some("CREATE INDEX  i ON t (a)")),
        (
            "create unique index concurrently if not exists i on t(a)",
            Some("create unique index  if not exists i on t(a)"),
        ),
        ("DROP INDEX CONCURRENTLY \"concurrently\"", Some("DROP INDEX  \"concurrently\"")),
        (
            "CREATE INDEX /* concurrently */ -- x\nCONCURRENTLY i ON t (a)",
            Some("CREATE INDEX /* concurrently */ -- x\n i ON t (a)"),
        ),
        (
            "ALTER TABLE a DETACH PARTITION b CONCURRENTLY;",
            Some("ALTER TABLE a DETACH PARTITION b ;"),
        ),
        ("CREATE INDEX i ON t (a) WHERE b = 'concurrently'", None),
        ("CREATE INDEX concurrently_i ON t (a)", None),
    ];
    for (text, without) in cases {
        assert_eq!(without_concurrently(text).as_deref(), without, "{text}");
    }
}
