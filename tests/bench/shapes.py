#!/usr/bin/env python3
"""Makes a file of random weights with the shape of a model that people use, in a type that they use: for measurements, where neither
speed nor memory depends on what the weights are. llama.cpp loads it too, so that all servers have the same file. The tokenizer is
MODEL's, with more tokens where the shape has a larger vocabulary. Which tensors get which type is llama-quantize's choice without an
importance matrix; MXFP4, which that gives to experts alone, is here for all matrices of the layers.

usage: shapes.py MODEL.gguf SHAPE TYPE [FOLDER]   prints the file's path; one that is there already is not made again
       SHAPE: 135M (SmolLM2), 135M-long (its context is 131,072), 1B (Llama 3.2), 8B (Llama 3.1), 0.8B (Qwen3.5, three of four layers with a
              recurrent state); of no model: 3M, where only the vocabulary matters, and 3M-state, likewise with a state
       TYPE: Q4_0, Q4_1, Q8_0, Q4_K_M, Q5_K_M, IQ4_XS, MXFP4, BF16
"""
import math
import os
import sys
import typing

import gguf
import numpy as np

T = gguf.GGMLQuantizationType


class State(typing.NamedTuple):
    """Of a gated delta net, in all layers but the last of each four."""

    key_heads: int
    heads: int
    width: int  # of a key and of a value
    taps: int


class Shape(typing.NamedTuple):
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    is_tied: bool
    rope_base: float
    state: State | None = None
    context: int = 8192

    def has_state(self, layer):
        return self.state is not None and (layer + 1) % ATTENTION_INTERVAL != 0


ATTENTION_INTERVAL = 4
ROTATED_SHARE = 4  # of a head's numbers, in models with a state
SHAPES = {
    "3M": Shape(2, 64, 256, 2, 1, 32, 49152, True, 100000.0),
    "3M-state": Shape(4, 64, 256, 2, 1, 32, 49152, True, 100000.0, State(2, 2, 32, 4)),
    "135M": Shape(30, 576, 1536, 9, 3, 64, 49152, True, 100000.0),
    "135M-long": Shape(30, 576, 1536, 9, 3, 64, 49152, True, 100000.0, context=131072),
    "0.8B": Shape(24, 1024, 3584, 8, 2, 256, 248320, True, 10000000.0, State(16, 16, 128, 4)),
    "1B": Shape(16, 2048, 8192, 32, 8, 64, 128256, True, 500000.0),
    "8B": Shape(32, 4096, 14336, 32, 8, 128, 128256, False, 500000.0),
}

# By the file's type: of most matrices; of those with more bits in some layers (values, and down projections); of the head.
MIXES = {
    "Q4_0": (T.Q4_0, T.Q4_0, T.Q6_K),
    "Q4_1": (T.Q4_1, T.Q4_1, T.Q6_K),
    "Q8_0": (T.Q8_0, T.Q8_0, T.Q8_0),
    "Q4_K_M": (T.Q4_K, T.Q6_K, T.Q6_K),
    "Q5_K_M": (T.Q5_K, T.Q6_K, T.Q6_K),
    "IQ4_XS": (T.IQ4_XS, T.Q5_K, T.Q6_K),
    "MXFP4": (T.MXFP4, T.MXFP4, T.Q8_0),
    "BF16": (T.BF16, T.BF16, T.BF16),
}

# For rows that are no multiple of 256.
IN_BLOCKS_OF_32 = {T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0, T.IQ4_XS: T.IQ4_NL}

N_BLOCKS = 65521  # drawn for each type; a prime, so that no two rows begin alike


def f16(values):
    return values.astype("<f2").reshape(-1, 1).view(np.uint8)


def k_scales(rng, n):
    """Twelve bytes that hold eight scales from 32 to 63, and mins of the same number."""
    s = rng.integers(32, 64, (n, 8), dtype=np.uint8)
    low, high = s[:, :4], s[:, 4:]
    first = low | (high >> 4) << 6
    return np.hstack([first, first, (high & 15) | (high & 15) << 4])


