"""How the cluster scales if each PostgreSQL server has a fixed part of a processor: hihooi and three replicas beside
the primary alone.

On one machine servers take each other's time, so that more of them can't show what they bring. Here each is in
control groups of its own (version 1: `cpu` with a quota, `cpuacct` to count), and the rest of the machine is for
clients and hihooi. Needs root.
"""

import contextlib
import os
import pathlib
import random
import subprocess
import time
from statistics import median

import machine
import sampler
import slices
from cluster import Trouble
from report import spread, table
from wire import Connection, ServerError

REPLICAS = 3
CLIENTS = 16
SCALE = 10
QUOTA = 0.2  # processors for each server
PERIOD_US = 100_000  # the kernel's default
# The run weighs so much against each process outside (1024), and in it hihooi and the clients as much as the servers
# together: otherwise whoever uses the machine takes from servers what their quotas give them, and from hihooi, which
# needs more of the machine than the primary alone, most of all.
RUN_SHARES = 16_384
SERVER_SHARES = 1_024
OTHERS = "hihooi-and-clients"
REST_S = 1  # between slices, so that nobody begins with its quota used up

# The primary alone: the replicated database at the primary itself (which pays for sending its log), and a database
# of the same server that isn't replicated.
VARIANTS = ["direct", "plain", "hihooi"]
WORKLOADS = {
    "reads only": ["-b", "select-only"],
    "95 % reads": ["-b", "select-only@95", "-b", "simple-update@5"],
    "80 % reads": ["-b", "select-only@80", "-b", "simple-update@20"],
}
TARGETS = {"95 % reads": 2.5}
# Of a server's processes, by what their titles contain. hihooi's backends are clients' too.
KINDS = ["walsender", "checkpointer", "walwriter", "autovacuum", " postgres postgres "]
READ = [("read by key", "SELECT abalance FROM pgbench_accounts WHERE aid = :aid")]


def _mounted(controller):
    """Where the version 1 hierarchy of a controller is mounted."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, options = line.split()[:4]
        if kind == "cgroup" and controller in options.split(","):
            return pathlib.Path(folder)
    return None


def unavailable():
    """Why servers can't be given quotas here; nothing if they can."""
    if os.getuid() != 0:
        return "only root may give servers quotas"
    folder = _mounted("cpu")
    if not folder or not _mounted("cpuacct") or not (folder / "cpu.cfs_quota_us").exists():
        return "there are no control groups of version 1 with quotas for processors"
    return None


