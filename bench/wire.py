"""How long a target takes from a command's packet to its answer's, as both pass the network: the client's own waits are not in it.

tcpdump writes the first bytes of each packet of the loopback device to memory; they are read when the client is done."""
import os
import shutil
import subprocess
import tempfile

#: Ethernet, IP and TCP headers with options, and as many PDU headers as follow each other in one packet of a client at depth 4.
SNAP_BYTES = 512
PDU_HEADER = 48
COMMAND, RESPONSE, DATA_IN = 0x01, 0x21, 0x25
#: tcpdump says when it listens, and ends when it is told to.
DEADLINE_SECONDS = 10
NANOSECONDS = 0xA1B23C4D


class Wire:
    """Listens to one iSCSI port while it is open; `microseconds` has the sorted latencies afterwards."""

    def __init__(self, port, cpu):
        if shutil.which("tcpdump") is None:
            raise RuntimeError("tcpdump is missing: apt-get install tcpdump")
        self.port, self.cpu = port, cpu
        self.microseconds = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="ursa-wire-", dir="/dev/shm")
        self.file = os.path.join(self.folder, "packets")
        pinned = ["taskset", "-c", self.cpu] if self.cpu else []
        self.process = subprocess.Popen(
            pinned
            + ["tcpdump", "-i", "lo", "-s", str(SNAP_BYTES), "-B", "16384", "--time-stamp-precision=nano", "-w", self.file]
            + [f"tcp port {self.port} and greater 110"],
            stderr=subprocess.PIPE,
            text=True,
        )
        # "listening on lo ..." is its first line.
        if "listening" not in self.process.stderr.readline():
            self.process.kill()
            raise RuntimeError("tcpdump does not listen: it needs the right to capture packets (root)")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=DEADLINE_SECONDS)
        with open(self.file, "rb") as packets:
            self.microseconds = sorted(latencies(packets.read(), self.port))
        shutil.rmtree(self.folder)

    def quantile(self, part):
        if not self.microseconds:
            raise RuntimeError(f"no command was answered at port {self.port}")
        return self.microseconds[min(len(self.microseconds) - 1, int(len(self.microseconds) * part))]


def latencies(capture, port):
    """Microseconds of each command whose answer is in the capture (pcap(5), nanoseconds)."""
    if int.from_bytes(capture[:4], "little") != NANOSECONDS:
        raise RuntimeError("tcpdump has not written nanoseconds")
    at, began, took = 24, {}, []
    while at + 16 <= len(capture):
        seconds, nanos, kept = (int.from_bytes(capture[at + index : at + index + 4], "little") for index in (0, 4, 8))
        packet = capture[at + 16 : at + 16 + kept]
        at += 16 + kept
        time = seconds * 10**9 + nanos
        tcp = 14 + (packet[14] & 15) * 4
        source, destination = (int.from_bytes(packet[tcp + index : tcp + index + 2], "big") for index in (0, 2))
        pdu = tcp + (packet[tcp + 12] >> 4) * 4
        # The bench sends commands whole and without digests, so a packet begins with a PDU.
        while pdu + PDU_HEADER <= len(packet):
            header = packet[pdu : pdu + PDU_HEADER]
            operation, tag = header[0] & 0x3F, header[16:20]
            if destination == port and operation == COMMAND:
                began[source, tag] = time
            elif source == port and (operation == RESPONSE or (operation == DATA_IN and header[1] & 1)):
                if (destination, tag) in began:
                    took.append((time - began.pop((destination, tag))) / 1000)
            data = int.from_bytes(header[5:8], "big")
            pdu += PDU_HEADER + header[4] * 4 + (data + 3 & ~3)
    return took
