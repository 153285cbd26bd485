#!/usr/bin/env python3
"""Makes the hand-made seeds of corpus/gguf, named seed-*; the fuzzer's own finds lie beside them.

    python3 gguf_seeds.py corpus/gguf
"""
import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: 'B', I8: 'b', U16: 'H', I16: 'h', U32: 'I', I32: 'i', F32: 'f', BOOL: '?', U64: 'Q',
         I64: 'q', F64: 'd'}
# type: values and bytes of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2)}


def text(s):
    b = s.encode()
    return struct.pack('<Q', len(b)) + b


def value(kind, v):
    if kind == TEXT:
        return text(v)
    if kind == ARRAY:
        item, items = v
        return struct.pack('<IQ', item, len(items)) + b''.join(value(item, x) for x in items)
    return struct.pack('<' + CODES[kind], v)


def key(name, kind, v):
    return text(name) + struct.pack('<I', kind) + value(kind, v)


def gguf(keys, tensors, version=3, alignment=32, numbers=None):
    """tensors: (name, type, dims); numbers(n): their data, else any bytes."""
    out = b'GGUF' + struct.pack('<IQQ', version, len(tensors), len(keys)) + b''.join(keys)
    data = b''
    for name, kind, dims in tensors:
        data += bytes(-len(data) % alignment)
        out += text(name) + struct.pack('<I', len(dims))
        out += b''.join(struct.pack('<Q', d) for d in dims) + struct.pack('<IQ', kind, len(data))
        n = 1
        for d in dims:
            n *= d
        values, size = BLOCKS[kind]
        data += numbers(n) if numbers else bytes(i * 37 % 251 for i in range(n // values * size))
    return out + bytes(-len(out) % alignment) + data if tensors else out


def scalars():
    numbers = [(U8, 200), (I8, -3), (U16, 60000), (I16, -300), (U32, 4000000000), (I32, -70000),
               (U64, 2 ** 64 - 1), (I64, -1), (F32, 1.5), (F64, -2.5), (BOOL, True)]
    return [key(f'k{kind}', kind, v) for kind, v in numbers] + [key('t', TEXT, 'words')]


def arrays():
    return [key('texts', ARRAY, (TEXT, ['one', '', 'three'])),
            key('shorts', ARRAY, (I16, [1, -2, 3])),
            key('bools', ARRAY, (BOOL, [True, False])),
            key('none', ARRAY, (F32, [])),
            key('deep', ARRAY, (ARRAY, [(TEXT, ['a']), (ARRAY, [(U64, [2 ** 63])])]))]


def llama():
    w, f, vocab = 32, 32, 6
    keys = [key('general.architecture', TEXT, 'llama'), key('general.name', TEXT, 'seed'),
            key('general.alignment', U32, 32),
            key('llama.block_count', U32, 1), key('llama.embedding_length', U32, w),
            key('llama.feed_forward_length', U32, f), key('llama.context_length', U32, 64),
            key('llama.attention.head_count', U32, 2),
            key('llama.attention.head_count_kv', U32, 1),
            key('llama.attention.layer_norm_rms_epsilon', F32, 1e-5),
            key('llama.rope.freq_base', F32, 10000.0), key('llama.rope.dimension_count', U32, 16),
            key('llama.vocab_size', U32, vocab),
            key('tokenizer.ggml.model', TEXT, 'gpt2'), key('tokenizer.ggml.pre', TEXT, 'smollm'),
            key('tokenizer.ggml.tokens', ARRAY, (TEXT, ['<s>', '</s>', 'a', 'b', 'ab', '\u0120'])),
            key('tokenizer.ggml.token_type', ARRAY, (I32, [3, 3, 1, 1, 1, 1])),
            key('tokenizer.ggml.merges', ARRAY, (TEXT, ['a b']))]
    q8, f32 = 8, 0
    tensors = [('token_embd.weight', q8, (w, vocab)), ('output_norm.weight', f32, (w,)),
               ('blk.0.attn_norm.weight', f32, (w,)), ('blk.0.ffn_norm.weight', f32, (w,)),
               ('blk.0.attn_q.weight', 2, (w, w)), ('blk.0.attn_k.weight', 3, (w, w // 2)),
               ('blk.0.attn_v.weight', 6, (w, w // 2)), ('blk.0.attn_output.weight', 7, (w, w)),
               ('blk.0.ffn_gate.weight', q8, (w, f)), ('blk.0.ffn_up.weight', q8, (w, f)),
               ('blk.0.ffn_down.weight', q8, (f, w))]
    return keys, tensors


def further():
    """name -> keys and tensors of architectures that have rules of their own"""
    w, vocab, f32 = 32, 6, 0

    def of(arch, numbers, tensors, floats=(), whole=()):
        keys = [key('general.architecture', TEXT, arch)]
        keys += [key(f'{arch}.{name}', U32, n) for name, n in
                 dict({'block_count': 1, 'embedding_length': w, 'context_length': 64, 'feed_forward_length': w}, **numbers).items()]
        keys += [key(f'{arch}.{name}', F32, x) for name, x in (('attention.layer_norm_rms_epsilon', 1e-5), *floats)]
        return keys, [('token_embd.weight', f32, (w, vocab)), ('output_norm.weight', f32, (w,)), ('blk.0.attn_norm.weight', f32, (w,)),
                      *((f'blk.0.{name}', f32, dims) for name, dims in tensors), *((name, f32, dims) for name, dims in whole)]

    network = [(f'ffn_{x}.weight', (w, w)) for x in ('gate', 'up', 'down')] + [('ffn_norm.weight', (w,))]
    experts = [(f'ffn_{x}_exps.weight', (w, w, 2)) for x in ('gate', 'up', 'down')] + [('ffn_gate_inp.weight', (w, 2))]
    heads = {'attention.head_count': 2, 'attention.head_count_kv': 1, 'rope.dimension_count': 16}
    attention = [('attn_q.weight', (w, w)), ('attn_k.weight', (w, 16)), ('attn_v.weight', (w, 16)), ('attn_output.weight', (w, w))]
    streams = [(f'{x}.weight', (w,)) for x in ('post_attention_norm', 'post_ffw_norm', 'post_norm', 'laurel_post_norm',
                                               'altup_router_norm', 'altup_correct_scale')]
    streams += [('attn_q_norm.weight', (16,)), ('attn_k_norm.weight', (16,)), ('inp_gate.weight', (w, 4)), ('proj.weight', (4, w)),
                ('laurel_l.weight', (w, 2)), ('laurel_r.weight', (2, w)), ('altup_router.weight', (w, 2)),
                ('altup_predict_coef.weight', (2, 4)), ('altup_correct_coef.weight', (2, 2))]
    return {
        'llama4': of('llama4', dict(heads, **{
            'expert_count': 2, 'expert_used_count': 1, 'interleave_moe_layer_step': 1, 'attention.sliding_window': 8,
            'attention.temperature_length': 8}), attention + experts + [('ffn_norm.weight', (w,))],
            [('attention.temperature_scale', 0.1)]),
        'gemma3n': of('gemma3n', dict(heads, **{
            'attention.sliding_window': 8, 'altup.num_inputs': 2, 'embedding_length_per_layer_input': 4}),
            attention + network + streams, whole=[
                ('altup_proj.weight', (w, w, 1)), ('altup_unembd_proj.0.weight', (w, w)), ('per_layer_token_embd.weight', (4, vocab)),
                ('per_layer_model_proj.weight', (w, 4)), ('per_layer_proj_norm.weight', (4,))]),
        'minicpm3': of('minicpm3', {
            'attention.head_count': 2, 'attention.head_count_kv': 2, 'rope.dimension_count': 4, 'attention.kv_lora_rank': 8,
            'attention.key_length': 12, 'attention.value_length': 6},
            [('attn_q.weight', (w, 24)), ('attn_kv_a_mqa.weight', (w, 12)), ('attn_kv_a_norm.weight', (8,)), ('attn_kv_b.weight', (8, 28)),
             ('attn_output.weight', (12, w))] + network),
        'mamba2': of('mamba2', {
            'ssm.conv_kernel': 4, 'ssm.state_size': 4, 'ssm.group_count': 1, 'ssm.time_step_rank': 2, 'ssm.inner_size': 8},
            [('ssm_in.weight', (w, 26)), ('ssm_conv1d.weight', (4, 16)), ('ssm_a', (1, 2)), ('ssm_d', (1, 2)), ('ssm_dt.bias', (2,)),
             ('ssm_norm.weight', (8, 1)), ('ssm_out.weight', (8, w))]),
    }


def main():
    to = pathlib.Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    align64 = [key('general.alignment', U32, 64)]
    every_type = [(f't{kind}', kind, (values, 2)) for kind, (values, _) in BLOCKS.items()]
    model = gguf(*llama())
    seeds = {
        'empty': gguf([], []), 'version-2': gguf([], [], version=2), 'scalars': gguf(scalars(), []),
        'arrays': gguf(arrays(), []), 'types': gguf([], every_type),
        'aligned': gguf(align64, [('a', 0, (3,)), ('b', 1, (2, 2, 2, 2))], alignment=64),
        'llama': model, 'cut-in-keys': model[:200], 'cut-in-tensors': model[:1300],
        'cut-in-data': model[:-100], 'version-1': gguf([], [], version=1),
        'twice': gguf([key('k', U8, 1), key('k', U8, 2)], []),
        'many-keys': b'GGUF' + struct.pack('<IQQ', 3, 0, 2 ** 64 - 1),
        'many-tensors': b'GGUF' + struct.pack('<IQQ', 3, 2 ** 63, 0),
        'long-text': b'GGUF' + struct.pack('<IQQ', 3, 0, 1) + text('k') + struct.pack('<IQ', TEXT,
                                                                                     2 ** 64 - 1),
        'long-array': b'GGUF' + struct.pack('<IQQ', 3, 0, 1) + text('k') + struct.pack(
            '<IIQ', ARRAY, U64, 2 ** 61),
        'overlap': gguf([], [('a', 0, (8,)), ('b', 0, (8,))]).replace(
            struct.pack('<IQ', 0, 32), struct.pack('<IQ', 0, 0)),
    }
    seeds |= {name: gguf(*parts) for name, parts in further().items()}
    for name, content in seeds.items():
        (to / f'seed-{name}').write_bytes(content)


if __name__ == '__main__':
    main()