class Preferred:
    """A control group for all of the run, that others on the machine don't take much from, from `with` to its end."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.name = f"hihooi-bench-{os.getpid()}"
        self.tops = list(dict.fromkeys(_mounted(kind) / self.name for kind in ("cpu", "cpuacct")))

    def __enter__(self):
        try:
            for top in self.tops:
                top.mkdir()
            (_mounted("cpu") / self.name / "cpu.shares").write_text(str(RUN_SHARES))
            # Children of this process, as pgbench is, are there as well.
            self._group(OTHERS, [self.cluster.pids["hihooi"], os.getpid()])
            for site in self.cluster.sites:
                self._server(site)
        except OSError as error:
            self._remove()
            raise Trouble(f"there can't be control groups: {error}") from error
        return self

    def __exit__(self, *_):
        self._remove()

    def _server(self, site):
        self._move(OTHERS, self._processes(site))

    def _group(self, name, pids):
        for top in self.tops:
            (top / name).mkdir()
        self._move(name, pids)

    def _move(self, name, pids):
        for pid in pids:
            for top in self.tops:
                try:
                    (top / name / "cgroup.procs").write_text(str(pid))
                except ProcessLookupError:
                    pass  # it has ended

    def _processes(self, site):
        """The postmaster first: what it starts after it was moved is in its group."""
        postmaster = self.postmaster(site)
        yield postmaster
        yield from _children(postmaster)

    def postmaster(self, site):
        file = self.cluster.work / "data" / site / "postmaster.pid"
        return int(file.read_text().split()[0])

    def _remove(self):
        """The processes go back to the roots, then the groups can go. Tried some times: servers fork meanwhile."""
        for top in self.tops:
            for _ in range(50):
                _empty(top)
                if not top.exists():
                    break
                time.sleep(0.1)


class Quotas(Preferred):
    """The same, with a group for each server, and its quota."""

    def __init__(self, cluster, quota, period_us):
        super().__init__(cluster)
        self.quota, self.period_us = quota, period_us

    def _server(self, site):
        self._group(site, [])
        group = self._folder("cpu", site)
        (group / "cpu.cfs_period_us").write_text(str(self.period_us))
        (group / "cpu.cfs_quota_us").write_text(str(round(self.quota * self.period_us)))
        self._move(site, self._processes(site))
        shares = SERVER_SHARES * len(self.cluster.sites)
        (self._folder("cpu", OTHERS) / "cpu.shares").write_text(str(shares))

    def _folder(self, kind, site):
        return _mounted(kind) / self.name / site

    def used(self):
        """Seconds of processor time so far, by server, and seconds that it was held back."""
        found = {}
        for site in self.cluster.sites:
            stat = (self._folder("cpu", site) / "cpu.stat").read_text().split()
            nanoseconds = int((self._folder("cpuacct", site) / "cpuacct.usage").read_text())
            throttled = int(stat[stat.index("throttled_time") + 1])
            found[site] = (nanoseconds / 1e9, throttled / 1e9)
        return found

    def kinds(self, site):
        """Seconds of processor time so far of a server's processes that still run, by kind."""
        found = {}
        for pid in (self._folder("cpu", site) / "cgroup.procs").read_text().split():
            try:
                title = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
                seconds = sum(slices.cpu_us(pid)) / 1e6
            except OSError:
                continue  # it has ended
            kind = next((kind for kind in KINDS if kind in title), "others")
            found[kind] = found.get(kind, 0) + seconds
        return found


def _empty(top):
    for group in [*top.glob("*/"), top]:
        if not group.exists():
            continue
        for pid in (group / "cgroup.procs").read_text().split():
            try:
                (top.parent / "cgroup.procs").write_text(pid)
            except OSError:
                pass  # it has ended
        try:
            group.rmdir()
        except OSError:
            pass  # not empty yet


def _children(parent):
    file = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in file.read_text().split()]


def preferred(cluster):
    """All of the run comes before others on the machine, where that can be had."""
    return contextlib.nullcontext() if unavailable() else Preferred(cluster)


def prepare(cluster, say):
    """pgbench's tables, through hihooi, and in a database that isn't replicated."""
    say(f"loading pgbench's tables, scale {SCALE}, twice")
    connection = Connection(cluster.ports["direct"])
    connection.query("CREATE DATABASE plain")
    connection.close()
    for port, database in ((cluster.ports["hihooi"], "postgres"), (cluster.ports["direct"], "plain")):
        command = [f"{cluster.pg}/pgbench", "-i", "-q", "-s", str(SCALE), "-h", "127.0.0.1", "-p", str(port), database]
        done = subprocess.run(command, env=slices.ENVIRONMENT, capture_output=True, text=True)
        if done.returncode != 0:
            raise Trouble(f"pgbench -i failed: {done.stderr}")
    if cluster.catch_up() is None:
        raise Trouble("the replicas don't get pgbench's tables")