def draw_blocks(rng, kind, n_cols):
    """[N_BLOCKS][bytes of a block], of numbers about as large as a layer's: 1 / sqrt(inputs), none on average."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (N_BLOCKS, size), dtype=np.uint8)
    unit = rng.uniform(0.7, 1.3, N_BLOCKS) / math.sqrt(n_cols)
    signed = unit * rng.choice([-1.0, 1.0], N_BLOCKS)
    if kind in (T.Q4_0, T.Q5_0, T.Q8_0, T.IQ4_NL):
        blocks[:, :2] = f16(signed / {T.Q4_0: 4.6, T.Q5_0: 9.2, T.Q8_0: 74, T.IQ4_NL: 70}[kind])
    elif kind in (T.Q4_1, T.Q5_1):
        largest = 15 if kind == T.Q4_1 else 31
        blocks[:, :2] = f16(unit / largest * 3.3)
        blocks[:, 2:4] = f16(unit / -2 * 3.3)
    elif kind in (T.Q4_K, T.Q5_K):
        largest = 15 if kind == T.Q4_K else 31
        blocks[:, :2] = f16(unit / 48 / largest * 3.3)
        blocks[:, 2:4] = f16(unit / 48 / 2 * 3.3)
        blocks[:, 4:16] = k_scales(rng, N_BLOCKS)
    elif kind == T.Q6_K:
        blocks[:, 208:] = f16(signed / 18.5 / 74)
    elif kind == T.IQ4_XS:
        blocks[:, :2] = f16(signed / 70 / 18)
    elif kind == T.MXFP4:
        blocks[:, 0] = round(128 - math.log2(6.2 * math.sqrt(n_cols)))
    elif kind == T.BF16:
        blocks = (rng.standard_normal(N_BLOCKS) / math.sqrt(n_cols)).astype("<f4").view("<u2")[1::2].copy().view(np.uint8).reshape(-1, 2)
    else:
        raise ValueError(kind)
    return blocks


def attention_matrices(s, most, values):
    gates = 2 if s.state else 1  # of each head's output
    yield "attn_q", gates * s.heads * s.head_dim, s.width, most
    yield "attn_k", s.kv_heads * s.head_dim, s.width, most
    yield "attn_v", s.kv_heads * s.head_dim, s.width, values
    yield "attn_output", s.width, s.heads * s.head_dim, most


def state_matrices(s, most):
    inner = s.state.heads * s.state.width
    yield "attn_qkv", state_channels(s), s.width, most
    yield "attn_gate", inner, s.width, most
    yield "ssm_beta", s.state.heads, s.width, most
    yield "ssm_alpha", s.state.heads, s.width, most
    yield "ssm_out", s.width, inner, most


def state_channels(s):
    return (2 * s.state.key_heads + s.state.heads) * s.state.width


def vectors_of(s, rng):
    """(name, values) of all that is no matrix of weights."""
    second = "post_attention_norm" if s.state else "ffn_norm"
    yield "output_norm.weight", np.ones(s.width)
    for layer in range(s.layers):
        b = f"blk.{layer}."
        yield f"{b}attn_norm.weight", np.ones(s.width)
        yield f"{b}{second}.weight", np.ones(s.width)
        if s.has_state(layer):
            yield f"{b}ssm_conv1d.weight", rng.standard_normal((state_channels(s), s.state.taps)) / s.state.taps**0.5
            yield f"{b}ssm_a", -rng.uniform(1, 16, s.state.heads)
            yield f"{b}ssm_dt.bias", rng.uniform(-6, -2, s.state.heads)
            yield f"{b}ssm_norm.weight", np.ones(s.state.width)
        elif s.state:
            yield f"{b}attn_q_norm.weight", np.ones(s.head_dim)
            yield f"{b}attn_k_norm.weight", np.ones(s.head_dim)


def matrices_of(s, mix):
    """(name, rows, columns, type) of each matrix in the file's order."""
    most, more, head = MIXES[mix]

    def has_more_bits(layer):
        if mix == "IQ4_XS":
            return layer < s.layers // 8
        return layer < s.layers // 8 or layer >= 7 * s.layers // 8 or (layer - s.layers // 8) % 3 == 2

    yield "token_embd.weight", s.vocab, s.width, head if s.is_tied else most
    for layer in range(s.layers):
        kind = more if has_more_bits(layer) else most
        values = more if mix == "IQ4_XS" and s.heads >= 4 * s.kv_heads else kind
        mixer = state_matrices(s, most) if s.has_state(layer) else attention_matrices(s, most, values)
        for name, rows, columns, of in (
            *mixer,
            ("ffn_gate", s.ffn, s.width, most),
            ("ffn_up", s.ffn, s.width, most),
            ("ffn_down", s.width, s.ffn, kind),
        ):
            yield f"blk.{layer}.{name}.weight", rows, columns, of
    if not s.is_tied:
        yield "output.weight", s.vocab, s.width, head


