#!/usr/bin/env python3
"""ik_llama.cpp, in process, as the leaderboard's peer: one request a line on stdin, its answer a line on stdout.

usage: ik_llama_peer.py MODEL.gguf N_THREADS N_CONTEXT      (by a Python that has ik-llama-cpp-python: ik_llama.sh makes one)
A load: {"seed", "n", "n_in", "n_out", "n_shared"}; n prompts of n_in tokens at once, the first n_shared of them the same in all, computed
once and copied to the others, n_out tokens of each reply, greedy, the end token ignored. All conversations are in each batch, as its own
server has them. {"text", "n_top"}: the likeliest next tokens behind a text, with their log-probabilities.
"""
import ctypes
import json
import random
import statistics
import sys
import time

import ik_llama_cpp._ctypes_api as api
import numpy as np

import words

N_BATCH, MAX_SEQUENCES = 2048, 64
copy_sequence = api._lib.llama_kv_cache_seq_cp
copy_sequence.argtypes, copy_sequence.restype = [ctypes.c_void_p, *[ctypes.c_int32] * 4], None
no_log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, arg: None)


class Peer:
    def __init__(self, path, n_threads, n_context):
        api._lib.llama_log_set(no_log, None)
        api.llama_backend_init()
        self.model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        assert self.model, path
        self.n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = n_context, N_BATCH, MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = n_threads
        params.flash_attn = False  # its assertion "S > 0" fails on batches of several conversations
        self.context = api.llama_init_from_model(self.model, params)
        assert self.context, f"no context of {n_context} tokens"
        self.batch = api.llama_batch_init(N_BATCH, 0, 1)

    def tokens(self, text):
        bytes_ = text.encode()
        ids = (ctypes.c_int32 * (len(bytes_) + 8))()
        n = api.llama_tokenize(self.model, bytes_, len(bytes_), ids, len(ids), False, False)
        assert n > 0, (n, text[:80])
        return ids[:n]

    def piece(self, token):
        room = ctypes.create_string_buffer(256)
        n = api.llama_token_to_piece(self.model, token, room, len(room), 0, True)
        return room.raw[: max(n, 0)].decode(errors="replace")

    def logits(self, row):
        return np.ctypeslib.as_array(api.llama_get_logits_ith(self.context, row), (self.n_vocab,))

    def compute(self, rows):
        """rows: (token, position, sequence, whether its logits are wanted). Yields (sequence, its logits, when they were there)."""
        for first in range(0, len(rows), N_BATCH):
            part = rows[first : first + N_BATCH]
            self.batch.n_tokens = len(part)
            for i, (token, position, sequence, is_wanted) in enumerate(part):
                self.batch.token[i], self.batch.pos[i], self.batch.n_seq_id[i], self.batch.logits[i] = token, position, 1, is_wanted
                self.batch.seq_id[i][0] = sequence
            failed = api.llama_decode(self.context, self.batch)
            assert failed == 0, f"llama_decode: {failed}"
            now = time.monotonic()
            for i, (_, _, sequence, is_wanted) in enumerate(part):
                if is_wanted:
                    yield sequence, self.logits(i), now

    def load(self, seed, n, n_in, n_out, n_shared=0):
        prompts = [self.tokens(text) for text in words.prompts(random.Random(seed), n, n_in, n_shared)]
        assert {len(prompt) for prompt in prompts} == {n_in}, "its tokenizer counts other tokens than were asked for"
        api.llama_kv_cache_clear(self.context)
        start = time.monotonic()
        if n_shared:
            list(self.compute([(token, at, 0, False) for at, token in enumerate(prompts[0][:n_shared])]))
            for sequence in range(1, n):
                copy_sequence(self.context, 0, sequence, 0, n_shared)
        rows = [(prompt[at], at, sequence, at == n_in - 1) for sequence, prompt in enumerate(prompts) for at in range(n_shared, n_in)]
        first = [(sequence, int(logits.argmax()), now - start) for sequence, logits, now in self.compute(rows)]
        last = [(sequence, token) for sequence, token, _ in first]
        for at in range(n_in, n_in + n_out - 1):
            last = [(sequence, int(logits.argmax())) for sequence, logits, _ in self.compute([(token, at, sequence, True) for sequence, token in last])]
        seconds = time.monotonic() - start
        return {"duration_s": seconds, "output_tok_s": n * n_out / seconds, "ttft_ms_p50": 1e3 * statistics.median(after for _, _, after in first)}

    def top(self, text, n_top):
        api.llama_kv_cache_clear(self.context)
        ids = self.tokens(text)
        ((_, logits, _),) = self.compute([(token, at, 0, at == len(ids) - 1) for at, token in enumerate(ids)])
        logprobs = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64))
        return {self.piece(int(token)): float(logprobs[token]) for token in np.argsort(-logits)[:n_top]}


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(peer.top(**request) if "text" in request else peer.load(**request)), flush=True)


main()