def measure(cluster, rounds, seconds, period_us, say):
    """By workload: rounds of slices, of each variant."""
    found = {}
    with Quotas(cluster, QUOTA, period_us) as quotas:
        before = {site: quotas.postmaster(site) for site in cluster.sites}
        for workload, options in WORKLOADS.items():
            say(f"{workload}, {CLIENTS} clients, servers with {QUOTA} processors: {rounds} rounds")
            run = [*options, "-M", "prepared"]
            found[workload] = slices.rounds(
                rounds, VARIANTS, lambda variant, run=run: _slice(cluster, quotas, variant, seconds, run)
            )
        after = {site: quotas.postmaster(site) for site in cluster.sites}
    if before != after:
        raise Trouble("a server was started anew meanwhile, and so lost its quota")
    return found


def _slice(cluster, quotas, variant, seconds, options):
    """Transactions per second; of the servers, time used and held back; through hihooi, reads by site and routes."""
    time.sleep(REST_S)
    used, reads = quotas.used(), cluster.reads()
    kinds = {site: quotas.kinds(site) for site in used}
    hihooi = sum(slices.cpu_us(cluster.pids["hihooi"]))
    if variant == "hihooi":
        asking = sampler.Sampler(cluster.ports["hihooi"], [READ], _values, {})
        asking.start()
    busy = machine.Busy(cluster)
    process = _pgbench(cluster, variant, seconds, options)
    replicas, start = [], time.monotonic()
    while variant == "hihooi" and process.poll() is None:
        replicas += _replicas(cluster, time.monotonic() - start)
        time.sleep(0.5)
    slice = slices.result(process)
    elapsed = time.monotonic() - start  # connecting and all, so that shares of processors are a little low
    slice["machine"] = busy.shares()
    after = quotas.used()
    slice["hihooi"] = (sum(slices.cpu_us(cluster.pids["hihooi"])) - hihooi) / 1e6 / elapsed
    slice["kinds"] = {
        site: {kind: (now - kinds[site].get(kind, 0)) / elapsed for kind, now in quotas.kinds(site).items()}
        for site in used
    }
    slice["processors"] = {site: (after[site][0] - used[site][0]) / elapsed for site in used}
    slice["held_back_s"] = {site: after[site][1] - used[site][1] for site in used}
    if variant == "hihooi":
        slice["routes"] = asking.stop()
        slice["replicas"] = replicas
        slice["reads"] = {site: count - reads[site] for site, count in cluster.reads().items()}
    slice["caught_up_s"] = cluster.catch_up()
    return slice


def _pgbench(cluster, variant, seconds, options):
    port = cluster.ports["hihooi" if variant == "hihooi" else "direct"]
    database = "plain" if variant == "plain" else "postgres"
    command = [f"{cluster.pg}/pgbench", "-h", "127.0.0.1", "-p", str(port), "-n", "-s", str(SCALE)]
    command += ["-c", str(CLIENTS), "-j", "2", "-T", str(seconds), *options, database]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=slices.ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)
    cluster.started.append(process)  # ends with the run if the run is interrupted
    return process


def _values():
    return {"aid": random.randint(1, SCALE * 100_000)}


def _replicas(cluster, at):
    """SHOW REPLICAS: name, state, entries behind, milliseconds behind, share, slowdown."""
    try:
        rows = cluster.admin("SHOW REPLICAS")
    except (OSError, ServerError):
        return []
    return [[round(at, 1), row[0], row[1], row[3], row[4], row[9], row[10]] for row in rows]


def summary(name, raw):
    """The README of a run."""
    lines = [f"# {name}", "", "Made by `make bench-quotas`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {key}: {value}" for key, value in raw["set_up"].items()]
    lines += [f"- a primary and {REPLICAS} replicas, each with {QUOTA} processors in periods of "
              f"{raw['period_us'] / 1000:.0f} ms; {CLIENTS} clients, prepared statements, scale {SCALE}; "
              f"{raw['rounds']} rounds of {raw['seconds']} s slices", "", "## Throughput", ""]
    lines += _throughput(raw["quotas"])
    lines += ["## The servers, through hihooi", ""] + _servers(raw["quotas"])
    lines += ["## What the primary's time goes to", ""] + _primary(raw["quotas"])
    lines += ["## Sampled reads by key", ""] + _routes(raw["quotas"])
    lines += ["## Also", "", f"- `hihooi verify` after all of it: {raw['verify']}.", "- Raw figures: `raw.json`.", ""]
    return "\n".join(lines)


