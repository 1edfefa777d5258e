"""The replicated storage that is compared: each keeps a volume of 1 GiB twice, in memory, and answers a write when both copies have it.

The daemons of the peers live in namespaces of their own (processes, mounts, network), which are gone with all that is in them
when this program is, however it ends. What is installed or running on this machine is neither used nor changed."""
import collections
import json
import os
import resource
import shutil
import subprocess
import time
import uuid

import peers
from cluster import URSA, Node, checked, create, fill, join

#: Requests a second; median and mean latency; CPU time of all servers and of the client for one request; all in microseconds.
#: `others`: the part of the processors' time that neither had, and that was not idle.
Measured = collections.namedtuple("Measured", "rate p50 mean cpu client others")

SIZE = peers.SIZE
BLOCK = 4096
COPIES = 2
WARM_UP = 1
#: Until the daemons answer, one of their own commands is done, the volume is full, and nothing is left of them.
READY_SECONDS = 60
COMMAND_SECONDS = 60
FILL_SECONDS = 180
GONE_SECONDS = 20
#: What a client does besides: it finds its servers and leaves them, for which libgfapi takes six seconds.
GRACE_SECONDS = 60
#: The peers refuse 127.0.0.1. This one is for documentation (RFC 5737), and on the loopback device of the namespace only.
ADDRESS = "192.0.2.1"
#: New namespaces, which end with who made them.
FENCE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]


class Ursa:
    """Two nodes of one core each. The load goes through the first."""

    name = "ursa"

    def __init__(self, port):
        self.nodes = [Node(port + 10 * number, None) for number in range(COPIES)]
        self.target = None

    @staticmethod
    def missing():
        return None if os.path.exists(URSA) else "cargo build --release -p ursa, or set URSA"

    @staticmethod
    def version():
        return checked([URSA, "--version"], COMMAND_SECONDS).strip()

    def __enter__(self):
        try:
            for node in self.nodes:
                node.start()
            join(self.nodes)
            on = range(1, COPIES + 1)
            self.target = create(self.nodes[0], "bench", on, "--size", str(SIZE), "--kind", "ram")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.stop()

    def fill(self):
        fill(self.target, FILL_SECONDS)

    def measure(self, depth, write, seconds):
        pids = [node.process.pid for node in self.nodes]
        command = [URSA, "bench", "run", self.target, f"-b{BLOCK}", "-t1", f"-o{depth}", f"-w{100 if write else 0}", "-r"]
        command += [f"-d{seconds}", f"-W{WARM_UP}", "--overwrite", "--json", "-"]
        for pid in pids:
            command += ["--server-pid", str(pid)]
        watch = Watch(pids)
        made = json.loads(checked(command, seconds + GRACE_SECONDS))["runs"][0]
        watch.stop()
        cpu, latency = made["cpu"], made["total"]["latency"]
        servers = sum(server["us_per_request"] for server in cpu["servers"])
        client = cpu["client"]["us_per_request"]
        return Measured(made["total"]["iops"], latency["p50_us"], latency["mean_us"], servers, client, watch.others)


