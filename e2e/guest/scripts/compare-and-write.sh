# compare-and-write: /run/host-a and /run/host-b set block 0 by COMPARE AND WRITE, against each other: each
# reads it, and puts something else in its place if it is still what it has read. Of those that found the same
# there one at most may succeed.
cd /run
head -c 512 /dev/zero >zeros; head -c 512 /dev/urandom >first; head -c 512 /dev/urandom >second
dd if=zeros of=host-a bs=512 count=1 oflag=direct conv=notrunc 2>/dev/null || exit 1
for host in host-a host-b; do for _ in 1 2 3; do sg_turs $host >/dev/null 2>&1; done; done
sg_compare_and_write --in=zeros --inw=first --lba=0 host-a || { echo "the first one: $?"; exit 1; }
sg_compare_and_write --quiet --in=zeros --inw=second --lba=0 host-b
[ $? = 14 ] || { echo 'it has compared with what was there before'; exit 1; }
sg_compare_and_write --in=first --inw=zeros --lba=0 host-b || { echo "what the other has written: $?"; exit 1; }

exec python3 - <<'END'
import ctypes, fcntl, os, sys

ROUNDS, BLOCK = 150, 512

class Header(ctypes.Structure):  # struct sg_io_hdr
    _fields_ = [("interface", ctypes.c_int), ("direction", ctypes.c_int), ("cdb_len", ctypes.c_ubyte), ("sense_max", ctypes.c_ubyte),
        ("iovecs", ctypes.c_ushort), ("length", ctypes.c_uint), ("data", ctypes.c_void_p), ("cdb", ctypes.c_void_p),
        ("sense", ctypes.c_void_p), ("timeout", ctypes.c_uint), ("flags", ctypes.c_uint), ("id", ctypes.c_int), ("user", ctypes.c_void_p),
        ("status", ctypes.c_ubyte), ("masked", ctypes.c_ubyte), ("message", ctypes.c_ubyte), ("sense_len", ctypes.c_ubyte),
        ("host", ctypes.c_ushort), ("driver", ctypes.c_ushort), ("residue", ctypes.c_int), ("duration", ctypes.c_uint), ("info", ctypes.c_uint)]

def command(disk, cdb, data, direction):  # gives the sense key, 0 if all is well
    while True:
        sense = ctypes.create_string_buffer(32)
        cdb_buffer = ctypes.create_string_buffer(bytes(cdb), len(cdb))
        header = Header(ord("S"), direction, len(cdb), len(sense), 0, len(data), ctypes.addressof(data), ctypes.addressof(cdb_buffer),
            ctypes.addressof(sense), 60000)
        fcntl.ioctl(disk, 0x2285, header)  # SG_IO
        key = sense.raw[2] & 15 if header.status == 2 else 0
        if header.status == 2 and key == 6:  # UNIT ATTENTION
            continue
        if header.host or header.status not in (0, 2):
            sys.exit(f"host {header.host:x}, status {header.status:x}")
        return key

def read(disk):
    data = ctypes.create_string_buffer(BLOCK)
    if command(disk, [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], data, -3):
        sys.exit("a read failed")
    return data.raw

def contend(name, out):
    disk = os.open(f"/run/{name}", os.O_RDWR)
    for _ in range(ROUNDS):
        found, new = read(disk), os.urandom(BLOCK)
        key = command(disk, [0x89] + [0] * 12 + [1, 0, 0], ctypes.create_string_buffer(found + new, 2 * BLOCK), -2)
        if key not in (0, 14):
            sys.exit(f"sense key {key}")
        print("done" if key == 0 else "miss", found.hex(), new.hex(), file=out)

children = []
for name in ("host-a", "host-b"):
    pid = os.fork()
    if not pid:
        with open(f"/run/{name}.log", "w") as out:
            contend(name, out)
        os._exit(0)
    children.append(pid)
if any([os.waitpid(pid, 0)[1] for pid in children]):
    sys.exit("one could not go on")

successor, counts = {}, {}
for name in ("host-a", "host-b"):
    for line in open(f"/run/{name}.log"):
        what, found, new = line.split()
        counts[name, what] = counts.get((name, what), 0) + 1
        if what == "done":
            if found in successor:
                sys.exit("two have succeeded with the same block")
            successor[found] = new
print(counts)
block = bytes(BLOCK).hex()
for _ in successor:
    block = successor[block]
if block != read(os.open("/run/host-b", os.O_RDWR)).hex():
    sys.exit("what is there is not what was written last")
if not all(counts.get(key, 0) for key in (("host-a", "done"), ("host-b", "done"), ("host-a", "miss"), ("host-b", "miss"))):
    sys.exit("they were never in each other's way: nothing is proven")
END
