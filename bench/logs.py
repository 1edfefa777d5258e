"""What the benchmarks of log volumes share: a disk whose requests are counted, a node with a pool on it, and budgets."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import peers

URSA = os.environ.get("URSA", os.path.join(peers.ROOT, "target/release/ursa"))
MIB = 1 << 20
GIB = 1 << 30
SECTOR = 512
#: For one call of the command line.
CALL_SECONDS = 120
#: A disk that had no request for this long has nothing left to do.
QUIET_SECONDS = 1.0
QUIET_WAIT_SECONDS = 30


class Disk:
    """A block device that counts its requests: the one that is named, or a loop device over a file in this folder.

    The file is written once, so that no write has to convert extents of its file system; a block device has none."""

    def __init__(self, size, device=None, written=True):
        self.size, self.path, self.written = size, device, written
        self.folder = None

    def __enter__(self):
        if self.path:
            self.size = int(subprocess.run(["blockdev", "--getsize64", self.path], check=True, capture_output=True).stdout)
            return self
        self.folder = tempfile.mkdtemp(prefix="ursa-bench-", dir=".")
        try:
            file = os.path.join(self.folder, "disk")
            make_file(file, self.size, self.written)
            attach = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size=512", file]
            self.path = checked(attach, 30).strip()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.folder and self.path:
            subprocess.run(["losetup", "--detach", self.path], check=False)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def counts(self):
        """Requests and bytes since boot (Documentation/block/stat.rst)."""
        name = os.path.basename(os.path.realpath(self.path))
        with open(f"/sys/class/block/{name}/stat") as stat:
            fields = [int(field) for field in stat.read().split()]
        flushes = fields[15] if len(fields) > 15 else 0
        return {
            "reads": fields[0],
            "read_bytes": fields[2] * SECTOR,
            "writes": fields[4],
            "written_bytes": fields[6] * SECTOR,
            "flushes": flushes,
        }

    def quiet(self):
        """Waits until nothing is left to do, such as cleaning after the last measurement."""
        end, last, since = time.time() + QUIET_WAIT_SECONDS, None, time.time()
        while time.time() < end:
            now = self.counts()
            if now != last:
                last, since = now, time.time()
            elif time.time() - since >= QUIET_SECONDS:
                return
            time.sleep(0.1)


def make_file(path, size, written):
    """A file of this size; `written`: with data in all of its blocks."""
    with open(path, "wb") as file:
        if not written:
            file.truncate(size)
            return
        for _ in range(size // MIB):
            file.write(bytes(MIB))
        file.write(bytes(size % MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Node(peers.Peer):
    """`ursa serve` with one pool, on the disk or in a file that it creates."""

    name = "ursa"
    program = URSA
    hint = "cargo build --release -p ursa, or set URSA"

    def __init__(self, port, cpu=0, cores=1, more=()):
        super().__init__(port, cpu, cores)
        self.more = list(more)

    def start(self):
        api = self.port + 1
        serve = [URSA, "serve", "--data-dir", self.files, "--cores", str(self.cores), "--pool-size", "0", *self.more]
        self.launch(serve + ["--iscsi-listen", f"127.0.0.1:{self.port}", "--api-listen", f"127.0.0.1:{api}"])
        self.wait_for_port(self.port)
        self.wait_for_port(api)

    def kill(self):
        """As a crash does it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ursa(self, *arguments):
        command = [URSA, "--api", f"http://127.0.0.1:{self.port + 1}", *map(str, arguments)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS)
        if answer.returncode:
            raise RuntimeError(f"{' '.join(command)}: {answer.stderr}\n{self.log()}")
        return answer.stdout

    def make_pool(self, path, size=None):
        created = ("--size", size) if size else ("--wipe",)
        self.ursa("pool", "create", "bench", os.path.abspath(path), *created, "--yes")

    def make_volume(self, name, size, kind, *options, slices=None):
        """Creates a volume, with a slice for each core by default, and returns its URL. Each slice of a log volume has its own log."""
        made = self.ursa(
            "volume", "create", name, "--pool", "bench", "--size", size, "--kind", kind, "--slices", slices or self.cores,
            *options, "-o", "json",
        )
        return f"iscsi://127.0.0.1:{self.port}/{'/'.join(map(str, peers.find_target(json.loads(made))))}"

    def capacity(self):
        return self.metric("ursa_pool_capacity_bytes")

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port + 1}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum of all series of a metric."""
        lines = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", self.metrics(), re.MULTILINE)
        return int(sum(float(value) for value in lines))

    def log_counts(self):
        """What logs have written since they were opened, in bytes."""
        names = {"hosts": "host_written", "written": "written", "moved": "moved", "map": "map_written"}
        return {key: self.metric(f"ursa_pool_log_{name}_bytes_total") for key, name in names.items()}

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) << 10


def bench(target, pattern, seconds, pid=None, cpu=None, may_fail=False):
    """Runs `ursa bench run`; returns the run of its record, or None if it failed and `may_fail`."""
    command = [URSA, "bench", "run", *pattern, f"-d{seconds}", "--overwrite", "--json", "-"]
    command += ["--server-pid", str(pid)] if pid else []
    command += [f"-a{cpu}"] if cpu is not None else []
    done = subprocess.run([*command, target], capture_output=True, text=True, timeout=seconds + 900)
    if done.returncode and may_fail:
        return None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} {target}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)["runs"][0]


def fill(target, size=None):
    """Writes all of a target, or its first bytes, once and in order."""
    pattern = ["-b1M", "-o4", "-W0", "--precondition", "random", *([f"-f{size}"] if size else [])]
    bench(target, pattern, 0.1)


def checked(command, timeout):
    """What a command prints, which must succeed."""
    answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)}: {answer.stderr}")
    return answer.stdout


def since(before, after):
    return {key: after[key] - before[key] for key in after}


def amplification(counts):
    """Bytes that a log wrote for each byte of hosts, and the parts of it."""
    hosts = max(counts["hosts"], 1)
    parts = {key: counts[key] / hosts for key in ("moved", "map")}
    parts["heads"] = (counts["written"] - counts["hosts"] - counts["moved"] - counts["map"]) / hosts
    return counts["written"] / hosts, parts


def client_cpu(server_cpu=0, cores=1):
    """Behind the server's processors; where there is no other, the last of them."""
    return min(server_cpu + cores, os.cpu_count() - 1)


class Budgets:
    """What must hold, and whether it does."""

    def __init__(self):
        self.rows = []

    def at_most(self, what, value, limit, unit=""):
        self.rows.append((what, value, f"at most {limit:g}{unit}", value <= limit, unit))

    def at_least(self, what, value, limit, unit=""):
        self.rows.append((what, value, f"at least {limit:g}{unit}", value >= limit, unit))

    def report(self):
        """Prints a table, and a line for each budget that was missed. Returns the exit code."""
        print("\n| budget | measured | limit | |\n|---|---|---|---|")
        for what, value, limit, met, unit in self.rows:
            print(f"| {what} | {value:,.2f}{unit} | {limit} | {'met' if met else '**missed**'} |")
        missed = [row for row in self.rows if not row[3]]
        for what, value, limit, _, unit in missed:
            print(f"MISSED: {what}: {value:,.2f}{unit}, {limit}", file=sys.stderr)
        return 1 if missed else 0


@contextlib.contextmanager
def ends_on_signals():
    """What was started is stopped, whatever ends the program."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    yield
