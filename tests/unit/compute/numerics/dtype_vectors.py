#!/usr/bin/env python3
"""Makes dtype_vectors.inc: blocks of every format and the values they stand for.

It packs, where the code under test unpacks: numbers of each block are chosen first, then laid into
bytes the way the formats' own writer does, so the two agree only if both have the layout right. The
arithmetic is that of the formats (single floats, one rounding an operation); a double holds the
product and the sum of two floats closely enough that rounding it once more is the same rounding.

    python3 dtype_vectors.py > dtype_vectors.inc

With --check, the blocks are also decoded by PyPI's gguf, whose bits must be the same.
"""
import random
import struct
import sys

rng = random.Random(20240607)


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def f32_bits(x):
    return struct.unpack('<I', struct.pack('<f', x))[0]


def half(x):
    """The bytes of a half and the number they hold."""
    b = struct.pack('<e', x)
    return b, struct.unpack('<e', b)[0]


def scale():
    return half(rng.choice([-1, 1]) * rng.uniform(0.3, 1.0) * 2.0 ** rng.randint(-12, 3))


def nibbles(numbers):
    """32 numbers below 16: the first half in the low nibbles, the second in the high ones."""
    return bytes(numbers[i] | numbers[i + 16] << 4 for i in range(16))


def q4_0(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    q = [rng.randrange(16) for _ in range(32)]
    q[0], q[31] = 0, 15
    return db + nibbles(q), [f32((x - 8) * d) for x in q]


def q4_1(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    mb, m = scale()
    q = [rng.randrange(16) for _ in range(32)]
    q[0], q[31] = 0, 15
    return db + mb + nibbles(q), [f32(f32(x * d) + m) for x in q]


def fifth_bits(q):
    return struct.pack('<I', sum((x >> 4) << i for i, x in enumerate(q)))


def q5_0(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    q = [rng.randrange(32) for _ in range(32)]
    q[0], q[31] = 0, 31
    return db + fifth_bits(q) + nibbles([x & 15 for x in q]), [f32((x - 16) * d) for x in q]


def q5_1(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    mb, m = scale()
    q = [rng.randrange(32) for _ in range(32)]
    q[0], q[31] = 0, 31
    return (db + mb + fifth_bits(q) + nibbles([x & 15 for x in q]),
            [f32(f32(x * d) + m) for x in q])


def q8_0(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    q = [rng.randint(-128, 127) for _ in range(32)]
    q[0], q[1], q[31] = -128, 127, -1
    return db + struct.pack('32b', *q), [f32(x * d) for x in q]


def k_scales(scales, mins):
    """Eight six-bit scales and mins in twelve bytes."""
    out = [0] * 12
    for j in range(8):
        if j < 4:
            out[j] |= scales[j]
            out[j + 4] |= mins[j]
        else:
            out[j + 4] |= (scales[j] & 15) | (mins[j] & 15) << 4
            out[j - 4] |= (scales[j] >> 4) << 6
            out[j] |= (mins[j] >> 4) << 6
    return bytes(out)


def k_values(d, dmin, scales, mins, q):
    return [f32(f32(f32(d * scales[i // 32]) * x) - f32(dmin * mins[i // 32]))
            for i, x in enumerate(q)]


def q4_k(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    mb, dmin = scale()
    scales = [rng.randrange(64) for _ in range(8)]
    mins = [rng.randrange(64) for _ in range(8)]
    scales[0], mins[7], scales[5] = 63, 63, 0
    q = [rng.randrange(16) for _ in range(256)]
    packed = bytes(q[n + j] | q[n + j + 32] << 4 for n in range(0, 256, 64) for j in range(32))
    return db + mb + k_scales(scales, mins) + packed, k_values(d, dmin, scales, mins, q)


def q5_k(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    mb, dmin = scale()
    scales = [rng.randrange(64) for _ in range(8)]
    mins = [rng.randrange(64) for _ in range(8)]
    scales[7], mins[0], mins[4] = 63, 63, 0
    q = [rng.randrange(32) for _ in range(256)]
    fifth = [0] * 32
    for pair, n in enumerate(range(0, 256, 64)):
        for j in range(32):
            fifth[j] |= (q[n + j] >> 4) << (2 * pair)
            fifth[j] |= (q[n + j + 32] >> 4) << (2 * pair + 1)
    packed = bytes((q[n + j] & 15) | (q[n + j + 32] & 15) << 4
                   for n in range(0, 256, 64) for j in range(32))
    return (db + mb + k_scales(scales, mins) + bytes(fifth) + packed,
            k_values(d, dmin, scales, mins, q))


def q6_k(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    scales = [rng.randint(-128, 127) for _ in range(16)]
    scales[0], scales[15] = -128, 127
    q = [rng.randrange(64) for _ in range(256)]
    low, top = [], []
    for n in (0, 128):
        a, b, c, e = (q[n + 32 * k:n + 32 * k + 32] for k in range(4))
        low += [(x & 15) | (z & 15) << 4 for x, z in zip(a, c)]
        low += [(x & 15) | (z & 15) << 4 for x, z in zip(b, e)]
        top += [w >> 4 | (x >> 4) << 2 | (y >> 4) << 4 | (z >> 4) << 6
                for w, x, y, z in zip(a, b, c, e)]
    return (bytes(low) + bytes(top) + struct.pack('16b', *scales) + db,
            [f32(f32(d * scales[i // 16]) * (x - 32)) for i, x in enumerate(q)])


def two_bits(q):
    """Two bits of each of 256 numbers: four quarters of 32 of each half side by side in 32 bytes."""
    return bytes(sum((q[n + 32 * j + i] & 3) << 2 * j for j in range(4))
                 for n in (0, 128) for i in range(32))


def q2_k(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    mb, dmin = scale()
    scales = [rng.randrange(16) for _ in range(16)]
    mins = [rng.randrange(16) for _ in range(16)]
    scales[0], mins[15], scales[9] = 15, 15, 0
    q = [rng.randrange(4) for _ in range(256)]
    packed = bytes(s | m << 4 for s, m in zip(scales, mins))
    return (packed + two_bits(q) + db + mb,
            [f32(f32(f32(d * scales[i // 16]) * x) - f32(dmin * mins[i // 16]))
             for i, x in enumerate(q)])


def q3_k(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    scales = [rng.randrange(64) for _ in range(16)]
    scales[0], scales[15] = 0, 63
    q = [rng.randrange(8) for _ in range(256)]
    third = bytes(sum((q[32 * j + i] >> 2) << j for j in range(8)) for i in range(32))
    packed = [scales[k] & 15 | (scales[k + 8] & 15) << 4 for k in range(8)]
    packed += [sum((scales[k + 4 * j] >> 4) << 2 * j for j in range(4)) for k in range(4)]
    return (third + two_bits(q) + bytes(packed) + db,
            [f32(f32(d * (scales[i // 16] - 32)) * (x - 4)) for i, x in enumerate(q)])


IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


def iq4_nl(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    q = [rng.randrange(16) for _ in range(32)]
    q[0], q[31] = 0, 15
    return db + nibbles(q), [f32(d * IQ4[x]) for x in q]


def iq4_xs(tiny):
    db, d = half(2.0 ** -24) if tiny else scale()
    scales = [rng.randrange(64) for _ in range(8)]
    scales[0], scales[7] = 0, 63
    q = [rng.randrange(16) for _ in range(256)]
    high = struct.pack('<H', sum((x >> 4) << 2 * i for i, x in enumerate(scales)))
    low = bytes(scales[i] & 15 | (scales[i + 1] & 15) << 4 for i in range(0, 8, 2))
    packed = b''.join(nibbles(q[n:n + 32]) for n in range(0, 256, 32))
    return (db + high + low + packed,
            [f32(f32(d * (scales[i // 32] - 32)) * IQ4[x]) for i, x in enumerate(q)])


def mxfp4(tiny):
    """The least exponent: its numbers are subnormal up to 2^-127."""
    e = 0 if tiny else 131
    q = list(range(16)) + [rng.randrange(16) for _ in range(16)]
    return bytes([e]) + nibbles(q), [E2M1[x] * 2.0 ** (e - 128) for x in q]


def plain(fmt):
    numbers = [0.0, -0.0, 1.0, -2.5, 65504.0, 2.0 ** -14, 3 * 2.0 ** -24, float('-inf')]
    return b''.join(struct.pack(fmt, x) for x in numbers), numbers


def bf16():
    numbers = [0.0, -0.0, 1.0, -2.5, 3.0 * 2.0 ** 100, 2.0 ** -126, 2.0 ** -133, float('inf')]
    return b''.join(struct.pack('<f', x)[2:] for x in numbers), numbers


def rows(items, per_line, shape):
    for i in range(0, len(items), per_line):
        yield '    ' + ', '.join(shape % x for x in items[i:i + per_line]) + ','


def check(name, packed, numbers):
    import gguf
    import numpy

    got = gguf.quants.dequantize(numpy.frombuffer(packed, numpy.uint8),
                                 getattr(gguf.GGMLQuantizationType, name))
    want = numpy.array(numbers, numpy.float32)
    if not numpy.array_equal(got.reshape(-1).view(numpy.uint32), want.view(numpy.uint32)):
        sys.exit(f'{name}: gguf decodes it to other bits')


def main():
    made = [('F32', *plain('<f')), ('F16', *plain('<e')), ('BF16', *bf16())]
    for name, block in [('Q4_0', q4_0), ('Q4_1', q4_1), ('Q5_0', q5_0), ('Q5_1', q5_1),
                        ('Q8_0', q8_0), ('Q4_K', q4_k), ('Q5_K', q5_k), ('Q6_K', q6_k),
                        ('Q2_K', q2_k), ('Q3_K', q3_k), ('IQ4_NL', iq4_nl), ('IQ4_XS', iq4_xs),
                        ('MXFP4', mxfp4)]:
        first, second = block(False), block(True)
        made.append((name, first[0] + second[0], first[1] + second[1]))
    for name, packed, numbers in made if '--check' in sys.argv[1:] else []:
        if name not in ('F32', 'F16'):
            check(name, packed, numbers)
    print('/* Made by dtype_vectors.py. */')
    for name, packed, numbers in made:
        print(f'static const uint8_t {name.lower()}_in[] = {{')
        print('\n'.join(rows(list(packed), 16, '0x%02x')))
        print('};')
        print(f'static const uint32_t {name.lower()}_out[] = {{')
        print('\n'.join(rows([f32_bits(x) for x in numbers], 8, '0x%08x')))
        print('};')
    print('static const struct vector vectors[] = {')
    for name, packed, numbers in made:
        n = name.lower()
        print(f'    {{DTYPE_{name}, {n}_in, sizeof {n}_in, {n}_out, {len(numbers)}}},')
    print('};')


main()
