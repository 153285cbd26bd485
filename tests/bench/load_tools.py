#!/usr/bin/env python3
"""Load tools that others wrote, unmodified and from PyPI, against parleyd's HTTP: guidellm, aiperf, locust. Each in an environment of
its own under build/clients, made once (minutes, gigabytes). What counts is that no request fails.

usage: load_tools.py BUILD_DIR MODEL.gguf [guidellm|aiperf|locust]…
"""
import json
import os
import struct
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402

FOLDER = "build/clients"
VERSIONS = {"guidellm": "guidellm==0.8.1", "aiperf": "aiperf==0.13.0", "locust": "locust==2.47.0"}
LOCUSTFILE = """
from locust import HttpUser, constant, task

class User(HttpUser):
    wait_time = constant(0)

    @task
    def chat(self):
        with self.client.post("/v1/chat/completions", json={"model": "echo", "messages": [{"role": "user", "content": "hi"}]},
                              catch_response=True) as answer:
            if answer.json()["choices"][0]["message"]["content"] != "hi":
                answer.failure("not what was said")

    @task
    def models(self):
        self.client.get("/v1/models")
"""


def gguf_metadata(path):
    numbers = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
    with open(path, "rb") as f:
        def number(code):
            return struct.unpack(code, f.read(struct.calcsize(code)))[0]

        def value(kind):
            if kind == 8:
                return f.read(number("<Q")).decode()
            if kind == 9:
                inner, n = number("<I"), number("<Q")
                return [value(inner) for _ in range(n)]
            return number(numbers[kind])

        assert f.read(4) == b"GGUF"
        number("<I")
        number("<Q")
        return {value(8): value(number("<I")) for _ in range(number("<Q"))}


def make_tokenizer(model):
    """The directory that these tools want for counting tokens, from the vocabulary in the model's file."""
    folder = os.path.abspath(f"{FOLDER}/tokenizer")
    os.makedirs(folder, exist_ok=True)
    facts = gguf_metadata(model)
    tokens, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, t in enumerate(tokens) if types[i] == 3]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "added_tokens": special,
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_]},
                   "decoder": bytes_,
                   "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": facts["tokenizer.ggml.merges"]}}, f)
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192, "eos_token": "<|im_end|>",
                   "bos_token": "<|im_start|>", "unk_token": "<|endoftext|>", "chat_template": facts["tokenizer.chat_template"]}, f)
    return folder


def environment(name):
    venv = os.path.abspath(f"{FOLDER}/{name}")
    if not os.path.exists(f"{venv}/bin/{name}"):
        print(f"installing {VERSIONS[name]}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([f"{venv}/bin/pip", "install", "--quiet", "--disable-pip-version-check", VERSIONS[name]], check=True)
    return f"{venv}/bin/{name}"


def run(command, **more):
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=FOLDER, **more)
    if said.returncode != 0:
        sys.exit(f"{command[0]} ended with {said.returncode}:\n{said.stdout[-2000:]}{said.stderr[-2000:]}")


def find(value, name):
    """The first value of that name, however deep."""
    if isinstance(value, dict) and name in value:
        return value[name]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return next((found for found in (find(v, name) for v in inner) if found is not None), None)


def answered(http):
    """Requests for the model that the daemon has answered."""
    with urllib.request.urlopen(f"http://{http}/metrics") as f:
        for line in f.read().decode().splitlines():
            if line.startswith('nv_inference_request_success{model="m"'):
                return int(line.split()[-1])
    return 0


def guidellm(http, model):
    program, tokenizer = environment("guidellm"), make_tokenizer(model)
    for backend, data, count in [("", "", 6), (",request_format=/v1/completions", "", 6), (",stream=false", ",turns=3", 9)]:
        out, before = os.path.abspath(f"{FOLDER}/guidellm.json"), answered(http)
        run([program, "run", "--backend", f"kind=openai_http,target=http://{http}{backend}", "--tokenizer",
             f"kind=huggingface_auto,model={tokenizer}", "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens=8{data}",
             "--profile", "kind=concurrent,streams=2", "--constraint", f"kind=max_requests,count={count}",
             "--output", f"kind=json,path={out}", "--disable-progress"],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"})
        with open(out, encoding="utf-8") as f:
            totals = find(json.load(f), "request_totals")
        # On a busy machine it may send one less than it was told to: so it is asked for what it sent.
        assert totals["successful"] == totals["total"] == answered(http) - before >= count - 1 and totals["errored"] == 0, totals
        print(f"guidellm{backend}{data}: {totals['successful']} requests, none failed", flush=True)


def aiperf(http, model):
    program, tokenizer = environment("aiperf"), make_tokenizer(model)
    several = ["--num-conversations", "3", "--conversation-turn-mean", "3", "--conversation-turn-stddev", "0",
               "--conversation-turn-delay-mean", "100"]
    for kind, more, count in [("chat", ["--request-count", "6"], 6), ("chat", several, 9), ("completions", ["--request-count", "6"], 6)]:
        out = os.path.abspath(f"{FOLDER}/aiperf.out")
        run([program, "profile", "-m", "m", "--url", f"http://{http}", "--tokenizer", tokenizer, "--endpoint-type", kind, "--streaming",
             "--concurrency", "2", "--isl", "32", "--osl", "8", "--ui", "none", "--artifact-dir", out, *more])
        with open(f"{out}/profile_export_aiperf.json", encoding="utf-8") as f:
            said = json.load(f)
        assert said["request_count"]["avg"] == count and said["error_summary"] == [], said
        print(f"aiperf {kind} {' '.join(more[:2])}: {count} requests, none failed", flush=True)


def locust(http, _):
    with open(f"{FOLDER}/locustfile.py", "w", encoding="utf-8") as f:
        f.write(LOCUSTFILE)
    # It ends with 1 when a request has failed.
    run([environment("locust"), "-f", "locustfile.py", "--headless", "-u", "20", "-r", "20", "-t", "5s", "--host", f"http://{http}"])
    print("locust: 20 users for 5 s, none failed", flush=True)


def main():
    build, model = (os.path.abspath(path) for path in sys.argv[1:3])
    tools = {"guidellm": guidellm, "aiperf": aiperf, "locust": locust}
    os.makedirs(FOLDER, exist_ok=True)
    with children.Daemon(f"{build}/parleyd", "--http", "127.0.0.1:0", "--model", f"m={model}") as parley:
        for name in sys.argv[3:] or tools:
            tools[name](parley.http, model)


if __name__ == "__main__":
    main()
