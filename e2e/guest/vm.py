#!/usr/bin/env python3
"""Throw-away Debian guests under QEMU's emulation, as clients with the Linux kernel's own initiator.

  vm.py snapshot                 boot once, keep the ready guest (e2e/guest/build does it)
  vm.py start NAME [--nics N]    start a guest from the snapshot; NIC i has 10.0.(2+i).15, and 10.0.(2+i).2 is the
                                 loopback interface outside
  vm.py start NAME --own-time    boot a guest without a network, whose clock counts its instructions: it stands still
                                 while the guest gets no processor
  vm.py run NAME [-t SECONDS]    run the bash script on standard input in it; exits with its status, or 125 if the
                                 guest does not answer any more. The guest kills a script that takes longer (status 137)
  vm.py disk NAME FILE           plug in a disk that can only be read: /dev/vdb
  vm.py monitor NAME COMMAND     a command of QEMU's monitor, such as 'set_link n1 off'
  vm.py kill NAME                power cut

Guests live in $URSA_E2E_CACHE/guests/NAME (default e2e/cache): pid, console.log, qemu.log."""
import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

CACHE = os.path.abspath(os.environ.get("URSA_E2E_CACHE") or os.path.join(os.path.dirname(__file__), "..", "cache"))
SNAPSHOT = f"{CACHE}/snapshot"
MEMORY = "768M"
# Emulation is greedy: whatever else the machine does comes first.
QEMU = ["nice", "-n", "10", "qemu-system-x86_64"]
BOOT_SECONDS = 600
# How much later than promised a guest may answer that it has killed a script.
LATE_SECONDS = 60
# Lines of a log to show when something went wrong.
LOG_LINES = 40
# With a clock that counts instructions each takes 2 to the power of this many nanoseconds.
INSTRUCTION_SHIFT = 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("snapshot")
    start_parser = commands.add_parser("start")
    start_parser.add_argument("name")
    start_parser.add_argument("--nics", type=int, default=1)
    start_parser.add_argument("--own-time", action="store_true")
    run_parser = commands.add_parser("run")
    run_parser.add_argument("name")
    run_parser.add_argument("-t", type=float, default=600)
    disk_parser = commands.add_parser("disk")
    disk_parser.add_argument("name")
    disk_parser.add_argument("file")
    monitor_parser = commands.add_parser("monitor")
    monitor_parser.add_argument("name")
    monitor_parser.add_argument("text")
    kill_parser = commands.add_parser("kill")
    kill_parser.add_argument("name")
    options = parser.parse_args()
    guest = f"{CACHE}/guests/{options.name}" if options.command != "snapshot" else SNAPSHOT
    if options.command == "snapshot":
        snapshot()
    elif options.command == "start":
        if options.own_time:
            start_with_own_time(guest, options.name)
        else:
            start(guest, options.name, options.nics)
    elif options.command == "run":
        sys.exit(run(guest, sys.stdin.read(), options.t))
    elif options.command == "disk":
        plug_in(guest, options.file)
    elif options.command == "monitor":
        sys.stdout.write(monitor(guest, options.text))
    elif options.command == "kill":
        kill(guest)


def snapshot():
    """Boots once. The guest's memory is a file; the state of its devices goes beside it."""
    fresh(SNAPSHOT)
    launch(SNAPSHOT, f"memory-backend-file,id=ram,size={MEMORY},mem-path={SNAPSHOT}/ram,share=on")
    if run(SNAPSHOT, "true", BOOT_SECONDS):
        sys.exit("the guest did not come up: see console.log and qemu.log in " + SNAPSHOT)
    save = f'migrate "exec:cat > {SNAPSHOT}/state"'
    monitor(SNAPSHOT, "stop", "migrate_set_capability x-ignore-shared on", save)
    while "status: completed" not in monitor(SNAPSHOT, "info migrate"):
        time.sleep(0.1)
    monitor(SNAPSHOT, "quit")


def start(guest, name, nics):
    """A clone: its memory is a private (copy-on-write) map of the snapshot's file."""
    fresh(guest)
    memory = f"memory-backend-file,id=ram,size={MEMORY},mem-path={SNAPSHOT}/ram,share=off"
    launch(guest, memory, ["-incoming", "defer"])
    load = f'migrate_incoming "exec:cat {SNAPSHOT}/state"'
    monitor(guest, "migrate_set_capability x-ignore-shared on", load)
    while "inmigrate" in monitor(guest, "info status"):
        time.sleep(0.02)
    monitor(guest, "cont")
    script = first_script(name)
    for i in range(nics):
        backend = {"type": "user", "id": f"n{i}", "net": f"10.0.{2 + i}.0/24"}
        mac = f"52:54:00:00:00:{i:02x}"
        monitor(
            guest,
            {"execute": "netdev_add", "arguments": backend},
            f"device_add virtio-net-pci,netdev=n{i},id=nic{i},mac={mac},addr={8 + i:x}",
        )
        # By its address: the kernel of a busy machine may find the second NIC first, and call it eth0.
        script += [
            f"for _ in $(seq 3000); do nic=$(grep -lx {mac} /sys/class/net/*/address) && break; sleep 0.02; done",
            "nic=${nic%/address}; nic=${nic##*/}",
            f"ip link set \"$nic\" up && ip addr add 10.0.{2 + i}.15/24 dev \"$nic\" || exit 1",
        ]
    sys.exit(run(guest, "\n".join(script), BOOT_SECONDS))


