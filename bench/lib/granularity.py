"""The share of reads that the primary serves while others write, by what reads are told apart.

Workloads after the Hihooi paper's sections 7.1 and 7.2: YCSB's mixes of reads and updates by key, one with
ranges, and reads by key beside pgbench's TPC-B. Every client commits each statement by itself, but TPC-B's.
"""

import os
import pathlib
import re
import subprocess
import time

from cluster import Trouble

GRANULARITIES = ("table", "column", "row", "range")
ROWS = 100_000
CLIENTS = 8

SCHEMA = f"""
DROP TABLE IF EXISTS usertable;
CREATE TABLE usertable (id int PRIMARY KEY, f0 text, f1 text, f2 text, f3 text);
INSERT INTO usertable SELECT g, 'a', 'b', 'c', 'd' FROM generate_series(1, {ROWS}) g;
DROP TABLE IF EXISTS narrow;
CREATE TABLE narrow (id int PRIMARY KEY, n0 int, n1 int, n2 int) WITH (fillfactor = 10);
INSERT INTO narrow SELECT g, g, g, g FROM generate_series(1, 100) g;
ANALYZE usertable;
"""
READ = f"\\set id random(1, {ROWS})\nSELECT f0, f1, f2, f3 FROM usertable WHERE id = :id;\n"
UPDATE = f"\\set id random(1, {ROWS})\nUPDATE usertable SET f0 = 'x' || :id WHERE id = :id;\n"
SCAN = (
    f"\\set id random(1, {ROWS})\n\\set last :id + 20\n"
    "SELECT f0 FROM usertable WHERE id BETWEEN :id AND :last;\n"
)
COLUMN = "SELECT count(n1) FROM narrow WHERE n2 < 50;\n"
OTHER = "\\set id random(1, 100)\nUPDATE narrow SET n0 = n0 + 1 WHERE id = :id;\n"

# Name: scripts with their weights; with TPC-B, its writers run beside them.
WORKLOADS = {
    "YCSB A, 50 % reads by key": {"read": 50, "update": 50},
    "YCSB B, 95 % reads by key": {"read": 95, "update": 5},
    "95 % ranges of 20 keys": {"scan": 95, "update": 5},
    "50 % scans of columns not written": {"column": 50, "other": 50},
}
SCRIPTS = {"read": READ, "update": UPDATE, "scan": SCAN, "column": COLUMN, "other": OTHER}


def measure(cluster, seconds):
    """By workload and granularity: reads by site, transactions a second."""
    for statement in filter(None, map(str.strip, SCHEMA.split(";"))):
        query(cluster, statement)
    files = {}
    for name, text in SCRIPTS.items():
        files[name] = cluster.work / f"{name}.sql"
        files[name].write_text(text)
    found = {}
    for workload, weights in WORKLOADS.items():
        options = [f"-f{files[name]}@{weight}" for name, weight in weights.items()]
        found[workload] = {
            granularity: one(cluster, granularity, seconds, ["-M", "prepared", *options])
            for granularity in GRANULARITIES
        }
    beside = "reads by key beside TPC-B"
    found[beside] = {}
    for granularity in GRANULARITIES:
        with writers(cluster, seconds):
            run = one(cluster, granularity, seconds, ["-S", "-M", "prepared"])
        # The writers' own reads, in blocks, are the primary's too.
        at_replicas = sum(run["reads"].values()) - run["reads"]["primary"]
        found[beside][granularity] = {**run, "at_primary": 1 - at_replicas / run["transactions"]}
    return found


def one(cluster, granularity, seconds, options, settings=""):
    cluster.catch_up()
    before = cluster.reads()
    process = pgbench(cluster, granularity, seconds, options, settings=settings)
    out = process.communicate()[0]
    if process.returncode != 0:
        raise Trouble(f"pgbench failed: {' '.join(process.args)}\n{out}")
    after = cluster.reads()
    reads = {site: after[site] - before[site] for site in after}
    tps = float(re.search(r"tps = ([\d.]+)", out)[1])
    transactions = int(re.search(r"actually processed: (\d+)", out)[1])
    at_primary = reads["primary"] / max(1, sum(reads.values()))
    return {"reads": reads, "tps": tps, "transactions": transactions, "at_primary": at_primary}


class writers:
    """TPC-B by four clients, for as long as the reads beside it take."""

    def __init__(self, cluster, seconds):
        self.process = pgbench(cluster, "range", seconds + 2, ["-M", "prepared"], clients=4)

    def __enter__(self):
        time.sleep(1)

    def __exit__(self, *_):
        self.process.communicate()


def pgbench(cluster, granularity, seconds, options, clients=CLIENTS, settings=""):
    program = pathlib.Path(cluster.pg) / "pgbench"
    command = [str(program), "-n", "-h", "127.0.0.1", "-p", str(cluster.ports["hihooi"])]
    command += ["-U", "postgres", f"-c{clients}", "-j2", f"-T{seconds}", *options, "postgres"]
    environment = {**os.environ, "PGOPTIONS": f"-c hihooi.granularity={granularity} {settings}"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def load(cluster, benchmark, scripts, say):
    """Makes a benchmark's tables, and files of its scripts."""
    say(f"loading {benchmark.__name__}'s tables")
    for statement in benchmark.SCHEMA:
        query(cluster, statement)
    cluster.catch_up()
    for name, text in scripts.items():
        (cluster.work / f"{name}.sql").write_text(text)


def mix(cluster, weights):
    """pgbench's options for a mix of such scripts."""
    return [f"-f{cluster.work / name}.sql@{weight}" for name, weight in weights.items()]


def query(cluster, text):
    from wire import Connection

    connection = Connection(cluster.ports["hihooi"])
    try:
        return connection.query(text)
    finally:
        connection.close()