class Fenced(peers.Peer):
    """A peer whose daemons are started by a shell script, the first process of their namespaces. fio is its client there, too."""

    programs = ()
    #: fio's engines for one request at a time and for many.
    engines = ()
    hint = ""

    def __init__(self, _port):
        super().__init__(None, None)
        self.inside = None

    @classmethod
    def missing(cls):
        """What to do so that it can be measured, or nothing."""
        absent = [name for name in (*cls.programs, "fio", "unshare", "nsenter", "setpriv", "ip") if not shutil.which(name)]
        if absent:
            return f"{', '.join(absent)} not found: {cls.hint}"
        if os.geteuid():
            return "its daemons need root, and namespaces of their own"
        known = subprocess.run(["fio", "--enghelp"], capture_output=True, text=True, timeout=COMMAND_SECONDS).stdout.split()
        lacks = [engine for engine in cls.engines if engine not in known]
        if lacks:
            return f"fio is built without {', '.join(lacks)}"
        tried = subprocess.run([*FENCE, "true"], capture_output=True, text=True, timeout=COMMAND_SECONDS)
        return f"its daemons need namespaces of their own: {tried.stderr.strip()}" if tried.returncode else None

    def enclose(self, folders, script):
        """Starts the script as root of new namespaces with empty folders in memory in these places."""
        mounts = "".join(f"mkdir -p {folder} && mount -t tmpfs none {folder}\n" for folder in folders)
        loopback = f"ip link set lo up && ip addr add {ADDRESS}/32 dev lo\n"
        self.launch(FENCE + ["sh", "-c", "set -e\n" + loopback + mounts + script])
        wait("a process in the namespaces", lambda: children(self.process.pid), READY_SECONDS, self.alive)
        self.inside = children(self.process.pid)[0]

    def alive(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} has ended:\n{self.log()}")

    def call(self, *command, seconds=COMMAND_SECONDS):
        """Runs a command in the namespaces. It is killed there when it takes too long: who enters them is not who runs in them."""
        enter = ["nsenter", "--target", str(self.inside), "--mount", "--pid", "--net"]
        return checked([*enter, "timeout", "--signal=KILL", str(seconds), *command], seconds + 10)

    def answers(self, *command):
        """Whether the command succeeds, at a time when it may still fail."""
        self.alive()
        try:
            self.call(*command, seconds=10)
        except RuntimeError:
            return False
        return True

    def fio(self, *options, depth=1, seconds):
        engine = self.engines[0 if depth == 1 else -1]
        command = ["fio", "--name=bench", f"--ioengine={engine}", *self.volume(), f"--size={SIZE}", f"--iodepth={depth}"]
        # As ursa bench: offsets are independent of each other, no time is spent on the data, no fsync at the end.
        command += ["--direct=1", "--thread", "--norandommap", "--randrepeat=0", "--scramble_buffers=0", "--end_fsync=0"]
        command += ["--lat_percentiles=1", "--clat_percentiles=0", "--output-format=json", *options]
        said = self.call(*command, seconds=seconds)
        # Engines say things before.
        [job] = json.loads(said[said.index("{") :])["jobs"]
        if job["error"]:
            raise RuntimeError(f"fio with {self.name}: error {job['error']}")
        return job

    def fill(self):
        self.fio("--rw=write", "--bs=1M", seconds=FILL_SECONDS)

    def measure(self, depth, write, seconds):
        watch = Watch(descendants(self.process.pid))
        kind = "randwrite" if write else "randread"
        pattern = [f"--rw={kind}", f"--bs={BLOCK}", "--time_based", f"--runtime={seconds}"]
        job = self.fio(*pattern, depth=depth, seconds=seconds + GRACE_SECONDS)
        watch.stop()
        made = job["write" if write else "read"]
        latency, requests = made["lat_ns"], made["total_ios"]
        each = [spent / requests * 1e6 for spent in (watch.servers, watch.client)]
        return Measured(made["iops"], latency["percentile"]["50.000000"] / 1000, latency["mean"] / 1000, *each, watch.others)

    def stop(self):
        left = descendants(self.process.pid) if self.process else []
        super().stop()
        # The kernel kills what is in the namespaces, and frees their memory then.
        wait(f"the end of {self.name}", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left), GONE_SECONDS)


class Gluster(Fenced):
    """A file on a volume with two bricks, by libgfapi. It is the client that sends each write to both bricks."""

    name = "Gluster"
    programs = ("glusterd", "gluster")
    engines = ("gfapi", "gfapi_async")
    hint = "apt-get install glusterfs-server fio"
    #: A write is answered when the bricks have it, and a read is of a brick: no caches of the client. The rest is as it comes: more
    #: threads, as in its profile for virtual machines, cost more on few processors.
    OPTIONS = {
        "performance.write-behind": "off",
        "performance.quick-read": "off",
        "performance.read-ahead": "off",
        "performance.io-cache": "off",
        "performance.open-behind": "off",
        "performance.stat-prefetch": "off",
        "performance.strict-o-direct": "on",
        "network.remote-dio": "disable",
    }

    @staticmethod
    def version():
        return checked(["glusterd", "--version"], COMMAND_SECONDS).splitlines()[0]

    def start(self):
        folders = ["/var/lib/glusterd", "/var/log/glusterfs", "/run/gluster", "/mnt", "/tmp"]
        self.enclose(folders, "glusterd -N -l /dev/stderr -L ERROR; exit $?")
        control = ["gluster", "--mode=script", "volume"]
        wait("an answer of glusterd", lambda: self.answers(*control, "list"), READY_SECONDS, self.alive)
        bricks = [f"{ADDRESS}:/mnt/{number}" for number in range(COPIES)]
        self.call(*control, "create", "bench", "replica", str(COPIES), *bricks, "force")
        for option, value in self.OPTIONS.items():
            self.call(*control, "set", "bench", option, value)
        self.call(*control, "start", "bench")

    def volume(self):
        return [f"--brick={ADDRESS}", "--volume=bench", "--filename=bench"]


