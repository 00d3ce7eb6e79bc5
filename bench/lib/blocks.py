"""Transactions in blocks, by whether a block's reads are routed one by one (`hihooi.statement_routing`): the share of
reads that the primary serves, and transactions a second, each server having a fixed part of a processor (as in
quotas.py), so that what replicas are good for shows. (The Hihooi paper's sections 5.2 and 7.)
"""

from statistics import median

import granularity
import levels
import quotas
import slices
import tpcc
import web
from report import spread, table

# All of a block at the primary, and its reads at replicas unless they read what it has written.
ROUTINGS = {"by transaction": "off", "by statement": "on"}
HEAVY = "TPC-C write-heavy"
PAPER = 15  # percent of the reads in that mix, at the primary
TARGET = 5


def measure(cluster, rounds, seconds, period_us, say):
    """By mix: rounds of slices, of each routing."""
    mixes = {}
    for benchmark in (tpcc, web):
        granularity.load(cluster, benchmark, benchmark.BLOCKS, say)
        mixes |= {mix: weights for mix, weights in benchmark.MIXES.items() if weights.keys() <= benchmark.BLOCKS.keys()}
    found = {}
    with quotas.Quotas(cluster, quotas.QUOTA, period_us) as limited:
        for mix, weights in mixes.items():
            say(f"{mix}, {quotas.CLIENTS} clients: {rounds} rounds")
            options = granularity.mix(cluster, weights)
            found[mix] = slices.rounds(
                rounds, list(ROUTINGS),
                lambda routing, options=options: levels.one(
                    cluster, limited, f"hihooi.statement_routing={ROUTINGS[routing]}", seconds, options
                ),
            )
    return found


def summary(name, raw):
    """The README of a run."""
    lines = levels.set_up("blocks", name, raw) + ["## Reads in blocks", ""]
    rows = []
    for mix, rounds in raw["blocks"].items():
        whole, apart = ([one[routing] for one in rounds] for routing in ROUTINGS)
        ratio = [one["by statement"]["tps"] / one["by transaction"]["tps"] for one in rounds]
        share = levels.at_primary(apart)
        target = "" if mix != HEAVY else f"under {TARGET} %: {'passed' if share < TARGET else 'missed'}"
        rows.append((
            mix, f"{levels.at_primary(whole):.1f} %", f"{share:.1f} %", target,
            spread([one["tps"] for one in whole], 0), spread([one["tps"] for one in apart], 0), spread(ratio, 2),
            f"{median(one['hihooi_us'] for one in whole):.0f}", f"{median(one['hihooi_us'] for one in apart):.0f}",
        ))
    lines += table(
        ("workload", "primary's reads, by transaction", "by statement", "target", "transactions/s, by transaction",
         "by statement", "ratio", "hihooi's µs a transaction, by transaction", "by statement"),
        rows,
    )
    return "\n".join(lines + [
        "By transaction: `hihooi.statement_routing = off`, all of a block runs on the primary. By statement: its reads run at "
        f"replicas, unless they read what it has written. The paper has {PAPER} % of the reads in {HEAVY} at the primary, "
        "and up to 1.43 times the transactions a second by statement. Medians (quartiles) over the rounds, ratios within each.",
        "", *levels.end(raw),
    ])
