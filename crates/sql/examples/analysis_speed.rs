//! Prints how long an analysis takes: nanoseconds per statement, found in the cache and not.

use std::hint::black_box;
use std::time::Instant;

use hihooi_replication::items::RelId;
use hihooi_sql::catalog_builder::{RelationRow, Volatility};
use hihooi_sql::{Cache, Catalog, SearchPath, analyse};

const SELECT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 48272;";
const UPDATE: &str = "UPDATE pgbench_accounts SET abalance = abalance + -2837 WHERE aid = 48272;";
const JOIN: &str = "SELECT a.aid, sum(h.delta), max(t.tbalance) FROM pgbench_accounts a \
    JOIN pgbench_branches b ON a.bid = b.bid JOIN pgbench_tellers t ON t.bid = b.bid \
    LEFT JOIN pgbench_history h ON h.aid = a.aid AND h.tid = t.tid \
    WHERE b.bbalance > 100 AND a.aid BETWEEN 10 AND 200 GROUP BY a.aid \
    HAVING count(*) > 2 ORDER BY 2 DESC LIMIT 10";

fn main() {
    let catalog = catalog();
    let path = SearchPath::new(["public"]);
    let mut cache = Cache::default();
    let texts: Vec<String> =
        (0..1000).map(|n| SELECT.replace("48272", &(n * 97).to_string())).collect();
    let mut turn = 0;
    measure("hit (select, other numbers)", 2_000_000, || {
        turn = (turn + 1) % texts.len();
        black_box(cache.get(&texts[turn], &catalog, Some(&path)));
    });
    measure("hit (four-table join)", 500_000, || {
        black_box(cache.get(JOIN, &catalog, Some(&path)));
    });
    for (name, text) in [("select", SELECT), ("four-table join", JOIN), ("update", UPDATE)] {
        measure(&format!("miss ({name})"), 50_000, || {
            black_box(analyse(text, &catalog, Some(&path)));
        });
    }
}

fn measure(name: &str, times: u32, mut work: impl FnMut()) {
    for _ in 0..times / 10 {
        work();
    }
    let start = Instant::now();
    for _ in 0..times {
        work();
    }
    println!("{name:30} {:8.0} ns", start.elapsed().as_nanos() as f64 / f64::from(times));
}

fn catalog() -> Catalog {
    let mut builder = Catalog::builder();
    let tables = ["pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history"];
    for (id, name) in (1..).map(RelId).zip(tables) {
        builder.relation(RelationRow {
            id,
            schema: "public",
            name,
            kind: "r",
            persistence: "p",
            code: "",
            has_rules: false,
        });
    }
    for name in ["sum", "max", "count"] {
        builder.builtin(name, Volatility::Immutable);
    }
    builder.build(1)
}
