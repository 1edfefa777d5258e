"""The targets that are compared: each is started with one 1 GiB volume in memory, pinned to one processor or to a few.

A peer knows how to start itself and who its process is; all else is the same for all."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

SIZE = 1 << 30
READY_SECONDS = 30
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Peer:
    """A running target. `target` and `lun` name its volume; `process` is the server."""

    lun = 0
    #: The program that must be installed, and where it comes from.
    program = hint = ""

    def __init__(self, port, cpu, cores=1):
        self.port = port
        #: The first of its processors, if it is pinned, and how many there are.
        self.cpu = cpu
        self.cores = cores
        self.process = None
        self.files = tempfile.mkdtemp(prefix="ursa-bench-")
        # Memory, not a disk: what is measured is the server.
        self.memory = tempfile.mkdtemp(prefix="ursa-bench-", dir="/dev/shm")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            # Nobody else would: what was started does not outlive its failure.
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @classmethod
    def available(cls):
        return shutil.which(cls.program) is not None

    def launch(self, command, **options):
        log = open(os.path.join(self.files, "log"), "w")
        pinned = command
        if self.cpu is not None:
            pinned = ["taskset", "-c", self.processors()] + command
        self.process = subprocess.Popen(pinned, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **options)

    def processors(self):
        """Those that it is pinned to, as taskset takes them."""
        return f"{self.cpu}-{self.cpu + self.cores - 1}"

    def wait_for_port(self, port):
        end = time.time() + READY_SECONDS
        while time.time() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended at once:\n{self.log()}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen on {port}:\n{self.log()}")

    def log(self):
        with open(os.path.join(self.files, "log")) as log:
            return log.read()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.files, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def cpu_seconds(self):
        """User and system time of all its threads (proc(5): fields 14 and 15 of stat)."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_file(self):
        path = os.path.join(self.memory, "lun")
        with open(path, "wb") as file:
            file.truncate(SIZE)
        return path


class Ursa(Peer):
    name = "ursa"
    program = os.environ.get("URSA", os.path.join(ROOT, "target/release/ursa"))
    hint = "cargo build --release -p ursa, or set URSA"
    kind = "ram"

    def start(self):
        api = self.port + 1
        serve = [self.program, "serve", "--data-dir", self.data_dir(), "--cores", str(self.cores)]
        serve += ["--pool-size", "2G", "--ram-max", "2G"]
        self.launch(serve + ["--iscsi-listen", f"127.0.0.1:{self.port}", "--api-listen", f"127.0.0.1:{api}"])
        self.wait_for_port(self.port)
        self.wait_for_port(api)
        create = [self.program, "--api", f"http://127.0.0.1:{api}", "volume", "create", "bench"]
        answer = subprocess.run(
            create + ["--size", str(SIZE), "--kind", self.kind, "-o", "json"], capture_output=True, text=True
        )
        if answer.returncode:
            raise RuntimeError(f"ursa volume create: {answer.stderr}\n{self.log()}")
        self.target, self.lun = find_target(json.loads(answer.stdout))

    def data_dir(self):
        return self.files


class UrsaThick(Ursa):
    """On the disk of the current folder, as RawFile below."""

    name = "ursa, thick"
    kind = "thick"
    disk = None

    def data_dir(self):
        self.disk = tempfile.mkdtemp(prefix="ursa-bench-", dir=".")
        return self.disk

    def stop(self):
        super().stop()
        if self.disk:
            shutil.rmtree(self.disk, ignore_errors=True)


class Tgt(Peer):
    name = "tgt"
    program = "tgtd"
    hint = "apt-get install tgt"
    target = "iqn.2026-11.bench:tgt"
    lun = 1

    def start(self):
        control = str(self.port)
        self.launch(["tgtd", "-f", "-C", control, "--iscsi", f"portal=127.0.0.1:{self.port}"])
        self.wait_for_port(self.port)
        admin = ["tgtadm", "-C", control, "--lld", "iscsi", "--tid", "1", "--mode"]
        for arguments in (
            ["target", "--op", "new", "-T", self.target],
            ["logicalunit", "--op", "new", "--lun", "1", "-b", self.memory_file()],
            ["target", "--op", "bind", "-I", "ALL"],
        ):
            subprocess.run(admin + arguments, check=True)