class Ceph(Fenced):
    """A block device (RBD) in a pool of size two on two OSDs, by librbd without its cache.

    The OSDs keep objects in memory only: memstore takes a quarter less CPU time a write than BlueStore on a file in memory."""

    name = "Ceph"
    programs = ("ceph-mon", "ceph-osd", "ceph", "rbd", "monmaptool")
    engines = ("rbd",)
    hint = "apt-get install ceph-mon ceph-osd ceph-common fio"

    @staticmethod
    def version():
        return " ".join(checked(["ceph-osd", "--version"], COMMAND_SECONDS).split()[:3])

    def start(self):
        cluster, osds = uuid.uuid4(), [uuid.uuid4() for _ in range(COPIES)]
        script = f"""
cat > /etc/ceph/ceph.conf <<'END'
[global]
fsid = {cluster}
mon host = [v2:{ADDRESS}:3300,v1:{ADDRESS}:6789]
public addr = {ADDRESS}
cluster addr = {ADDRESS}
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = {COPIES}
osd pool default min size = {COPIES}
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = {4 * SIZE}
osd data = /mnt/$id
mon data = /mnt/mon
rbd cache = false
END
mkdir /mnt/mon
monmaptool --create --addv a '[v2:{ADDRESS}:3300,v1:{ADDRESS}:6789]' --fsid {cluster} /mnt/monmap
ceph-mon --mkfs -i a --monmap /mnt/monmap
ceph-mon -f -i a &
until timeout 10 ceph status; do sleep 0.2; done
"""
        for number, osd in enumerate(osds):
            script += f"timeout {COMMAND_SECONDS} ceph osd new {osd} {number}\nmkdir /mnt/{number}\n"
            script += f"ceph-osd -i {number} --mkfs --osd-uuid {osd}\nceph-osd -f -i {number} &\n"
        self.enclose(["/etc/ceph", "/var/lib/ceph", "/var/log/ceph", "/run/ceph", "/mnt", "/tmp"], script + "wait")
        wait("the OSDs", self.up, READY_SECONDS, self.alive)
        self.call("ceph", "osd", "pool", "create", "rbd", "32")
        self.call("rbd", "create", "--image-feature", "layering", "--size", f"{SIZE}B", "rbd/bench")

    def up(self):
        """Whether all OSDs are."""
        if not self.answers("ceph", "status"):
            return False
        known = json.loads(self.call("ceph", "osd", "dump", "--format", "json"))["osds"]
        return len(known) == COPIES and all(osd["up"] for osd in known)

    def volume(self):
        return ["--clientname=admin", "--pool=rbd", "--rbdname=bench"]


ALL = [Ursa, Gluster, Ceph]


class Watch:
    """The CPU time, in seconds, that servers, clients (children that have ended meanwhile) and others take from now to `stop`."""

    def __init__(self, pids):
        self.pids = pids
        self.begin = self.now()

    def now(self):
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.time(), sum(map(cpu_seconds, self.pids)), client.ru_utime + client.ru_stime, busy_seconds()

    def stop(self):
        elapsed, self.servers, self.client, busy = (end - begin for begin, end in zip(self.begin, self.now()))
        self.others = max(0, busy - self.servers - self.client) / elapsed / os.cpu_count()


def cpu_seconds(pid):
    """User and system time of all threads of a process (proc(5): fields 14 and 15 of stat)."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """Of all processors: user, nice, system, irq, softirq and stolen (proc(5): the first line of stat)."""
    with open("/proc/stat") as stat:
        fields = list(map(int, stat.readline().split()[1:]))
    return sum(fields[index] for index in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listed:
            return list(map(int, listed.read().split()))
    except FileNotFoundError:
        return []


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def wait(what, done, seconds, check=lambda: None):
    """Waits until something is done; `check` raises when it never will be."""
    end = time.monotonic() + seconds
    while not done():
        check()
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s for {what}")
        time.sleep(0.1)
