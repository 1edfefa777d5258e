"""A client of NBD servers: closed loops of requests, and their latencies (the protocol is in the NBD project's doc/proto.md)."""
import random
import socket
import struct
import time

OPTION_MAGIC = b"IHAVEOPT"
GO, INFO, ACK = 7, 3, 1
READ, WRITE, DISCONNECT = 0, 1, 2
FUA = 1
REQUEST = struct.Struct(">IHHQQI")
REPLY = struct.Struct(">IIQ")


class Client:
    """A connection to the default export of a server on this machine."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        magic, option, flags = struct.unpack(">8s8sH", self.take(18))
        if magic != b"NBDMAGIC" or option != OPTION_MAGIC or not flags & 1:
            raise RuntimeError("this is no NBD server of this century")
        self.socket.sendall(struct.pack(">I", flags & 3))
        # The default export, whose name is empty, and no further information.
        self.socket.sendall(OPTION_MAGIC + struct.pack(">IIIH", GO, 6, 0, 0))
        self.size = None
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.take(20))
            data = self.take(length)
            if kind == INFO and struct.unpack(">H", data[:2])[0] == 0:
                self.size = struct.unpack(">Q", data[2:10])[0]
            elif kind == ACK:
                break
            elif kind != INFO:
                raise RuntimeError(f"the NBD server refuses the export: {kind:#x}")

    def take(self, length):
        data = bytearray(length)
        view, have = memoryview(data), 0
        while have < length:
            got = self.socket.recv_into(view[have:])
            if not got:
                raise RuntimeError("the NBD server has closed the connection")
            have += got
        return data

    def close(self):
        self.socket.sendall(REQUEST.pack(0x25609513, 0, DISCONNECT, 0, 0, 0))
        self.socket.close()

    def run(self, block, depth, write, seconds=None, count=None, sequential=False, durable=False):
        """So many requests at a time, for some seconds or until there were `count`. Returns the latencies in seconds, and the time
        that all took."""
        data = random.randbytes(block) if write else b""
        flags, command = (FUA if durable and write else 0), (WRITE if write else READ)
        blocks, begun, latencies, number = self.size // block, {}, [], 0

        def send():
            nonlocal number
            at = number % blocks if sequential else random.randrange(blocks)
            begun[number] = time.perf_counter()
            self.socket.sendall(REQUEST.pack(0x25609513, flags, command, number, at * block, block) + data)
            number += 1

        start = time.perf_counter()
        end = start + seconds if seconds else float("inf")
        count = count or float("inf")
        for _ in range(min(depth, count)):
            send()
        while begun:
            magic, error, handle = REPLY.unpack(self.take(REPLY.size))
            if magic != 0x67446698 or error:
                raise RuntimeError(f"an NBD request failed: error {error}")
            if not write:
                self.take(block)
            now = time.perf_counter()
            latencies.append(now - begun.pop(handle))
            if now < end and number < count:
                send()
        return latencies, time.perf_counter() - start
