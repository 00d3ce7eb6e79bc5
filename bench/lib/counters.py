"""perf: retired instructions and system calls per transaction, and the profile.

Instructions hardly change with the neighbours, so they settle what times leave open. perf makes
context switches dearer: no times are taken here. Without perf, or without the right to use it,
the run goes on and says so.
"""

import shutil
import signal
import subprocess
import time

from slices import pgbench, result

EVENTS = ["instructions", "instructions:u", "raw_syscalls:sys_enter"]
EVENTS += ["syscalls:sys_enter_epoll_wait", "syscalls:sys_enter_futex"]
EAGAIN = ["-e", "syscalls:sys_exit_recvfrom", "--filter", "ret == -11"]
SYMBOLS = 30


def unavailable():
    """Why perf can't be used; None if it can."""
    if not shutil.which("perf"):
        return "perf is not installed (Debian: linux-perf)"
    command = ["perf", "stat", "-e", "instructions", "true"]
    tried = subprocess.run(command, capture_output=True, text=True)
    if tried.returncode != 0 or "<not " in tried.stderr:
        return "perf can't count instructions here (rights, or a virtual machine without counters)"
    return None


def one(cluster, variant, protocol, seconds):
    """Events per transaction of one slice; those that can't be counted are absent."""
    csv = cluster.work / "perf.csv"
    command = ["perf", "stat", "-x,", "-o", str(csv), "-p", str(cluster.pids[variant])]
    for event in EVENTS:
        command += ["-e", event]
    perf = subprocess.Popen(command + EAGAIN, stderr=subprocess.DEVNULL)
    time.sleep(0.2)
    tx = result(pgbench(cluster, variant, seconds, 8, "-S", "-M", protocol))["tx"]
    perf.send_signal(signal.SIGINT)
    perf.wait()
    counts = {}
    for line in csv.read_text().splitlines():
        fields = line.split(",")
        if len(fields) > 3 and fields[0].isdigit():
            event = fields[2].split(":", 1)[1] if "sys" in fields[2] else fields[2]
            counts[event] = int(fields[0]) / tx
    return counts


def profile(cluster, protocol, seconds, out):
    """Writes the symbols that cost most while pgbench -S runs; whether it worked."""
    data = cluster.work / "perf.data"
    load = pgbench(cluster, "hihooi", seconds + 2, 8, "-S", "-M", protocol)
    time.sleep(1)
    command = ["perf", "record", "-q", "-F", "999", "-g", "-o", str(data)]
    command += ["-p", str(cluster.pids["hihooi"]), "--", "sleep", str(seconds)]
    recorded = subprocess.run(command, stderr=subprocess.DEVNULL)
    result(load)
    if recorded.returncode != 0:
        return False
    parts = [f"pgbench -S -M {protocol}, 8 clients, {seconds} s at 999 Hz"]
    parts += ["Percent of the samples of hihooi's process."]
    parts += ["", "by library", "", _report(data, "dso", [])]
    parts += ["", f"top {SYMBOLS}", "", _report(data, "dso,symbol", [])]
    parts += ["", f"top {SYMBOLS} outside the kernel", ""]
    parts += [_report(data, "dso,symbol", ["--no-kernel-lines"]), ""]
    out.write_text("\n".join(parts))
    return True


def _report(data, sort, options):
    command = ["perf", "report", "-i", str(data), "--no-children", "--stdio", "-g", "none"]
    command += ["--sort", sort, "--percent-limit", "0.1"]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    lines = [line.rstrip(" -") for line in text.splitlines() if line.strip() and line[0] != "#"]
    if options:
        lines = [line for line in lines if "[k]" not in line]
    return "\n".join(lines[:SYMBOLS])
