"""What it costs that a session's state is read back: time of statements that leave something in the
session, or may, beside one that can't, of one client."""

import time
from statistics import median

from wire import Connection

VARIANTS = ["direct", "pgbouncer", "hihooi"]
REPEATS = 20
PREPARE = """
    CREATE SEQUENCE bench_numbers;
    CREATE FUNCTION bench_nothing() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
    CREATE FUNCTION bench_tenant(t text) RETURNS text LANGUAGE plpgsql
        AS $$ BEGIN RETURN set_config('bench.tenant', t, false); END $$;
"""
CLEAR = """
    DROP FUNCTION bench_nothing, bench_tenant;
    DROP SEQUENCE bench_numbers;
"""
STATEMENTS = {
    "a read by key": "SELECT abalance FROM pgbench_accounts WHERE aid = 1",
    "an update by key": "UPDATE pgbench_tellers SET tbalance = 1 WHERE tid = 1",
    "nextval": "SELECT nextval('bench_numbers')",
    "a function in PL/pgSQL": "SELECT bench_nothing()",
    "a function that sets a setting": "SELECT bench_tenant('{number}')",
    "SET of a custom setting": "SET bench.tenant = '{number}'",
}


def measure(cluster, rounds):
    """Microseconds of each statement, by round and variant: medians of some each."""
    admin = Connection(cluster.ports["hihooi"])
    admin.query(PREPARE)
    cluster.catch_up()
    connections = {variant: Connection(cluster.ports[variant]) for variant in VARIANTS}
    table = []
    for number in range(rounds):
        first = number % len(VARIANTS)
        order = VARIANTS[first:] + VARIANTS[:first]
        table.append({variant: _round(connections[variant]) for variant in order})
    for connection in connections.values():
        connection.close()
    admin.query(CLEAR)
    admin.close()
    return table


def _round(connection):
    took = {}
    for name, text in STATEMENTS.items():
        times = []
        for number in range(REPEATS):
            start = time.perf_counter()
            connection.query(text.replace("{number}", str(number)))
            times.append(1e6 * (time.perf_counter() - start))
        took[name] = median(times)
    return took
