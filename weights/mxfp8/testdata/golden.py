"""Makes golden.json by NumPy and ml_dtypes 0.6.0 (pip install numpy ml_dtypes==0.6.0), which share no code with the package.

The rule of the scales is that of the OCP Microscaling Formats specification 1.0, section 6.3; ml_dtypes rounds the elements. Its casts
do not saturate, so values are clipped before.
"""

import hashlib
import json
import sys

import ml_dtypes
import numpy as np

BLOCK = 32


def quantise(row):
    """Codes and scales of a row of bfloat16 bit patterns."""
    values = row.view(ml_dtypes.bfloat16).astype(np.float64)
    codes, scales = [], []
    for at in range(0, len(values), BLOCK):
        block = values[at : at + BLOCK]
        if not np.isfinite(block).all():
            codes.append(np.full(len(block), 0x7F, np.uint8))
            scales.append(0xFF)
            continue
        most = np.abs(block).max()
        exponent = -127 if most == 0 else max(-127, int(np.frexp(most)[1]) - 1 - 8)
        scale = np.array([2.0**exponent]).astype(ml_dtypes.float8_e8m0fnu)
        assert float(scale[0]) == 2.0**exponent
        scaled = np.clip(block / 2.0**exponent, -448, 448)
        codes.append(scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
        scales.append(int(scale.view(np.uint8)[0]))
    return np.concatenate(codes), np.array(scales, np.uint8)


def every(step):
    """Every bit pattern once, in steps, so that blocks mix magnitudes or do not."""
    return (np.arange(65536, dtype=np.uint64) * step % 65536).astype(np.uint16)


def near(exponents):
    """Blocks whose elements are within some binades of each other, at every level, without what is not finite."""
    i = np.arange(1 << 18, dtype=np.uint64)
    noise = (i * 2654435761 >> 7) % 65536
    exponent = np.minimum(254, (i // 64) % 255 + noise % exponents)
    return ((noise >> 15 << 15) | (exponent << 7) | (noise >> 4 & 127)).astype(np.uint16)


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def main():
    golden = {"many": {}, "rows": []}
    for name, patterns in {
        "every 1": every(1),
        "every 40503": every(40503),
        "every 129": every(129),
        "near 2": near(2),
        "near 12": near(12),
        "near 30": near(30),
    }.items():
        codes, scales = quantise(patterns)
        golden["many"][name] = {"codes": digest(codes), "scales": digest(scales)}
    source = np.random.default_rng(1)
    for deviation, length in ((0.02, 32), (0.02, 100), (1.0, 64), (3e38, 33), (1e-38, 32), (1e-40, 32), (30000.0, 1)):
        with np.errstate(over="ignore"):
            row = (source.standard_normal(length) * deviation).astype(ml_dtypes.bfloat16).view(np.uint16)
        codes, scales = quantise(row)
        golden["rows"].append({"row": row.astype("<u2").tobytes().hex(), "codes": codes.tobytes().hex(), "scales": scales.tobytes().hex()})
    json.dump(golden, sys.stdout, indent=1)
    print()


main()
