#!/usr/bin/env python3
"""A GGUF file's model as the folder that transformers and vLLM load: its weights in bf16, its tokenizer, its configuration.

usage: vllm_model.py MODEL.gguf FOLDER      (by vLLM's Python: vllm.sh makes one)
"""
import os
import sys

import torch
import transformers

path, folder = sys.argv[1:]
where = {"pretrained_model_name_or_path": os.path.dirname(path) or ".", "gguf_file": os.path.basename(path)}
in_full = transformers.GgufConfig(gguf_file=where["gguf_file"], dequantize=True)
transformers.AutoModelForCausalLM.from_pretrained(**where, quantization_config=in_full, dtype=torch.bfloat16).save_pretrained(folder)
transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
