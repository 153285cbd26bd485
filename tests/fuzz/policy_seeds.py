#!/usr/bin/env python3
"""Makes the seeds of corpus/policy: small files of each kind, and the same with bytes changed, cut off or put in.

    python3 policy_seeds.py corpus/policy
"""
import pathlib
import random
import struct
import sys

from gguf_seeds import BOOL, F32, TEXT, U64, gguf, key


def policy(kind, inputs, hidden, layers, actions, has_value, adam_steps=0):
    keys = [key('general.architecture', TEXT, 'policy'), key('policy.kind', TEXT, kind), key('policy.environment', TEXT, 'E'),
            key('policy.observation_length', U64, inputs), key('policy.action_count', U64, actions),
            key('policy.hidden_length', U64, hidden), key('policy.hidden_layers', U64, layers),
            key('policy.dropout', F32, 0.0 if kind == 'lstm' else 0.5), key('policy.has_value', BOOL, has_value),
            key('policy.seed', U64, 1)]
    keys += [key('policy.adam_steps', U64, adam_steps)] if adam_steps else []
    shapes = [('actions', actions, hidden)] + ([('value', 1, hidden)] if has_value else [])
    if kind == 'lstm':
        shapes = [('lstm.input', 4 * hidden, inputs), ('lstm.state', 4 * hidden, hidden)] + shapes
    else:
        shapes = [(f'hidden.{i}', hidden, inputs if i == 0 else hidden) for i in range(layers)] + shapes
    tensors = []
    for moment in ['', '.m', '.v'] if adam_steps else ['']:
        for name, n_out, n_in in shapes:
            tensors += [(name + '.weight' + moment, 0, [n_in] if n_out == 1 else [n_in, n_out]), (name + '.bias' + moment, 0, [n_out])]
    least = 0 if adam_steps else -125  # second moments are squares
    return gguf(keys, tensors, numbers=lambda n: b''.join(struct.pack('<f', (i * 37 % 251 + least) / 250) for i in range(n)))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    whole = [policy('mlp', 2, 3, 1, 2, False), policy('mlp', 1, 2, 3, 3, True), policy('lstm', 2, 2, 1, 2, True),
             policy('mlp', 1, 2, 1, 2, False, 3), policy('lstm', 1, 1, 1, 2, True, 1 << 48)]
    for i, seed in enumerate(whole):
        (folder / f'seed-{i}').write_bytes(seed)
        for k in range(24):
            b = bytearray(seed)
            at = chance.randrange(len(b))
            if k % 4 == 0:
                del b[at:]
            elif k % 4 == 1:
                b[at:at] = bytes(chance.randrange(256) for _ in range(8))
            else:
                for _ in range(1 + k % 3):
                    b[chance.randrange(len(b))] = chance.choice([0, 1, 0x7f, 0x80, 0xff, chance.randrange(256)])
            (folder / f'changed-{i}-{k:02}').write_bytes(bytes(b))


if __name__ == '__main__':
    main()
