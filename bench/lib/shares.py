"""The share of autocommit reads that the primary serves while clients write as fast as they can, by what reads are
told apart, in the workloads of the Hihooi paper's section 7.1; and why, read by read.
"""

from statistics import median

import granularity
import machine
import sampler
import tpcc
import ycsb
from report import table


def measure(cluster, seconds, say):
    """By workload and granularity: reads by site, transactions a second, routes of sampled reads."""
    found = {}
    for benchmark in (ycsb, tpcc):
        granularity.load(cluster, benchmark, benchmark.SCRIPTS, say)
        for mix, weights in benchmark.MIXES.items():
            say(mix)
            found[mix] = {
                level: _one(cluster, benchmark, weights, level, seconds)
                for level in granularity.GRANULARITIES
            }
    return found


def _one(cluster, benchmark, weights, level, seconds):
    options = ["-M", "prepared", *granularity.mix(cluster, weights)]
    groups = [
        [(shape, benchmark.READS[shape]) for shape in benchmark.SHAPES[name]]
        for name in weights
        if name in benchmark.SHAPES
    ]
    cluster.catch_up()
    asking = sampler.Sampler(
        cluster.ports["hihooi"], groups, benchmark.values, benchmark.LEARN, level
    )
    asking.start()
    applied = [row[2] for row in cluster.admin("SHOW REPLICAS")]
    busy = machine.Busy(cluster)
    try:
        run = granularity.one(cluster, level, seconds, options)
        shares = busy.shares()
        replicas = cluster.admin("SHOW REPLICAS")
    finally:
        routes = asking.stop()
    run |= {"machine": shares, "visible_ms": None}
    if applied != [row[2] for row in replicas]:
        run["visible_ms"] = min(int(row[5]) for row in replicas) / 1000
    return {**run, "caught_up_s": cluster.catch_up(), "routes": routes}


def summary(name, raw):
    """The README of a run."""
    lines = [f"# {name}", "", "Made by `make bench-shares`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {key}: {value}" for key, value in raw["set_up"].items()]
    lines += [f"- {granularity.CLIENTS} clients of pgbench, prepared statements, {raw['seconds']} s each, and one client that "
              "samples; two replicas, on the same machine", ""]
    lines += ["## Reads that no replica served", ""] + _shares(raw["shares"])
    lines += ["## Why, at granularity `range`", ""] + _reasons(raw["shares"])
    lines += ["## Also", "", f"- `hihooi verify` after all of it: {raw['verify']}.", "- Raw figures: `raw.json`.", ""]
    return "\n".join(lines)


def _shares(found):
    rows = []
    for mix, runs in found.items():
        shares = [f"{100 * run['at_primary']:.2f} %" for run in runs.values()]
        visible_ms = runs["range"]["visible_ms"]
        visible = f"{visible_ms:.1f} ms" if visible_ms else "-"
        speeds = " / ".join(f"{run['tps']:.0f}" for run in runs.values())
        rows.append((mix, *shares, by_key(runs["range"]["routes"]), visible, speeds))
    head = ("workload", *granularity.GRANULARITIES, "reads by key, sampled, at `range`", "visible after, at `range`",
            "transactions/s")
    busy = [run["machine"] for runs in found.values() for run in runs.values()]
    return table(head, rows) + [
        "The paper's share is 15 % of the reads in TPC-C write-heavy; the target here is 5 % of the reads by key. "
        "Visible after: median from a commit until a replica shows it.",
        "",
        "A key that is read and written at random meets a write that no replica shows yet with the probability that "
        "two keys drawn are the same, times such writes: writes a second times the time until they are visible. "
        f"For YCSB's keys the former is {100 * ycsb.same_key():.2f} %; so the time until writes are visible, and "
        "whatever makes it longer (a busy machine), decides.",
        "",
        f"The machine was busy for {median(one['busy'] for one in busy):.0f} % in the middle, "
        f"{median(one['own'] for one in busy):.0f} % by this run (clients not counted).",
        "",
    ]


def by_key(routes):
    """The primary's share of the sampled reads that name a row by its whole key."""
    whole = [*tpcc.BY_KEY, "read by key"]
    counts = {"primary": 0, "replica": 0}
    for route in routes:
        if route["read"] in whole:
            counts[route["where"]] += route["count"]
    total = sum(counts.values())
    return f"{100 * counts['primary'] / total:.2f} % of {total}" if total else "-"


def _reasons(found):
    rows = []
    for mix, runs in found.items():
        routes = runs["range"]["routes"]
        totals = {}
        for route in routes:
            totals[route["read"]] = totals.get(route["read"], 0) + route["count"]
        for route in routes:
            if route["where"] == "primary" or route["reason"] == "waited":
                share = 100 * route["count"] / totals[route["read"]]
                rows.append((mix, route["read"], f"{share:.1f} % of {totals[route['read']]}", route["class"],
                             f"{route['reason']}, {route['where']}", route["detail"]))
    head = ("workload", "read", "sampled", "class", "reason, where", "detail")
    return table(head, rows) + [
        "One more client ran the workload's reads in turn and asked about each. Other reads ran at a replica that was "
        "fresh at once.", "",
    ]