def _throughput(found):
    rows = []
    for workload, rounds in found.items():
        ratios = {
            base: [one["hihooi"]["tps"] / one[base]["tps"] for one in rounds] for base in ("direct", "plain")
        }
        target = TARGETS.get(workload)
        reached = ""
        if target:
            reached = f"at least {target}: " + ("passed" if median(ratios["direct"]) >= target else "**missed**")
        speeds = [spread([one[variant]["tps"] for one in rounds], 0) for variant in VARIANTS]
        rows.append((workload, *speeds, spread(ratios["direct"], 2), spread(ratios["plain"], 2), reached))
    head = ("workload", "primary alone, tx/s", "not replicated, tx/s", "through hihooi, tx/s",
            "hihooi to primary", "to not replicated", "target")
    return table(head, rows) + [
        "Medians (quartiles) over the rounds, ratios within each. Not replicated: another database of the primary's "
        "server.", "",
    ]


def _servers(found):
    rows = []
    for workload, rounds in found.items():
        slices_of = [one["hihooi"] for one in rounds]
        total = sum(sum(slice["reads"].values()) for slice in slices_of) or 1
        for site in slices_of[0]["processors"]:
            reads = sum(slice["reads"][site] for slice in slices_of)
            lags = [int(row[3]) for slice in slices_of for row in slice["replicas"] if row[1] == site and row[3]]
            slow = [float(row[6]) for slice in slices_of for row in slice["replicas"] if row[1] == site and row[6]]
            rows.append((
                workload, site, f"{100 * reads / total:.1f} %",
                f"{median(slice['processors'][site] for slice in slices_of):.3f}",
                f"{median(slice['held_back_s'][site] for slice in slices_of):.2f}",
                f"{median(lags):.0f}, {max(lags)}" if lags else "",
                f"{median(slow):.2f}, {max(slow):.2f}" if slow else "",
            ))
    head = ("workload", "server", "of the reads", "processors", "held back in a slice, s",
            "entries behind: median, most", "slowdown: median, most")
    return table(head, rows)


def _primary(found):
    rows = []
    for workload, rounds in found.items():
        for variant in VARIANTS:
            some = [one[variant] for one in rounds]
            kinds = {kind: median(one["kinds"]["primary"].get(kind, 0) for one in some) for kind in KINDS}
            rows.append((
                workload, variant,
                f"{median(one['processors']['primary'] for one in some):.3f}",
                f"{median(one['held_back_s']['primary'] for one in some):.2f}",
                ", ".join(f"{kind.strip()} {used:.3f}" for kind, used in kinds.items() if used >= 0.0005),
                f"{median(one['hihooi'] for one in some):.2f}",
                f"{median(one['machine']['busy'] for one in some):.0f} %",
                f"{median(one['machine']['own'] for one in some):.0f} %",
            ))
    head = ("workload", "variant", "processors", "held back, s", "of these, processes that stay", "hihooi's processors",
            "machine busy", "by this run")
    return table(head, rows) + [
        "Backends of the direct variants end with their slice and are missing in the fifth column.", "",
    ]


def _routes(found):
    rows = []
    for workload, rounds in found.items():
        counts = {}
        for one in rounds:
            for route in one["hihooi"]["routes"]:
                kind = (route["where"], route["class"], route["reason"], route["detail"])
                counts[kind] = counts.get(kind, 0) + route["count"]
        total = sum(counts.values())
        for kind, count in sorted(counts.items(), key=lambda item: -item[1]):
            rows.append((workload, f"{100 * count / total:.2f} % of {total}", *kind))
    return table(("workload", "reads", "where", "class", "reason", "detail"), rows)
