#!/usr/bin/env python3
"""Makes the seeds corpus/requests/params-*: what trainers send to each method of Params, good and bad. The first byte is the
method's place among those of all services, which the build lists: to be made again when a method comes before them.

    python3 params_seeds.py corpus/requests ../../build/release/server/services_list.h
"""
import pathlib
import re
import struct
import sys

SERVER = pathlib.Path(__file__).resolve().parents[2] / 'server'


def first_method(services_list):
    """The place of Params' first method."""
    at = 0
    for name in re.findall(r'TABLE\((\w+)_methods\)', services_list.read_text()):
        if name == 'params_service':
            return at
        at += next(SERVER.glob(f'**/{name}.c')).read_text().count(' METHOD(')
    raise SystemExit('params_service is not in the list')


# In the order of the tables in params_service.c and params_update.c.
CREATE, PULL, WATCH, LIST, DELETE, UPDATE, PUSH = range(7)


def varint(n):
    out = b''
    n &= (1 << 64) - 1
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def real(field, x):
    return varint(field << 3 | 1) + struct.pack('<d', x)


def part(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def spec(name, shape, dtype=0):
    return part(1, name) + (number(2, dtype) if dtype else b'') + part(3, b''.join(varint(n << 1 ^ n >> 63) for n in shape))


def optimiser(kind=0, rate=0.1, **more):
    fields = {'momentum': 3, 'dampening': 4, 'weight_decay': 6, 'beta1': 7, 'beta2': 8, 'epsilon': 9}
    out = number(1, kind) + real(2, rate) + (number(5, 1) if more.pop('nesterov', False) else b'')
    return out + b''.join(real(fields[name], x) for name, x in more.items())


def config(*more, name='linear', specs=None, optim=None):
    """What more says comes last, where it stands for all that came before it."""
    specs = specs or [spec('w', [2, 3]), spec('b', [3])]
    out = part(1, name) + b''.join(part(2, s) for s in specs) + part(3, optim or optimiser()) + number(6, 3)
    return part(1, out + b''.join(more))


def chunk(offset, data, crc=None):
    crc = crc32c(data) if crc is None else crc
    return part(2, number(1, offset) + part(2, data) + varint(3 << 3 | 5) + struct.pack('<I', crc))


def header(*more, name='linear', client='a', step=1):
    return part(1, part(1, name) + part(2, client) + number(3, step) + number(4, 1) + b''.join(more))


def main():
    values = struct.pack('<9f', *(i / 8 for i in range(9)))
    nan = struct.pack('<f', float('nan'))
    seeds = {
        'create-sgd': (CREATE, config(optim=optimiser(momentum=0.9, dampening=0.1, weight_decay=0.01))),
        'create-nesterov': (CREATE, config(optim=optimiser(momentum=0.9, nesterov=True))),
        'create-adamw': (CREATE, config(optim=optimiser(2, 1e-3, beta1=0.8, beta2=0.99, epsilon=1e-6))),
        'create-step': (CREATE, config(part(4, number(1, 1) + number(2, 5) + number(3, 10) + real(4, 0.5)))),
        'create-cosine': (CREATE, config(part(4, number(1, 2) + number(5, 100) + real(6, 0.01)))),
        'create-quorum': (CREATE, config(part(8, number(1, 2) + number(2, 500) + number(3, 1)), number(5, 1), number(7, 1))),
        'create-fan-in': (CREATE, config(number(9, 4), number(10, 1), number(11, 2), number(12, 8))),
        'create-no-name': (CREATE, config(name='')),
        'create-no-optimiser': (CREATE, part(1, part(1, 'x') + part(2, spec('w', [1])))),
        'create-rate-nan': (CREATE, config(optim=optimiser(rate=float('nan')))),
        'create-dtype': (CREATE, config(specs=[spec('w', [2], 3)])),
        'create-no-type': (CREATE, config(specs=[spec('w', [2], 77)])),
        'create-negative': (CREATE, config(specs=[spec('w', [-1, 2])])),
        'create-huge': (CREATE, config(specs=[spec('w', [1 << 40, 1 << 40])])),
        'create-dims': (CREATE, config(specs=[spec('w', [1] * 9)])),
        'create-twice': (CREATE, config(specs=[spec('w', [1]), spec('w', [1])])),
        'create-round-0': (CREATE, config(number(6, 0))),
        'create-quorum-above': (CREATE, config(part(8, number(1, 9) + number(2, 1)))),
        'create-chunk': (CREATE, chunk(0, values)),
        'create-sha256': (CREATE, part(3, bytes(range(32)))),
        'create-sha256-short': (CREATE, part(3, bytes(31))),
        'pull': (PULL, part(1, 'linear') + number(2, 1)),
        'watch': (WATCH, part(1, 'linear')),
        'list': (LIST, b''),
        'delete': (DELETE, part(1, 'linear')),
        'update-header': (UPDATE, header(number(5, 1), part(6, spec('w', [2, 3])), part(6, spec('b', [3])))),
        'update-other-specs': (UPDATE, header(part(6, spec('w', [3, 2])))),
        'update-no-type': (UPDATE, header(part(6, spec('w', [2], 77)))),
        'update-want': (UPDATE, header(number(5, 9))),
        'update-chunk': (UPDATE, chunk(0, values)),
        'update-chunk-later': (UPDATE, chunk(1 << 20, values)),
        'update-chunk-crc': (UPDATE, chunk(0, values, 1)),
        'update-chunk-nan': (UPDATE, chunk(0, nan)),
        'update-chunk-odd': (UPDATE, chunk(0, values[:7])),
        'update-chunk-empty': (UPDATE, part(2, b'')),
        'update-chunk-twice': (UPDATE, chunk(0, values) + chunk(4, values)),
        'update-chunk-cut': (UPDATE, chunk(0, values)[:-9]),
        'update-chunk-and-more': (UPDATE, chunk(0, values) + part(3, bytes(32))),
        'update-sha256': (UPDATE, part(3, bytes(range(32)))),
        'update-nothing': (UPDATE, b''),
        'push-header': (PUSH, header(name='nobody', client='', step=(1 << 64) - 1)),
        'push-chunk': (PUSH, chunk(4, values[4:])),
    }
    folder = pathlib.Path(sys.argv[1])
    first = first_method(pathlib.Path(sys.argv[2]))
    for name, (method, data) in seeds.items():
        (folder / f'params-{name}').write_bytes(bytes([first + method]) + data)


if __name__ == '__main__':
    main()
