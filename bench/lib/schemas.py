"""What changes of the schema cost where there are many tables: making these in one transaction, a command of each kind
beside them, and how long another client's reads take meanwhile.
"""

import threading
import time
from statistics import median

import ddl
from machine import describe
from report import spread, table
from wire import Connection

SIZES = (100, 1_000, 3_000)
ROUNDS = 8
# Long enough for the catalog to be read again.
REST_S = 1
TABLE = ("CREATE TABLE bench_{} (id int PRIMARY KEY, a int, b text, c timestamptz DEFAULT now(), d numeric CHECK (d > 0), "
         "e uuid, f jsonb, g boolean DEFAULT false)")
PARTITIONS = 50
PARTITION = "CREATE TABLE bench_{0}_{1} PARTITION OF bench_parts_{0} FOR VALUES IN ({1})"
VARIANTS = ["plain", "hihooi"]
READ = "SELECT count(*) FROM bench_read WHERE id = 1"


def measure(cluster, say):
    """By number of tables: milliseconds of each statement, by round and variant, and of a read meanwhile."""
    say("starting a primary and two replicas")
    cluster.start()
    raw = {"set_up": describe(cluster), "rounds": ROUNDS, "schemas": {}}
    first = Connection(cluster.ports["direct"])
    first.query(f"CREATE DATABASE {ddl.PLAIN}")
    connections = {"plain": Connection(cluster.ports["direct"], ddl.PLAIN), "hihooi": Connection(cluster.ports["hihooi"])}
    connections["hihooi"].query("CREATE TABLE bench_read (id int PRIMARY KEY)")
    made = 0
    for size in SIZES:
        say(f"{size:,} tables")
        tables = [TABLE.format(number) for number in range(made, size)]
        parts = [PARTITION.format(size, number) for number in range(PARTITIONS)]
        found = {"tables": {}, "partitions": {}}
        for name, one in connections.items():
            found["tables"][name] = _each(one, tables)
            one.query(f"CREATE TABLE bench_parts_{size} (a int, b text) PARTITION BY LIST (a)")
            found["partitions"][name] = _each(one, parts)
        made = size
        cluster.catch_up()
        with Reads(cluster.ports["hihooi"]) as quiet:
            time.sleep(REST_S)
        with Reads(cluster.ports["hihooi"]) as meanwhile:
            found["statements"] = []
            for _ in range(ROUNDS):
                found["statements"].append({name: ddl.once(one) for name, one in connections.items()})
                time.sleep(REST_S)
        found["reads"] = {"quiet": quiet.took, "meanwhile": meanwhile.took}
        raw["schemas"][f"{size}"] = found
        cluster.catch_up()
    for connection in connections.values():
        connection.close()
    first.query(f"DROP DATABASE {ddl.PLAIN} WITH (FORCE)")
    first.close()
    return raw


def _each(connection, statements):
    """Milliseconds for each of these statements, in one transaction."""
    start = time.perf_counter()
    connection.query("BEGIN")
    for statement in statements:
        connection.query(statement)
    connection.query("COMMIT")
    return 1e3 * (time.perf_counter() - start) / len(statements)


class Reads(threading.Thread):
    """A client that reads every few milliseconds, as long as the block lasts; how many milliseconds each took."""

    def __init__(self, port):
        super().__init__()
        self.connection, self.took, self.goes_on = Connection(port), [], True

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.goes_on = False
        self.join()
        self.connection.close()

    def run(self):
        while self.goes_on:
            start = time.perf_counter()
            self.connection.query(READ)
            self.took.append(1e3 * (time.perf_counter() - start))
            time.sleep(0.002)


def summary(name, raw):
    """The README of a run."""
    lines = [f"# {name}", "", "Made by `make bench-schemas`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {what}: {value}" for what, value in raw["set_up"].items()]
    lines += [f"- {raw['rounds']} rounds", "", "## Milliseconds, 1 client", ""]
    sizes = list(raw["schemas"])
    head = ["statement", *(f"{int(size):,} tables: {variant}" for size in sizes for variant in VARIANTS)]
    rows = []
    for what, words in (("tables", "each of these tables"), ("partitions", f"each of {PARTITIONS} partitions without a key")):
        rows.append((f"{words}, made in one transaction", *(
            f"{raw['schemas'][size][what][variant]:.1f}" for size in sizes for variant in VARIANTS)))
    for statement in ddl.STATEMENTS:
        rows.append((statement, *(
            spread([one[variant][statement] for one in raw["schemas"][size]["statements"]], 1)
            for size in sizes for variant in VARIANTS)))
    lines += table(head, rows)
    lines += ["Plain is a database of the same server that isn't replicated. A round has each statement once, and then "
              f"{REST_S} s in which hihooi reads the catalog again.", "",
              "## Another client's reads by key, at a replica, ms", ""]
    rows = []
    for size in sizes:
        for what, took in raw["schemas"][size]["reads"].items():
            rows.append((f"{int(size):,} tables, {what}", f"{median(took):.1f}", f"{sorted(took)[len(took) * 99 // 100]:.1f}",
                         f"{max(took):.1f}"))
    lines += table(("when", "median", "p99", "longest"), rows)
    return "\n".join(lines + ["Meanwhile: while the rounds above run, and the catalog is read again behind each.", "",
                              f"- `hihooi verify` after all of it: {raw['verify']}."]) + "\n"
