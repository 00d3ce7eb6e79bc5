"""What consistency levels cost: transactions a second, hihooi's time for each, and the primary's share of the reads,
each server having a fixed part of a processor (as in quotas.py), so that what replicas are good for shows.
"""

import subprocess
import time
from statistics import median

import quotas
import slices
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


def measure(cluster, rounds, seconds, period_us, say):
    """By workload: rounds of slices, of each level."""
    wide = cluster.work / "wide.sql"
    wide.write_text(WIDE)
    found = {}
    with quotas.Quotas(cluster, quotas.QUOTA, period_us) as limited:
        for workload, options in WORKLOADS.items():
            say(f"{workload}, {quotas.CLIENTS} clients: {rounds} rounds")
            run = [word.format(wide=wide) for word in options]
            found[workload] = slices.rounds(
                rounds, LEVELS, lambda level, run=run: _slice(cluster, limited, level, seconds, run)
            )
    return found


def _slice(cluster, limited, level, seconds, options):
    """Transactions a second; hihooi's and the servers' time for each; reads by site."""
    time.sleep(quotas.REST_S)
    reads, used, pid = cluster.reads(), limited.used(), cluster.pids["hihooi"]
    before = sum(slices.cpu_us(pid))
    command = [f"{cluster.pg}/pgbench", "-h", "127.0.0.1", "-p", str(cluster.ports["hihooi"]), "-n"]
    command += ["-s", str(quotas.SCALE), "-c", str(quotas.CLIENTS), "-j", "2", "-T", str(seconds), "-M", "prepared"]
    environment = {**slices.ENVIRONMENT, "PGOPTIONS": f"-c hihooi.consistency={level}"}
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


def summary(name, raw):
    """The README of a run."""
    lines = [f"# {name}", "", "Made by `make bench-levels`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {key}: {value}" for key, value in raw["set_up"].items()]
    lines += [f"- a primary and {quotas.REPLICAS} replicas, each with {quotas.QUOTA} processors in periods of "
              f"{raw['period_us'] / 1000:.0f} ms; {quotas.CLIENTS} clients, prepared statements, scale {quotas.SCALE}; "
              f"{raw['rounds']} rounds of {raw['seconds']} s slices", "", "## Levels", ""]
    rows = []
    for workload, rounds in raw["levels"].items():
        for level in LEVELS:
            some = [one[level] for one in rounds]
            total = sum(sum(one["reads"].values()) for one in some) or 1
            primary = 100 * sum(one["reads"]["primary"] for one in some) / total
            to_base = [one[level]["tps"] / one[BASE]["tps"] for one in rounds]
            time_to_base = [one[level]["hihooi_us"] / one[BASE]["hihooi_us"] for one in rounds]
            rows.append((
                workload, level, spread([one["tps"] for one in some], 0), spread(to_base, 2), f"{primary:.1f} %",
                spread([one["hihooi_us"] for one in some], 0), spread(time_to_base, 2),
                f"{median(one['servers_us'] for one in some):.0f}",
            ))
    lines += table(
        ("workload", "level", "transactions/s", f"to {BASE}", "primary's reads", "hihooi's µs a transaction",
         f"to {BASE}", "servers' µs"),
        rows,
    )
    lines += ["Medians (quartiles) over the rounds, ratios within each.", "", "## Also", "",
              f"- `hihooi verify` after all of it: {raw['verify']}.", "- Raw figures: `raw.json`.", ""]
    return "\n".join(lines)
