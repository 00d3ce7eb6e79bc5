"""Instructions of its own code that hihooi carries out for a transaction, counted by Valgrind's callgrind.

Times depend on the machine and its neighbours; these hardly do, so that a longer way shows. They leave out the kernel,
which takes more than half of the time, and say nothing of caches. Everything is slow meanwhile, so that what happens at
intervals (asking for LSNs, looking at replicas) counts for more than it does; beside other load more still.
"""

import re
import shutil
import subprocess

from cluster import Trouble
from machine import describe
from report import table
from slices import ENVIRONMENT

# Of pgbench's tables: what a statement costs here doesn't depend on it.
SCALE = 1
WARM_UP, TRANSACTIONS = 50, 300
CONTROL_SECONDS_MAX = 30
# By name, what pgbench is told, and the consistency level.
READ, PREPARED = ["-S"], ["-M", "prepared"]
TPCB = ["-b", "tpcb-like"]
LOADS = {
    "a read by key, simple": (READ, "gssi"),
    "a read by key, simple, weak-si": (READ, "weak-si"),
    "a read by key, prepared": (READ + PREPARED, "gssi"),
    "a read by key, prepared, weak-si": (READ + PREPARED, "weak-si"),
    "TPC-B, simple": (TPCB, "gssi"),
    "TPC-B, prepared": (TPCB + PREPARED, "gssi"),
}


def unavailable():
    """Why nothing can be counted; None if it can."""
    return None if shutil.which("valgrind") else "valgrind is not installed (Debian: valgrind)"


def measure(cluster, load, say):
    """Instructions per transaction by load and thread."""
    cluster.wrapper = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]
    cluster.wrapper += [f"--callgrind-out-file={cluster.work}/callgrind"]
    say("starting a primary and two replicas, and hihooi under callgrind")
    cluster.start()
    raw = {"set_up": describe(cluster)}
    load(cluster, SCALE)
    raw["instructions"] = {}
    for name, (options, level) in LOADS.items():
        say(f"{name}: {TRANSACTIONS} transactions of one client")
        raw["instructions"][name] = _count(cluster, options, level)
    return raw


def _count(cluster, options, level):
    pid = cluster.pids["hihooi"]
    _run(cluster, WARM_UP, options, level)
    _control(pid, "-i", "on")
    _run(cluster, TRANSACTIONS, options, level)
    _control(pid, "-d")
    _control(pid, "-i", "off")
    counts = {}
    for file in cluster.work.glob("callgrind.*"):
        text = file.read_text(errors="replace")
        total, thread = re.search(r"^totals: (\d+)", text, re.M), re.search(r"^thread: (\d+)", text, re.M)
        if total and thread:
            counts[thread[1]] = counts.get(thread[1], 0) + int(total[1]) / TRANSACTIONS
        file.unlink()
    if not counts:
        raise Trouble("callgrind counted nothing")
    return counts


def _run(cluster, transactions, options, level):
    command = [f"{cluster.pg}/pgbench", "-h", "127.0.0.1", "-p", str(cluster.ports["hihooi"]), "-n", "-c", "1"]
    command += ["-t", str(transactions), *options, "postgres"]
    environment = ENVIRONMENT | {"PGOPTIONS": f"-c hihooi.consistency={level}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Trouble(f"pgbench failed: {' '.join(command)}\n{done.stderr}")


def _control(pid, *options):
    command = ["callgrind_control", *options, str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONTROL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{' '.join(command)} doesn't end") from None
    if "OK" not in done.stdout:
        raise Trouble(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def summary(name, raw):
    """The README of a run."""
    lines = [f"# {name}", "", "Made by `make bench-instructions`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {what}: {value}" for what, value in raw["set_up"].items()]
    lines += [f"- {TRANSACTIONS} transactions of one client each, after {WARM_UP} that don't count", ""]
    lines += ["## Instructions per transaction, without the kernel's", ""]
    rows = []
    for load, counts in raw["instructions"].items():
        threads = [f"{count:,.0f}" for count in sorted(counts.values(), reverse=True) if count > 100]
        rows.append((load, f"{sum(counts.values()):,.0f}", ", ".join(threads)))
    lines += table(("load", "instructions", "of it by thread"), rows)
    lines += ["The busiest thread comes first. Of reads it is the relay, of TPC-B replication (collecting, and applying at "
              "two replicas), then the relay, then the log's writer. The level is gssi where none is named.", ""]
    lines += [f"- `hihooi verify` after all of it: {raw['verify']}."]
    return "\n".join(lines) + "\n"
