"""What consistency levels cost: transactions a second, hihooi's time for each, and the primary's share of the reads,
each server having a fixed part of a processor (as in quotas.py), so that what replicas are good for shows.
"""

import subprocess
import time
from statistics import median

import granularity
import quotas
import slices
import tpcc
import ycsb
from cluster import Trouble
from report import spread, table

# Promises least; the others are compared with it.
BASE = "weak-si"
LEVELS = [BASE, "gssi", "strict", "session", "rsi-pc", "sync"]
WIDE = "SELECT count(*), sum(tbalance) FROM pgbench_tellers WHERE bid < 5;\n"
WORKLOADS = {
    "95 % reads by key": ["-b", "select-only@95", "-b", "simple-update@5"],
    "80 % reads by key": ["-b", "select-only@80", "-b", "simple-update@20"],
    "95 % reads of a range": ["-f", "{wide}@95", "-b", "tpcb-like@5"],
}
# Two of the paper's section 7.1, TPC-C as the standard has it: in blocks.
PAPERS = [
    (tpcc, tpcc.BLOCKS, "TPC-C write-heavy"),
    (ycsb, ycsb.SCRIPTS, "YCSB balanced: 85 % reads, 15 % inserts"),
]


def measure(cluster, rounds, seconds, period_us, say):
    """By workload: rounds of slices, of each level."""
    wide = cluster.work / "wide.sql"
    wide.write_text(WIDE)
    runs = {workload: [word.format(wide=wide) for word in options] for workload, options in WORKLOADS.items()}
    for benchmark, scripts, workload in PAPERS:
        granularity.load(cluster, benchmark, scripts, say)
        runs[workload] = granularity.mix(cluster, benchmark.MIXES[workload])
    found = {}
    with quotas.Quotas(cluster, quotas.QUOTA, period_us) as limited:
        for workload, run in runs.items():
            say(f"{workload}, {quotas.CLIENTS} clients: {rounds} rounds")
            found[workload] = slices.rounds(
                rounds, LEVELS,
                lambda level, run=run: one(cluster, limited, f"hihooi.consistency={level}", seconds, run),
            )
    return found


def one(cluster, limited, setting, seconds, options):
    """A slice under a setting: transactions a second; hihooi's and the servers' time for each; reads by site."""
    time.sleep(quotas.REST_S)
    reads, used, pid = cluster.reads(), limited.used(), cluster.pids["hihooi"]
    before = sum(slices.cpu_us(pid))
    command = [f"{cluster.pg}/pgbench", "-h", "127.0.0.1", "-p", str(cluster.ports["hihooi"]), "-n"]
    command += ["-s", str(quotas.SCALE), "-c", str(quotas.CLIENTS), "-j", "2", "-T", str(seconds), "-M", "prepared"]
    environment = {**slices.ENVIRONMENT, "PGOPTIONS": f"-c {setting}"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*command, *options, "postgres"], env=environment, stdout=pipe, stderr=pipe, text=True
    )
    cluster.started.append(process)
    slice = slices.result(process)
    slice["hihooi_us"] = (sum(slices.cpu_us(pid)) - before) / slice["tx"]
    after = limited.used()
    slice["servers_us"] = sum(after[site][0] - used[site][0] for site in used) * 1e6 / slice["tx"]
    slice["reads"] = {site: count - reads[site] for site, count in cluster.reads().items()}
    if cluster.catch_up() is None:
        raise Trouble("the replicas don't catch up")
    return slice


def at_primary(some):
    """The primary's share of the reads in slices, in percent."""
    total = sum(sum(one["reads"].values()) for one in some) or 1
    return 100 * sum(one["reads"]["primary"] for one in some) / total


def set_up(kind, name, raw, data=""):
    """The first lines of a README."""
    lines = [f"# {name}", "", f"Made by `make bench-{kind}`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {key}: {value}" for key, value in raw["set_up"].items()]
    return lines + [
        f"- a primary and {quotas.REPLICAS} replicas, each with {quotas.QUOTA} processors in periods of "
        f"{raw['period_us'] / 1000:.0f} ms; {quotas.CLIENTS} clients, prepared statements{data}; "
        f"{raw['rounds']} rounds of {raw['seconds']} s slices", "",
    ]


def end(raw):
    """The last lines of a README."""
    return ["## Also", "", f"- `hihooi verify` after all of it: {raw['verify']}.", "- Raw figures: `raw.json`.", ""]


def summary(name, raw):
    """The README of a run."""
    lines = set_up("levels", name, raw, f", scale {quotas.SCALE}") + ["## Levels", ""]
    rows = []
    for workload, rounds in raw["levels"].items():
        for level in LEVELS:
            some = [one[level] for one in rounds]
            to_base = [one[level]["tps"] / one[BASE]["tps"] for one in rounds]
            time_to_base = [one[level]["hihooi_us"] / one[BASE]["hihooi_us"] for one in rounds]
            rows.append((
                workload, level, spread([one["tps"] for one in some], 0), spread(to_base, 2), f"{at_primary(some):.1f} %",
                spread([one["hihooi_us"] for one in some], 0), spread(time_to_base, 2),
                f"{median(one['servers_us'] for one in some):.0f}",
            ))
    lines += table(
        ("workload", "level", "transactions/s", f"to {BASE}", "primary's reads", "hihooi's µs a transaction",
         f"to {BASE}", "servers' µs"),
        rows,
    )
    best = [
        max(median(one["gssi"]["tps"] / one[level]["tps"] for one in rounds) for rounds in raw["levels"].values())
        for level in ("rsi-pc", "sync")
    ]
    return "\n".join(lines + [
        "Medians (quartiles) over the rounds, ratios within each.", "",
        f"`gssi` has up to {best[0]:.1f} times the transactions a second of `rsi-pc` and {best[1]:.1f} times those of `sync` "
        "(the paper's section 7.1: 2.6 and 6.7 times). Both of these wait until a "
        "replica has applied what was committed; here replicas apply within milliseconds, so that it costs less.", "",
        *end(raw),
    ])