class Istgt(Peer):
    name = "istgt"
    program = "istgt"
    hint = "apt-get install istgt"
    target = "iqn.2026-11.bench:istgt"

    def start(self):
        config = os.path.join(self.files, "istgt.conf")
        with open(config, "w") as file:
            file.write(
                f"""
[Global]
  NodeBase "iqn.2026-11.bench"
  PidFile {self.files}/pid
  AuthFile {self.files}/auth
  MediaDirectory {self.files}
  DiscoveryAuthMethod None
  MaxSessions 64
  MaxConnections 4
  MaxR2T 32
  MaxOutstandingR2T 16
  FirstBurstLength 262144
  MaxBurstLength 1048576
  MaxRecvDataSegmentLength 262144
  InitialR2T Yes
  ImmediateData Yes
[UnitControl]
  AuthMethod None
  Portal UC1 127.0.0.1:{self.port + 1}
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 127.0.0.1:{self.port}
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask 127.0.0.1
[LogicalUnit1]
  TargetName istgt
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod None
  UseDigest Auto
  UnitType Disk
  QueueDepth 255
  LUN0 Storage {self.memory_file()} {SIZE >> 20}MB
"""
            )
        open(os.path.join(self.files, "auth"), "w").close()
        # Stays in the foreground with -D.
        self.launch(["istgt", "-D", "-c", config])
        self.wait_for_port(self.port)


class Spdk(Peer):
    """SPDK's iscsi_tgt polls: its CPU time is the wall-clock time, whatever it does."""

    name = "SPDK iscsi_tgt"
    program = os.environ.get("SPDK_ISCSI_TGT", "iscsi_tgt")
    hint = "build it from its public source, put it on PATH or set SPDK_ISCSI_TGT (bench/peers.md)"
    target = "iqn.2026-11.bench:spdk"

    def start(self):
        volume = {"name": "Malloc0", "num_blocks": SIZE // 512, "block_size": 512}
        portals = {"tag": 1, "private": False, "portals": [{"host": "127.0.0.1", "port": str(self.port)}]}
        node = {
            "name": self.target,
            "alias_name": "bench",
            "pg_ig_maps": [{"pg_tag": 1, "ig_tag": 1}],
            "luns": [{"bdev_name": "Malloc0", "lun_id": 0}],
            "queue_depth": 128,
            "disable_chap": True,
        }
        initiators = {"tag": 1, "initiators": ["ANY"], "netmasks": ["ANY"]}
        config = {
            "subsystems": [
                {"subsystem": "bdev", "config": [{"method": "bdev_malloc_create", "params": volume}]},
                {
                    "subsystem": "iscsi",
                    "config": [
                        {"method": "iscsi_create_portal_group", "params": portals},
                        {"method": "iscsi_create_initiator_group", "params": initiators},
                        {"method": "iscsi_create_target_node", "params": node},
                    ],
                },
            ]
        }
        path = os.path.join(self.files, "spdk.json")
        with open(path, "w") as file:
            json.dump(config, file)
        # Ordinary pages: huge ones are not to be had on every machine.
        memory = ["--no-huge", "-s", str((SIZE >> 20) + 1024)]
        mask = hex(((1 << self.cores) - 1) << self.cpu)
        self.launch([self.program, *memory, "-m", mask, "-c", path, "-r", os.path.join(self.files, "rpc")])
        self.wait_for_port(self.port)


class RawFile(Peer):
    """No target at all: fio on a file, for what the disk itself does."""

    name = "raw file"
    program = "fio"
    hint = "apt-get install fio"
    path = None

    def start(self):
        handle, self.path = tempfile.mkstemp(prefix="ursa-bench-", dir=".")
        os.close(handle)
        subprocess.run(
            ["fio", "--name=fill", f"--filename={self.path}", f"--size={SIZE}", "--rw=write", "--bs=1M"]
            + ["--direct=1", "--ioengine=io_uring", "--iodepth=8", "--output=/dev/null"],
            check=True,
        )

    def stop(self):
        super().stop()
        if self.path:
            os.unlink(self.path)


MEMORY_PEERS = [Ursa, Tgt, Istgt, Spdk]
DISK_PEERS = [UrsaThick, RawFile]


def find_target(answer):
    """The target's name and the volume's number in what `ursa volume create -o json` answers."""
    found = {}

    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "lun":
                    found.setdefault("lun", inner)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
        elif isinstance(value, str) and value.startswith("iqn."):
            found.setdefault("target", value)

    walk(answer)
    return found["target"], found.get("lun", 0)
