"""What commands that change the schema cost: through hihooi, at the primary itself, where the event
triggers note them too, and in another database of the same server, which hihooi doesn't replicate."""

import time

from wire import Connection

PLAIN = "bench_plain"
STATEMENTS = {
    "CREATE TABLE": "CREATE TABLE bench_ddl (id int PRIMARY KEY, v text)",
    "ADD COLUMN": "ALTER TABLE bench_ddl ADD COLUMN n int DEFAULT 0",
    "CREATE INDEX": "CREATE INDEX ON bench_ddl (v)",
    "DO without DDL": "DO $$ BEGIN PERFORM 1; END $$",
    "DROP TABLE": "DROP TABLE bench_ddl",
}
VARIANTS = ["plain", "direct", "hihooi"]


def measure(cluster, rounds):
    """Milliseconds of each statement, by round and variant."""
    plain = Connection(cluster.ports["direct"])
    plain.query(f"CREATE DATABASE {PLAIN}")
    connections = {
        "plain": Connection(cluster.ports["direct"], PLAIN),
        "direct": Connection(cluster.ports["direct"]),
        "hihooi": Connection(cluster.ports["hihooi"]),
    }
    table = []
    for number in range(rounds):
        first = number % len(VARIANTS)
        order = VARIANTS[first:] + VARIANTS[:first]
        table.append({variant: once(connections[variant]) for variant in order})
        cluster.catch_up()  # so that nobody pays for another's entries
    for connection in connections.values():
        connection.close()
    plain.query(f"DROP DATABASE {PLAIN} WITH (FORCE)")
    plain.close()
    return table


def once(connection):
    """Milliseconds of each statement."""
    took = {}
    for name, text in STATEMENTS.items():
        start = time.perf_counter()
        connection.query(text)
        took[name] = 1e3 * (time.perf_counter() - start)
    return took
