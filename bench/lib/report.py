"""From raw figures to the summary: what was aimed at, what was measured, and what it means."""

from statistics import median, quantiles

import ddl
import memory as memory_of
import state

SIMPLE = ["direct", "pgbouncer", "relay", "hihooi"]
PREPARED = ["direct", "pgbouncer-session", "relay", "hihooi"]
WRITES = ["direct", "pgbouncer", "hihooi"]
# A byte relay and session pooling would need a server connection for each client.
CROWD = {"simple": ["pgbouncer", "hihooi"], "prepared": ["hihooi"]}


def percentile(values, percent):
    """The value that `percent` of them don't exceed."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) * percent // 100]


def spread(values, digits):
    """Median (quartiles)."""
    low, middle, high = quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def verdict(measured, limit):
    """Passed, or by how much not."""
    if measured <= limit:
        return "passed"
    return f"**missed by {100 * (measured / limit - 1):.0f} %**"


class Figures:
    """The raw figures of a run, and what follows from them."""

    def __init__(self, raw):
        self.raw = raw

    def column(self, table, variant, key):
        return [round[variant][key] for round in self.raw[table]]

    def ratio(self, table, variant, base, key="cpu_us"):
        """Within each round, one variant's figure over another's."""
        return [round[variant][key] / round[base][key] for round in self.raw[table]]

    def instructions(self, protocol, base):
        """hihooi's instructions over another's, in words; nothing if none were counted."""
        counted = self.raw.get("counters", {}).get(protocol, {})
        middle = {}
        for variant in ("hihooi", base):
            slices = counted.get(variant, [])
            values = [one["instructions"] for one in slices if "instructions" in one]
            if not values:
                return ""
            middle[variant] = median(values)
        return f"; in instructions {middle['hihooi'] / middle[base]:.2f}"

    def added(self, variant, key="median_us"):
        """Latency over a direct connection's, within each round of one client, microseconds."""
        return [round[variant][key] - round["direct"][key] for round in self.raw["latency"]]

    def probe(self, run):
        """Milliseconds of the outside probe, both replicas together."""
        return [ms for site in self.raw[run]["probe_ms"].values() for ms in site]

    def own(self, run):
        """Lowest, middle and highest of the sampled medians and p99s that hihooi tells, ms."""
        rows = [row for row in self.raw[run]["samples"] if row[6] is not None]
        return [[int(row[at]) / 1000 for row in rows] or [float("nan")] for at in (6, 7)]

    def lags(self, run):
        """Entries behind, as sampled; what is unknown is left out."""
        return [int(row[4]) for row in self.raw[run]["samples"] if row[4] is not None]

    def keeps_up(self, run):
        """Whether lag doesn't grow: its last third is not far above its first, and it ends."""
        lags = self.lags(run)
        third = max(len(lags) // 3, 1)
        grows = median(lags[-third:]) > max(100, 3 * median(lags[:third]))
        return not grows and self.raw[run]["caught_up_s"] is not None


def targets(figures):
    """Rows: what, target, measured, verdict."""
    simple = figures.ratio("simple", "hihooi", "pgbouncer")
    instructions = figures.instructions("simple", "pgbouncer")
    prepared = figures.column("prepared", "hihooi", "cpu_us")
    over_relay = figures.ratio("prepared", "hihooi", "relay")
    prepared_verdict = verdict(median(over_relay), 1.5)
    if prepared_verdict != "passed" and median(prepared) <= 55:
        prepared_verdict = "passed by the microseconds only"
    added = figures.added("hihooi")
    probe = figures.probe("visibility")
    lags = figures.lags("visibility")
    caught_up = figures.raw["visibility"]["caught_up_s"]
    memory = figures.raw["memory"]
    rest_mb = memory["rest_kb"] / 1024
    by_key = [runs["range"]["at_primary"] for workload, runs in figures.raw["granularity"].items()
              if "key" in workload]
    at_primary = 100 * max(0, *by_key)
    return [
        ("CPU per simple transaction, 8 clients, over PgBouncer's", "at most 1.3",
         spread(simple, 2) + instructions, verdict(median(simple), 1.3)),
        ("CPU per prepared transaction, 8 clients", "at most 55 µs or 1.5 times the byte relay's",
         f"{spread(prepared, 1)} µs; {spread(over_relay, 2)} times"
         + figures.instructions("prepared", "relay"),
         prepared_verdict),
        ("latency added at 1 client", "at most 80 µs",
         f"{spread(added, 0)} µs", verdict(median(added), 80)),
        ("acknowledged to visible, TPC-B of 8 clients, median", "at most 3 ms",
         f"{median(probe):.1f} ms", verdict(median(probe), 3)),
        ("the same, p99", "at most 30 ms",
         f"{percentile(probe, 99):.1f} ms", verdict(percentile(probe, 99), 30)),
        ("replicas don't fall behind", "lag bounded, 0 in the end",
         f"{median(lags):.0f} entries (median), {max(lags)} at most; "
         + (f"0 after {caught_up:.1f} s" if caught_up is not None else "never 0 again"),
         "passed" if figures.keeps_up("visibility") else "**missed**"),
        ("reads by key that no replica served, under full write load", "at most 5 %",
         f"{at_primary:.2f} % (the worst workload)", verdict(at_primary, 5)),
        ("memory at rest", "at most 50 MB", f"{rest_mb:.1f} MB", verdict(rest_mb, 50)),
        ("memory of an idle client, of 1,000", "at most 20 KB",
         f"{memory['each_kb']:.1f} KB", verdict(memory["each_kb"], 20)),
    ]


def table(head, rows):
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def summary(name, raw):
    """The README of a run."""
    figures = Figures(raw)
    lines = [f"# {name}", "", "Made by `make bench`; what is measured and how: "
             "[bench/README.md](../../README.md).", ""]
    lines += _set_up(raw)
    lines += ["## Targets", ""]
    lines += table(("what", "target", "measured: median (quartiles)", ""), targets(figures))
    lines += ["## CPU and throughput, `pgbench -S`, 8 clients", ""]
    lines += _selects(figures)
    lines += ["## 32 active clients of 1,000, `pgbench -S`", ""]
    lines += _crowd(raw["crowd"], figures)
    lines += ["## Latency, `pgbench -S`, 1 client, simple protocol", ""]
    lines += _latency(figures)
    lines += ["## Throughput, TPC-B-like, 8 clients, scale 10", ""]
    lines += _writes(figures)
    lines += ["## Reads that no replica served, by what they are told from writes", ""]
    lines += _granularity(raw["granularity"])
    lines += ["## DDL, 1 client", ""]
    lines += _ddl(raw["ddl"])
    lines += ["## What a session leaves behind, 1 client", ""]
    lines += _state(raw["state"])
    lines += ["## A connection for each transaction, `pgbench -S -C`, 8 clients", ""]
    lines += _connections(figures)
    lines += ["## Acknowledged to visible", ""]
    lines += _visibility(figures)
    lines += ["## Memory", ""]
    lines += _memory(raw["memory"], raw["statements"])
    lines += ["## Also", "", f"- `hihooi verify` after all of it: {raw['verify']}."]
    lines += [f"- Profile: {raw['profile']}", "- Raw figures: `raw.json`.", ""]
    return "\n".join(lines)


def _set_up(raw):
    lines = ["## Set-up", ""]
    lines += [f"- {key}: {value}" for key, value in raw["set_up"].items()]
    for when, noise in raw["noise"].items():
        wake, flush = noise["wake_up_us"], noise["flush_us"]
        lines.append(
            f"- {when}: load average {noise['load']:.1f}; a sleeper wakes {wake[0]} µs late (p99 "
            f"{wake[1]}); a flush of 8 KB takes {flush[0]} µs (p99 {flush[1]})"
        )
    lines += [
        f"- {raw['rounds']} rounds of {raw['seconds']} s slices; everything on this machine, on "
        "loopback TCP: clients, the middle and three servers share its processors",
        "",
        "Others may have used the machine meanwhile: only what is compared within the run counts; "
        "microseconds and transactions per second are not to be compared with other runs.",
        "",
    ]
    return lines


def _selects(figures):
    rows = []
    for protocol, variants, base in (
        ("simple", SIMPLE, "pgbouncer"),
        ("prepared", PREPARED, "relay"),
    ):
        for variant in variants:
            rows.append(_select_row(figures, protocol, variant, base))
    reads = figures.raw["reads"]
    total = sum(reads.values()) or 1
    share = "{} {:,} ({:.0f} %)".format
    shares = ", ".join(share(site, n, 100 * n / total) for site, n in reads.items())
    head = ("protocol, variant", "CPU µs/tx", "of it user", "CPU ratio", "transactions/s",
            "of direct", "instructions/tx", "of them user", "calls/tx", "EAGAIN/tx")
    return table(head, rows) + [
        "CPU is of the process in the middle. Ratio: to PgBouncer's (simple) or the byte relay's "
        "(prepared) slice of the same round. PgBouncer pools transactions, with prepared "
        "statements sessions. The others stand before one server, hihooi before three.",
        "",
        f"Reads by site through hihooi meanwhile: {shares}.",
        "",
    ]


def _select_row(figures, protocol, variant, base):
    tps = spread(figures.column(protocol, variant, "tps"), 0)
    if variant == "direct":
        return (f"{protocol}, direct", "", "", "", tps, "", "", "", "", "")
    counts = figures.raw.get("counters", {}).get(protocol, {}).get(variant, [])
    return (
        f"{protocol}, {variant}",
        spread(figures.column(protocol, variant, "cpu_us"), 1),
        f"{median(figures.column(protocol, variant, 'user_us')):.1f}",
        spread(figures.ratio(protocol, variant, base), 2),
        tps,
        f"{median(figures.ratio(protocol, variant, 'direct', 'tps')):.2f}",
        _event(counts, "instructions", 0),
        _event(counts, "instructions:u", 0),
        _event(counts, "sys_enter", 2),
        _event(counts, "sys_exit_recvfrom", 2),
    )


def _event(counts, event, digits):
    values = [count[event] for count in counts if event in count]
    return f"{median(values):,.{digits}f}" if values else "-"


def _crowd(crowd, figures):
    rows = []
    for protocol, variants in CROWD.items():
        alone = median(figures.column(protocol, "hihooi", "cpu_us"))
        for variant in variants:
            used = [round[variant]["cpu_us"] for round in crowd[protocol]]
            ratio = [round[variant]["cpu_us"] / round["pgbouncer"]["cpu_us"]
                     for round in crowd[protocol] if "pgbouncer" in round]
            rows.append((
                f"{protocol}, {variant}",
                spread(used, 1),
                spread(ratio, 2) if ratio else "",
                f"{median(used) / alone:.2f}" if variant == "hihooi" else "",
                spread([round[variant]["tps"] for round in crowd[protocol]], 0),
            ))
    head = ("protocol, variant", "CPU µs/tx", "ratio to PgBouncer's", "to 8 clients alone", "transactions/s")
    return table(head, rows)


def _granularity(found):
    granularities = list(next(iter(found.values())))
    rows = []
    for workload, runs in found.items():
        shares = [f"{100 * max(0, run['at_primary']):.2f} %" for run in runs.values()]
        rows.append((workload, *shares, " / ".join(f"{run['tps']:.0f}" for run in runs.values())))
    return table(("workload", *granularities, "transactions/s"), rows) + [
        "Replicas take the processors' time that their reads and their applying cost, on the same machine: "
        "transactions per second don't show what more servers bring.",
        "",
    ]


def _latency(figures):
    rows = []
    for variant in SIMPLE:
        keys = ("median_us", "p99_us", "latency_us")
        middle, p99, mean = (spread(figures.column("latency", variant, key), 0) for key in keys)
        added = ("", "")
        if variant != "direct":
            added = tuple(spread(figures.added(variant, key), 0) for key in (keys[0], keys[2]))
        rows.append((variant, middle, added[0], p99, mean, added[1]))
    head = ("variant", "median, µs", "added", "p99, µs", "mean, µs", "added to the mean")
    return table(head, rows) + [
        "Each a median (quartiles) over the slices. On a busy machine means are made of the few "
        "transactions that lost a processor for some milliseconds: the median of a slice counts.",
        "",
    ]


def _writes(figures):
    rows = []
    for variant in WRITES:
        rows.append((
            variant,
            spread(figures.column("writes", variant, "tps"), 0),
            spread(figures.ratio("writes", variant, "direct", "tps"), 2),
            spread(figures.column("writes", variant, "cpu_us"), 0),
        ))
    head = ("variant", "transactions/s", "of direct", "CPU µs/tx")
    return table(head, rows) + [
        "Seven statements each, simple protocol. Replicas follow in all three, on the same "
        "processors. CPU: of PgBouncer; of hihooi with all its threads, which for `direct` is "
        "what collecting, logging and applying cost.",
        "",
    ] + _writes_by_thread(figures)


def _writes_by_thread(figures):
    rows = []
    for thread, what in (
        ("relay", "relaying seven statements"),
        ("replication", "collecting, and applying at two replicas"),
        ("log", "logging"),
    ):
        used = [
            [figure.get(name, 0) for name in figure if name.startswith(thread)]
            for figure in figures.column("writes", "hihooi", "threads_us")
        ]
        rows.append((f"{thread}: {what}", spread([sum(values) for values in used], 0)))
    rows.append(("PgBouncer, for comparison", spread(figures.column("writes", "pgbouncer", "cpu_us"), 0)))
    return table(("thread of hihooi", "CPU µs/tx"), rows)


def _ddl(rounds):
    rows = []
    for name in ddl.STATEMENTS:
        took = {v: [round[v][name] for round in rounds] for v in ddl.VARIANTS}
        ratio = [round["hihooi"][name] / round["plain"][name] for round in rounds]
        rows.append((name, *(spread(took[v], 1) for v in ddl.VARIANTS), spread(ratio, 1)))
    head = ("statement", "plain, ms", "at the primary, ms", "through hihooi, ms", "of plain")
    return table(head, rows) + [
        "Plain is a database of the same server that isn't replicated. At the primary itself the "
        "event triggers note each command; through hihooi, the session also looks at what it left "
        "and reads the catalog.",
        "",
    ]


def _state(rounds):
    rows = []
    for name in state.STATEMENTS:
        took = {v: [round[v][name] for round in rounds] for v in state.VARIANTS}
        added = [round["hihooi"][name] - round["direct"][name] for round in rounds]
        rows.append((name, *(spread(took[v], 0) for v in state.VARIANTS), spread(added, 0)))
    head = ("statement", "direct, µs", "PgBouncer, µs", "hihooi, µs", "added by hihooi")
    return table(head, rows) + [
        "Behind the answer to statements that may have changed the session's state hihooi asks what it is, in "
        "a round trip of its own. PgBouncer doesn't ask: the next client finds what was left.",
        "",
    ]


def _connections(figures):
    rows = []
    for variant in WRITES:
        rows.append((
            variant,
            spread(figures.column("connections", variant, "tps"), 0),
            spread(figures.ratio("connections", variant, "direct", "tps"), 2),
            spread(figures.column("connections", variant, "cpu_us"), 0),
        ))
    return table(("variant", "transactions/s", "of direct", "CPU µs/tx"), rows)


def _visibility(figures):
    rows = []
    for run, title in (("visibility", "full speed"), ("throttled", "40 % of that")):
        probe, lags = figures.probe(run), figures.lags(run)
        medians, p99s = figures.own(run)
        rows.append((
            title,
            f"{figures.raw[run]['tps']:.0f}",
            f"{median(probe):.1f}, {percentile(probe, 99):.1f} ({len(probe)} samples)",
            f"{median(medians):.1f} ({min(medians):.1f}-{max(medians):.1f})",
            f"{median(p99s):.1f} ({min(p99s):.1f}-{max(p99s):.1f})",
            f"{median(lags):.0f}, {max(lags)}",
            f"{figures.raw[run]['processors']['busy']:.0f} %, "
            f"{figures.raw[run]['processors']['own']:.0f} %",
        ))
    head = ("8 clients at", "transactions/s", "probe: median, p99, ms", "own median, ms",
            "own p99, ms", "lag: median, most, entries", "processors busy, by this run")
    lost = sum(figures.raw[run]["lost"] for run in ("visibility", "throttled"))
    return table(head, rows) + [
        "The probe updates a row through hihooi and asks both replicas directly until they show "
        "it. hihooi's own figures are of its last 4,096 entries, sampled every second (lowest and "
        "highest sample in brackets), and count from the primary's commit time stamp, before its "
        f"flush. Updates that were not visible within 10 s: {lost}.",
        "",
    ]


def _memory(memory, statements):
    rows = [
        ("ready, nothing done", f"{memory['rest_kb'] / 1024:.1f}"),
        ("after pgbench -i and 32 clients", f"{memory['before_kb'] / 1024:.1f}"),
        ("with 1,000 idle clients", f"{memory['during_kb'] / 1024:.1f}"),
        (f"before {memory_of.STATEMENTS:,} different statements", f"{statements['before_kb'] / 1024:.1f}"),
        ("after them", f"{statements['after_kb'] / 1024:.1f}"),
        ("at the end of the run", f"{memory['end_kb'] / 1024:.1f}"),
    ]
    return table(("hihooi", "resident, MB"), rows)