def add_tokenizer(writer, model, n_vocab):
    for name, field in gguf.GGUFReader(model).fields.items():
        if not name.startswith("tokenizer."):
            continue
        value, kinds = field.contents(), field.types
        if name == "tokenizer.ggml.tokens":
            value = value + [f"Ġmore{i}" for i in range(len(value), n_vocab)]
        elif name in ("tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
            value = value + [1] * (n_vocab - len(value))
        writer.add_key_value(name, value, kinds[0], sub_type=kinds[1] if len(kinds) > 1 else None)


def write(path, model, s, mix):
    rng = np.random.default_rng(1)
    arch = "qwen35" if s.state else "llama"
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"random weights, {os.path.basename(path)}")
    writer.add_block_count(s.layers)
    writer.add_context_length(s.context)
    writer.add_embedding_length(s.width)
    writer.add_feed_forward_length(s.ffn)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_rope_dimension_count(s.head_dim // ROTATED_SHARE if s.state else s.head_dim)
    writer.add_rope_freq_base(s.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(s.vocab)
    if s.state:
        pairs = s.head_dim // ROTATED_SHARE // 2
        writer.add_array(f"{arch}.rope.dimension_sections", [pairs - pairs // 3 * 2, pairs // 3, pairs // 3, 0])  # text needs their sum alone
        writer.add_uint32(f"{arch}.full_attention_interval", ATTENTION_INTERVAL)
        for key, value in (
            ("conv_kernel", s.state.taps),
            ("state_size", s.state.width),
            ("group_count", s.state.key_heads),
            ("time_step_rank", s.state.heads),
            ("inner_size", s.state.heads * s.state.width),
        ):
            writer.add_uint32(f"{arch}.ssm.{key}", value)
    add_tokenizer(writer, model, s.vocab)

    matrices = []
    for name, rows, columns, kind in matrices_of(s, mix):
        if columns % gguf.GGML_QUANT_SIZES[kind][0] != 0:
            kind = IN_BLOCKS_OF_32[kind]
        matrices.append((name, rows, columns, kind))
        values, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor_info(name, [rows, columns], np.dtype(np.float32), rows * columns // values * size, raw_dtype=kind)
    vectors = [(name, values.astype(np.float32)) for name, values in vectors_of(s, rng)]
    for name, values in vectors:
        writer.add_tensor_info(name, values.shape, values.dtype, values.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()

    drawn = {}
    for _, rows, columns, kind in matrices:
        if (kind, columns) not in drawn:
            drawn[kind, columns] = draw_blocks(rng, kind, columns)
        blocks = np.roll(drawn[kind, columns], rng.integers(N_BLOCKS), axis=0)
        values, size = gguf.GGML_QUANT_SIZES[kind]
        writer.write_tensor_data(np.resize(blocks, (rows * columns // values, size)))
    for _, values in vectors:
        writer.write_tensor_data(values)
    writer.close()


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[2] not in SHAPES or sys.argv[3] not in MIXES:
        sys.exit(__doc__.split("\n\n")[1].strip())
    model, shape, mix = sys.argv[1:4]
    folder = sys.argv[4] if len(sys.argv) == 5 else "build/shapes"
    path = os.path.join(folder, f"{shape}.{mix}.gguf")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        write(f"{path}.part", model, SHAPES[shape], mix)
        os.rename(f"{path}.part", path)
    print(path)


if __name__ == "__main__":
    main()
