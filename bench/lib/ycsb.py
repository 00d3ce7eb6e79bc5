"""YCSB's workloads as the Hihooi paper's section 7.1 uses them: each statement commits by itself.

Keys are Zipfian (pgbench's least exponent, 1.001, for the paper's 1) and scattered over the table. They are a
million apart, so that rows are inserted between others, as in YCSB's hashed order of inserts, and never twice.
"""

import bisect
import itertools
import random

ROWS = 100_000
APART = 1_000_000
SCATTER = 7919  # has no divisor in common with ROWS
FIELDS = 10
SCAN_MAX = 100

COLUMNS = ", ".join(f"field{number}" for number in range(FIELDS))
SCHEMA = [
    "DROP TABLE IF EXISTS usertable",
    f"CREATE TABLE usertable (ycsb_key bigint PRIMARY KEY, {COLUMNS.replace(',', ' text,')} text)",
    f"INSERT INTO usertable SELECT g * {APART}"
    + ", repeat(md5(g::text), 3)" * FIELDS
    + f" FROM generate_series(1::bigint, {ROWS}) g",
    "ANALYZE usertable",
]

KEY = f"\\set key random_zipfian(1, {ROWS}, 1.001) * {SCATTER} % {ROWS} * {APART} + {APART}\n"
NEW_KEY = f"\\set new random(1, {ROWS * APART})\n"
LENGTH = f"\\set length random(1, {SCAN_MAX})\n\\set last :key + :length * {APART}\n"

READS = {
    "read by key": "SELECT * FROM usertable WHERE ycsb_key = :key",
    "scan between two keys": "SELECT * FROM usertable WHERE ycsb_key > :key AND ycsb_key < :last",
    "scan with LIMIT": "SELECT * FROM usertable WHERE ycsb_key >= :key ORDER BY ycsb_key LIMIT :length",
}
INSERT = f"INSERT INTO usertable VALUES (:new{', md5(:new::text)' * FIELDS})"
UPDATE = "UPDATE usertable SET field0 = md5(:new::text) WHERE ycsb_key = :key"

SCRIPTS = {
    "read": KEY + READS["read by key"] + ";\n",
    "scan": KEY + LENGTH + READS["scan between two keys"] + ";\n",
    "limited": KEY + LENGTH + READS["scan with LIMIT"] + ";\n",
    "insert": NEW_KEY + INSERT + ";\n",
    "update": NEW_KEY + KEY + UPDATE + ";\n",
}

# The first four are the paper's. YCSB's own scans have a LIMIT; OLTP-Bench's, which the paper ran, an upper bound.
MIXES = {
    "YCSB read-only: 100 % reads": {"read": 100},
    "YCSB read-heavy: 95 % scans, 5 % inserts": {"scan": 95, "insert": 5},
    "YCSB balanced: 85 % reads, 15 % inserts": {"read": 85, "insert": 15},
    "YCSB write-heavy: 50 % reads, 50 % updates": {"read": 50, "update": 50},
    "scans with LIMIT: 95 %, 5 % inserts": {"limited": 95, "insert": 5},
}
# The reads of each script.
LEARN = {}
SHAPES = {"read": ["read by key"], "scan": ["scan between two keys"], "limited": ["scan with LIMIT"]}


WEIGHTS = list(itertools.accumulate(rank**-1.001 for rank in range(1, ROWS + 1)))


def same_key():
    """The probability that two keys drawn are the same."""
    parts = [rank**-1.001 / WEIGHTS[-1] for rank in range(1, ROWS + 1)]
    return sum(part * part for part in parts)


def values():
    """Values for a sampled read, spread as the scripts' are."""
    rank = bisect.bisect(WEIGHTS, random.random() * WEIGHTS[-1]) + 1
    key = rank * SCATTER % ROWS * APART + APART
    length = random.randint(1, SCAN_MAX)
    return {"key": key, "last": key + length * APART, "length": length}
