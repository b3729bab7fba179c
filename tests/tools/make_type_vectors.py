#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_type_vectors.py - writes tests/data/types/NAME.q and NAME.f32 with a foreign decoder.

    make_type_vectors.py REF_DEQUANT.py OUT_DIR

REF_DEQUANT.py is a decoder that is independent of kernels/: a module with TYPES, {id: (name,
values, bytes, header, rows of a group)}, and decode(id, data, columns), which returns
rows of numbers.  Codes are random bytes, scales random powers of two, so that all
products and sums are exact and the test can ask for equality.  The other files of that folder,
without interleaving, come from a quantiser and are not made here.
"""
import importlib.util
import random
import struct
import sys

PLAIN = {"TQ1_0": 52, "TQ2_0": 64, "Q1_0": 0, "IQ1_BN": None, "IQ2_BN": None, "Q8_KV": None}
PLAIN_ROWS, PLAIN_COLUMNS, GROUP_COLUMNS = 8, 512, 256
WITH_MINIMA = ("Q2_K_R4", "Q4_K_R4", "Q5_K_R4")
REFUSED = ("Q8_K_R8", "Q8_K_R16")


def power(rng):
    return rng.choice((-1, 1)) * 2.0 ** rng.randint(-8, 0)


def header(rng, size):
    if size == 0:
        return b""
    return struct.pack("<e" if size == 2 else "<f", power(rng)) + rng.randbytes(max(size - 4, 0))


def halves(rng, n):
    return b"".join(struct.pack("<e", power(rng)) for _ in range(n))


def plain_rows(rng, kind):
    name, values, size, header_size, _ = kind
    rows = []
    for _ in range(PLAIN_ROWS):
        row = header(rng, header_size)
        for _ in range(PLAIN_COLUMNS // values):
            block = bytearray(rng.randbytes(size))
            if PLAIN[name] is not None:
                block[PLAIN[name] : PLAIN[name] + 2] = halves(rng, 1)
            row += bytes(block)
        rows.append(row)
    return rows


def group(rng, kind):
    name, values, size, header_size, rows = kind
    if name == "BF16_R16":
        return b"".join(struct.pack("<f", power(rng))[2:] for _ in range(rows * GROUP_COLUMNS))
    data = b"".join(header(rng, header_size) for _ in range(rows))
    for _ in range(GROUP_COLUMNS // values):
        block = bytearray(rng.randbytes(rows * size))
        if name == "MXFP4_R8":
            block[:rows] = bytes(rng.randint(120, 130) for _ in range(rows))
        elif header_size == 0:
            scales = halves(rng, rows * (2 if name in WITH_MINIMA else 1))
            block[: len(scales)] = scales
        data += bytes(block)
    return data


def main():
    spec = importlib.util.spec_from_file_location("ref_dequant", sys.argv[1])
    ref = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ref)
    for type_id, kind in sorted(ref.TYPES.items()):
        name, rows = kind[0], kind[4]
        rng = random.Random(type_id)
        if name in PLAIN:
            stored = plain_rows(rng, kind)
            weights = [ref.decode(type_id, row, PLAIN_COLUMNS)[0] for row in stored]
        elif rows > 1 and name not in REFUSED:
            stored = [group(rng, kind)]
            weights = ref.decode(type_id, stored[0], GROUP_COLUMNS)
        else:
            continue
        path = f"{sys.argv[2]}/{name.lower()}"
        with open(path + ".q", "wb") as f:
            f.write(b"".join(stored))
        with open(path + ".f32", "wb") as f:
            for row in weights:
                f.write(struct.pack(f"<{len(row)}f", *row))


if __name__ == "__main__":
    main()
