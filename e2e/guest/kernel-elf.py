#!/usr/bin/env python3
"""kernel-elf.py BZIMAGE OUT: takes the ELF kernel out of a bzImage (Documentation/arch/x86/boot.rst)."""
import struct
import subprocess
import sys

DECOMPRESSORS = {
    b"\xfd7z": ["xz", "-dc", "--single-stream"],
    b"\x28\xb5/": ["zstd", "-dc"],
    b"\x1f\x8b\x08": ["gzip", "-dc"],
    b"]\0\0": ["lzma", "-dc"],
    b"\x02!L": ["lz4", "-dc"],
}

with open(sys.argv[1], "rb") as file:
    image = file.read()
setup_sectors = image[0x1F1] or 4
payload_offset, payload_length = struct.unpack_from("<II", image, 0x248)
start = (setup_sectors + 1) * 512 + payload_offset
payload = image[start : start + payload_length]
# The payload ends with the unpacked length, which decompressors take for garbage: their status says nothing.
unpack = subprocess.run(DECOMPRESSORS[payload[:3]], input=payload, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
if unpack.stdout[:4] != b"\x7fELF":
    sys.exit(f"{sys.argv[1]}: no ELF kernel inside")
with open(sys.argv[2], "wb") as file:
    file.write(unpack.stdout)
