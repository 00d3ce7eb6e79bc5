//! Prints the catalog queries as a psql script, to try them by hand on any server version.

use hihooi_sql::catalog_queries::{QUERIES, SETUP};

fn main() {
    println!("BEGIN ISOLATION LEVEL REPEATABLE READ;\n{SETUP};");
    for query in QUERIES {
        println!("\\echo == {} ({})\n{};", query.name, query.columns.join(", "), query.sql);
    }
    println!("COMMIT;");
}
