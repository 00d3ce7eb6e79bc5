"""What the run stood on: versions, processor, and how quiet the machine was."""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import time


def words(*command):
    """What a command prints, or a dash."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    except OSError:
        return "-"
    return (done.stdout.strip() or "-").splitlines()[0]


def describe(cluster):
    """Set-up by name."""
    bouncer = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    processor = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    status = ("git", "status", "--porcelain", "--untracked-files=no")
    changed = words(*status, "--", "crates", "Cargo.lock")
    commit = words("git", "rev-parse", "--short", "HEAD")
    return {
        "commit": commit + ("" if changed == "-" else ", with changes"),
        "machine": f"{os.cpu_count()} processors, {memory} GB",
        "processor": processor[1] if processor else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "PostgreSQL": words(f"{cluster.pg}/postgres", "--version"),
        "PgBouncer": words(bouncer, "--version"),
    }


def noise(folder):
    """How late a sleeper wakes up and how long a flush of 8 KB takes: median and p99, us."""
    late = [_timed(lambda: time.sleep(0.001)) - 1000 for _ in range(500)]
    path = folder / "flush-probe"
    with path.open("wb", buffering=0) as file:
        flush = [_timed(lambda: _flush(file)) for _ in range(200)]
    path.unlink()
    return {"load": os.getloadavg()[0], "wake_up_us": _two(late), "flush_us": _two(flush)}


class Busy:
    """How busy the processors are from now on, and how much of that is the run's own."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.start = self._now()

    def shares(self):
        """Percent of all processors: in use, and in use by the run (its servers, its clients,
        hihooi and what it is compared with). What ended meanwhile is missing in the latter."""
        total, idle, own = (after - before for after, before in zip(self._now(), self.start))
        return {"busy": 100 * (total - idle) / total, "own": 100 * own / total}

    def _now(self):
        with open("/proc/stat") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4], self._own()

    def _own(self):
        data = str(self.cluster.work / "data")
        ticks = 0
        for folder in pathlib.Path("/proc").iterdir():
            if folder.name.isdigit() and self._is_ours(folder, data):
                ticks += _ticks(folder)
        return ticks

    def _is_ours(self, folder, data):
        pid = int(folder.name)
        if pid == os.getpid() or pid in self.cluster.pids.values():
            return True
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            return parent == os.getpid() or os.readlink(folder / "cwd").startswith(data)
        except OSError:
            return False  # ended, or somebody else's


def _ticks(folder):
    try:
        fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _flush(file):
    file.write(b"x" * 8192)
    os.fdatasync(file.fileno())


def _timed(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def _two(values):
    values.sort()
    return [round(values[len(values) // 2]), round(values[len(values) * 99 // 100])]
