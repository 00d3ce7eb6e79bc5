"""Slices: short pgbench runs of every variant, in turn.

Time per transaction doubles while somebody else uses the machine, so long runs compare the
neighbours as much as the variants. A round has one slice of each variant, in an order that
rotates; figures are compared within a round, and the median over the rounds counts.
"""

import os
import pathlib
import re
import subprocess

from cluster import Trouble

TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
ENVIRONMENT = dict(os.environ, PGSSLMODE="disable", PGGSSENCMODE="disable", PGUSER="postgres")


def cpu_us(pid):
    """What all threads of a process used so far: user and system time, microseconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) * TICK_US, int(fields[12]) * TICK_US


def threads_us(pid):
    """What the threads of a process used so far, microseconds, by name."""
    used = {}
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            name, fields = stat.read_text().split("(", 1)[1].rsplit(") ", 1)
        except FileNotFoundError:
            continue  # it has ended
        fields = fields.split()
        used[name] = used.get(name, 0) + (int(fields[11]) + int(fields[12])) * TICK_US
    return used


def rss_kb(pid):
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"^VmRSS:\s+(\d+) kB", file.read(), re.M)[1])


def pgbench(cluster, variant, seconds, clients, *options):
    """Starts pgbench; `result` reads what it says."""
    command = [f"{cluster.pg}/pgbench", "-h", "127.0.0.1", "-p", str(cluster.ports[variant]), "-n"]
    command += ["-c", str(clients), "-j", "1", "-T", str(seconds), *options]
    command += [cluster.databases.get(variant, "postgres")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=ENVIRONMENT, **pipes)
    cluster.started.append(process)  # ends with the run if the run is interrupted
    return process


def result(process):
    """Transactions and transactions per second of a pgbench run, without connecting."""
    out, errors = process.communicate()
    done = re.search(r"actually processed: (\d+)", out)
    failed = re.search(r"failed transactions: ([1-9]\d*)", out)
    if process.returncode != 0 or not done or failed:
        raise Trouble(f"pgbench failed: {' '.join(process.args)}\n{out}{errors}")
    return {"tx": int(done[1]), "tps": float(re.search(r"tps = ([\d.]+)", out)[1])}


def one(cluster, variant, seconds, clients, *options):
    """One slice, with the CPU time of the process in the middle (hihooi's for `direct`: what
    replication costs while nobody goes through it)."""
    pid = cluster.pids.get(variant, cluster.pids["hihooi"])
    before, threads = cpu_us(pid), threads_us(pid)
    slice = result(pgbench(cluster, variant, seconds, clients, *options))
    after = cpu_us(pid)
    slice["threads_us"] = {
        name: (used - threads.get(name, 0)) / slice["tx"] for name, used in threads_us(pid).items()
    }
    slice["user_us"] = (after[0] - before[0]) / slice["tx"]
    slice["sys_us"] = (after[1] - before[1]) / slice["tx"]
    slice["cpu_us"] = slice["user_us"] + slice["sys_us"]
    slice["latency_us"] = 1e6 * clients / slice["tps"]
    slice["load"] = os.getloadavg()[0]
    return slice


def latency(cluster, variant, seconds):
    """A slice of one client, with the median of its transactions: on a busy machine a few of them
    lose a processor for milliseconds and carry the mean."""
    prefix = cluster.work / "latency"
    options = ("-S", "-l", f"--log-prefix={prefix}")
    slice = one(cluster, variant, seconds, 1, *options)
    values = []
    for log in cluster.work.glob("latency.*"):
        values += [int(line.split()[2]) for line in log.read_text().splitlines()]
        log.unlink()
    values.sort()
    slice["median_us"] = values[len(values) // 2]
    slice["p99_us"] = values[len(values) * 99 // 100]
    return slice


def rounds(count, variants, run):
    """`count` rounds of `run(variant)`, the order rotating: a list of dicts by variant."""
    table = []
    for number in range(count):
        first = number % len(variants)
        order = variants[first:] + variants[:first]
        table.append({variant: run(variant) for variant in order})
    return table