def start_with_own_time(guest, name):
    """Not from the snapshot, whose clock is another one."""
    fresh(guest)
    memory = f"memory-backend-ram,id=ram,size={MEMORY}"
    launch(guest, memory, ["-icount", f"shift={INSTRUCTION_SHIFT}"], "tcg,thread=single")
    sys.exit(run(guest, "\n".join(first_script(name)), BOOT_SECONDS))


def first_script(name):
    return [
        f"date -s @{time.time():.3f} >/dev/null",  # the snapshot's clock stood still
        f"echo {name} >/proc/sys/kernel/hostname",
        f"echo 127.0.0.1 localhost {name} >/etc/hosts",
        f"echo InitiatorName=iqn.2026-11.e2e.guest:{name} >/etc/iscsi/initiatorname.iscsi",
        "head -c 64 /proc/sys/kernel/random/uuid >/dev/urandom",
    ]


def run(guest, script, seconds, out=sys.stdout):
    """Runs a script in the guest and prints what it prints, as it comes; gives its status (see guest-init)."""
    end = time.time() + seconds + LATE_SECONDS
    unread, silence = b"", None
    try:
        port = connect(f"{guest}/command", LATE_SECONDS)
        port.sendall(b"%d %s\n" % (seconds, base64.b64encode(script.encode())))
        while not silence:
            port.settimeout(max(0.01, end - time.time()))
            more = port.recv(65536)
            silence = None if more else "QEMU has ended"
            unread += more
            mark = unread.find(b"\n@@STATUS ")
            if mark >= 0 and unread.find(b"\n", mark + 1) > 0:
                out.write(unread[:mark].decode(errors="replace") + ("\n" if mark else ""))
                return int(unread[mark + 10 :].split(b"\n")[0])
            line_end = unread.rfind(b"\n")
            if line_end > 0 and mark < 0:
                out.write(unread[:line_end].decode(errors="replace"))
                out.flush()
                unread = unread[line_end:]
    except TimeoutError:
        silence = f"no answer in {seconds + LATE_SECONDS:.0f} seconds"
    except OSError as error:
        silence = f"no connection to QEMU: {error}"
    out.write(unread.decode(errors="replace") + f"\nvm.py: {silence}\n")
    for log in ("qemu.log", "console.log"):
        with open(f"{guest}/{log}", errors="replace") as file:
            out.write(f"--- {log}\n" + "".join(file.readlines()[-LOG_LINES:]))
    return 125


def plug_in(guest, image):
    image = {"driver": "file", "filename": os.path.abspath(image), "read-only": True}
    disk = {"driver": "raw", "node-name": "second", "read-only": True, "file": image}
    monitor(
        guest,
        {"execute": "blockdev-add", "arguments": disk},
        {"execute": "device_add", "arguments": {"driver": "virtio-blk-pci", "drive": "second", "addr": "10"}},
    )


def monitor(guest, *commands):
    """Carries out QMP commands (dicts) and monitor lines (text); gives the texts that the latter answered."""
    channel = connect(f"{guest}/monitor", 30).makefile("rw")
    json.loads(channel.readline())  # the greeting
    texts = []
    for command in ({"execute": "qmp_capabilities"},) + commands:
        if isinstance(command, str):
            command = {"execute": "human-monitor-command", "arguments": {"command-line": command}}
        channel.write(json.dumps(command) + "\n")
        channel.flush()
        answer = {}
        while "return" not in answer:
            line = channel.readline()
            if not line:
                return "".join(texts)  # it was told to quit
            answer = json.loads(line)
            if "error" in answer:
                sys.exit(f"vm.py: {command}: {answer['error']['desc']}")
        if isinstance(answer["return"], str):
            texts.append(answer["return"].replace("\r", ""))
    return "".join(texts)


def kill(guest):
    with open(f"{guest}/pid") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    os.unlink(f"{guest}/pid")


def launch(guest, memory, more=(), accelerator="tcg,thread=multi"):
    arguments = [
        *("-accel", accelerator, "-M", "pc,memory-backend=ram", "-cpu", "max", "-smp", "1"),
        *("-m", MEMORY, "-object", memory, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-pidfile", f"{guest}/pid", "-qmp", f"unix:{guest}/monitor,server=on,wait=off"),
        *("-kernel", f"{CACHE}/vmlinux", "-initrd", f"{CACHE}/initrd.cpio"),
        *("-append", "console=ttyS0 panic=-1 quiet mitigations=off net.ifnames=0"),
        *("-serial", f"file:{guest}/console.log"),
        *("-drive", f"if=none,id=root,format=raw,readonly=on,file={CACHE}/root.img"),
        *("-device", "virtio-blk-pci,drive=root,addr=2", "-device", "virtio-serial-pci,addr=3"),
        *("-chardev", f"socket,id=command,path={guest}/command,server=on,wait=off"),
        *("-device", "virtserialport,chardev=command,name=command"),
    ]
    with open(f"{guest}/qemu.log", "w") as log:
        subprocess.Popen(
            QEMU + arguments + list(more),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def connect(path, seconds):
    end = time.time() + seconds
    while True:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(seconds)
        try:
            connection.connect(path)
            return connection
        except OSError:
            connection.close()
            if time.time() > end:
                raise
            time.sleep(0.02)


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)


main()
