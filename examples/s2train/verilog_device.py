"""A device of one instruction, `linear backward`, in Verilog (`linear_backward.v`), for `dlc run --device`.

    iverilog -g2005 -o bench linear_backward.v
    dlc run net.s2t --entry step --device 'python verilog_device.py bench'

It speaks the protocol of docs/s2train-host.md on standard input and output, holds memory and registers, and simulates
the unit for every instruction that it has. It uses nothing of dlc: a chip's test bench may begin from it.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

OK, UNSUPPORTED = 0, 1
BLOCK, SIZE, STATUS = 0xE0000000, 0x380, 0xE0000380
LINEAR, BACKWARD, MASK_READ = 2, 1, 1 << 2
ACCUMULATE, SAMPLES_AT, OPERANDS_AT = 0b1100, 0x20 + 92, 0x100
SLOTS = ("src0", "src1", "dst0", "dst1", "mask", "ptr", "bn0", "bn1", "res", "aux")


class Device:
    """Memory, and the registers of an operation; all others are written and not looked at."""

    def __init__(self, bench: str) -> None:
        self.bench = bench
        self.memory = bytearray()
        self.block = bytearray(SIZE)
        self.status = OK

    def reach(self, end: int) -> None:
        """Memory up to there."""
        self.memory += bytes(max(end - len(self.memory), 0))

    def operand(self, slot: str) -> tuple[int, int, list[int]]:
        """Address, bytes and shape."""
        at = OPERANDS_AT + 64 * SLOTS.index(slot)
        address, size, _, _, rank, *shape = struct.unpack_from("<QQBBB5x8I", self.block, at)
        return address, size, shape[:rank]

    def start(self) -> int:
        """Execute the operation in the registers, if the unit can."""
        opcode, bits, flags = struct.unpack_from("<BBH", self.block)
        samples = struct.unpack_from("<II", self.block, SAMPLES_AT)
        if (opcode, bits & 3) != (LINEAR, BACKWARD) or flags & ~MASK_READ or bits & ACCUMULATE or samples != (0, 0):
            return UNSUPPORTED
        (n, co), (_, ci) = self.operand("src0")[2], self.operand("src1")[2]
        if self.operand("dst1")[1] or max(n * co, co * ci, n * ci) > 65536:
            return UNSUPPORTED
        with tempfile.TemporaryDirectory() as folder:
            line = ["vvp", self.bench, f"+samples={n}", f"+outputs={co}", f"+inputs={ci}"]
            for slot in ("src0", "src1", *(("mask",) if flags & MASK_READ else ())):
                address, size, _ = self.operand(slot)
                self.reach(address + size)
                width = 1 if slot == "mask" else 2
                data = bytes(self.memory[address : address + size])
                words = [data[k : k + width][::-1].hex() for k in range(0, size, width)]
                Path(folder, f"{slot}.hex").write_text("\n".join(words))
                line.append(f"+{slot}={folder}/{slot}.hex")
            subprocess.run([*line, f"+dst0={folder}/dst0.hex"], check=True, stdout=sys.stderr)
            made = [w for w in Path(folder, "dst0.hex").read_text().split("\n") if w and not w.startswith("//")]
        address, size, _ = self.operand("dst0")
        self.reach(address + size)
        self.memory[address : address + size] = b"".join(bytes.fromhex(word)[::-1] for word in made)
        return OK

    def write(self, space: int, address: int, data: bytes) -> None:
        """Into memory or registers."""
        if space == 0:
            self.reach(address + len(data))
            self.memory[address : address + len(data)] = data
        elif BLOCK <= address < BLOCK + SIZE:
            self.block[address - BLOCK : address - BLOCK + len(data)] = data

    def read(self, space: int, address: int, size: int) -> bytes:
        """Out of them."""
        if space:
            return bytes(size)  # the status register: no update runs here
        self.reach(address + size)
        return bytes(self.memory[address : address + size])


def main() -> None:
    """Answer until the requests end."""
    device = Device(sys.argv[1])
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while head := requests.read(16):
        op, space, size, address = struct.unpack("<BBxxIQ", head)
        match chr(op):
            case "W":
                device.write(space, address, requests.read(size))
                continue
            case "S":
                device.status = device.start()
                continue
            case "R":
                status, data = OK, device.read(space, address, size)
            case "E":
                status, data = device.status, b""
            case _:
                status, data = OK, bytes(8)  # the time: nobody counts
        replies.write(struct.pack("<II", status, len(data)) + data)
        replies.flush()


if __name__ == "__main__":
    main()
