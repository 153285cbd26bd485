#!/usr/bin/env python3
"""OpenVINO GenAI, in process, as compare.py's peer: one load a line on stdin, its figures a line on stdout.

usage: openvino_peer.py MODEL.gguf [--prefix-cache]      (by a Python that has openvino-genai: openvino.sh makes one)
A load: {"seed", "n", "n_in", "n_out", "n_shared"}; n prompts of n_in tokens at once, the first n_shared of them (none) the same in all,
n_out tokens of each reply, greedy, the end token ignored, no prefix cache unless it is asked for. The scheduling group of 32 is the weights' own: coarser ones change the replies.
"""
import json
import random
import sys
import time

import openvino_genai as genai

import words


def run(pipe, config, load):
    prompts = words.prompts(random.Random(load["seed"]), load["n"], load["n_in"], load.get("n_shared", 0))
    config.max_new_tokens = load["n_out"]
    start = time.monotonic()
    metrics = pipe.generate(prompts, config).perf_metrics
    seconds = time.monotonic() - start
    wanted = (load["n"] * load["n_in"], load["n"] * load["n_out"])
    counted = (metrics.get_num_input_tokens(), metrics.get_num_generated_tokens())
    if counted not in (wanted, (load["n_in"], wanted[1])):  # some versions count one prompt of a batch
        raise SystemExit(f"wanted {wanted} tokens in and out, it counts {counted}")
    return {"duration_s": seconds, "output_tok_s": wanted[1] / seconds, "ttft_ms_p50": metrics.get_ttft().mean}


def main():
    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching, scheduler.cache_size, scheduler.max_num_seqs = "--prefix-cache" in sys.argv, 2, 64
    pipe = genai.LLMPipeline(sys.argv[1], "CPU", scheduler_config=scheduler, DYNAMIC_QUANTIZATION_GROUP_SIZE=32, KV_CACHE_PRECISION="f16")
    config = genai.GenerationConfig()
    config.ignore_eos, config.apply_chat_template = True, False
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(pipe, config, json.loads(line))), flush=True)


main()
