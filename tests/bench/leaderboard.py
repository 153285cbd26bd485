#!/usr/bin/env python3
"""Parley and other servers of language models on this machine, interleaved: each load is put on one after the other, and whoever has
none stands still, so that what else the machine does meets all. One table in Markdown and one in HTML, with the machine, the versions
and the commands.

usage: leaderboard.py BUILD_DIR MODEL.gguf PEER… [--rows ROW,…] [--rounds N] [--files FILE,…] [--reference FILE] [--out FOLDER]
       a PEER: llama-server[:SLOTS][=FILE.gguf]   openvino[=FILE.gguf]   vllm[=FOLDER]   ik-llama[=FILE.gguf]   parley:undrafted
               SLOTS: a number (64), `own` (what it chooses itself), `each` (as many as the row has conversations)
       a FILE: MODEL (as it is), a type (MODEL, requantised by llama.cpp: Q4_0), SHAPE:TYPE (random weights, by shapes.py: 1B:Q4_K_M), or a path

Each peer is installed by its script when it is named (llama_server.sh, openvino.sh, vllm.sh, ik_llama.sh). For each of the files there is a table, and
all servers load that file, unless one is named with the peer: llama-server, ik_llama.cpp and Parley as it is; OpenVINO made Q8_0 by llama.cpp, since
its import of Q4_1 loses SmolLM2; vLLM in bf16, as a folder that transformers writes. Each has its prefix cache. The words of a load are
new to it, but for the row `shared`, where 64 prompts begin with the same 512 tokens. parley:undrafted is Parley without guesses at next
tokens. Servers that do not fit into memory together are started for each load.

Equal quality is shown, not assumed: KL is the mean divergence of each server's next token from that of the reference, MODEL in plain C
(--backend ref) unless --reference names a file of it in F16 or F32, over its twenty likeliest tokens and the rest, behind the beginnings
of a text. OpenVINO, in process, says no probabilities: its cell is empty. Random weights have no row of it.
"""
import argparse
import html
import json
import math
import os
import platform
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

import compare
import loads

import children  # the path that loads sets

HERE = os.path.dirname(os.path.abspath(__file__))
N_THREADS = len(os.sched_getaffinity(0))
PATIENCE_S = 600
N_TOP = 20
TEXT = (
    "The river begins in the mountains and runs through three countries before it reaches the sea. In spring, when the snow melts, the water is high "
    "and brown, and the ferries do not run. People who live on its banks have learned to build their houses on stone, and to keep a boat in the garden. "
    "Every few years the river takes a bridge, and every time the towns decide to build it again, a little higher than before."
).split()
BEGINNINGS = [" ".join(TEXT[:n]) for n in range(4, len(TEXT), 4)]


# What is measured: the load (conversations at once, tokens in, tokens out, tokens that all prompts begin with) and the figure that is shown.
ROWS = {
    "1": ("1 conversation, 64/64, tok/s", (1, 64, 64), lambda f: f["output_tok_s"], True),
    "8": ("8 conversations, 64/64, tok/s", (8, 64, 64), lambda f: f["output_tok_s"], True),
    "64": ("64 conversations, 64/64, tok/s", (64, 64, 64), lambda f: f["output_tok_s"], True),
    "prefill": ("prompt of 512, tok/s", (1, 512, 1), compare.prefill_rate, True),
    "long": ("64 × 1,024/64, s", (64, 1024, 64), lambda f: f["duration_s"], False),
    "shared": ("64 × 576/64, 512 of them shared, s", (64, 576, 64, 512), lambda f: f["duration_s"], False),
}


def said_by(*command):
    """The first line of what a command says of itself; "" where it says nothing."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return next((line.strip() for line in done.stdout.splitlines() if "version" in line or line[:1].isdigit()), done.stdout.strip().split("\n")[0])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def top_logprobs(url, model, prompt):
    """{token's text: log-probability} of the next token, by /v1/completions."""
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": N_TOP}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        said = json.load(answer)["choices"][0]["logprobs"]
    if said.get("top_logprobs"):
        return said["top_logprobs"][0]
    return {one["token"]: one["logprob"] for one in said["content"][0]["top_logprobs"]}


def divergence(of, reference):
    """KL of the reference's distribution from the other one. What one of them does not list has at most the least of those that it lists."""
    kl = rest_p = 0.0
    rest_q = 1 - sum(math.exp(q) for q in of.values())
    floor = min(of.values())
    listed = 0.0
    for token, p in reference.items():
        q = of.get(token, floor)
        kl += math.exp(p) * (p - q)
        listed += math.exp(p)
    rest_p = max(1 - listed, 1e-6)
    return max(0.0, kl + rest_p * math.log(rest_p / max(rest_q, 1e-6)))


class Competitor:
    """One that is loaded: its name, version and command, and a process that stands still between loads, or is started for each."""

    http = None  # where its OpenAI API is
    model_name = "model"
    version = command = ""
    process = None
    stays = True  # between loads

    def start(self, n):
        """Starts it, for n conversations at once, and returns when it is ready."""
        raise NotImplementedError

    def fits(self, n):
        """Whether the running one is meant for loads of n."""
        return True

    def begin(self, n):
        if self.process is not None and not self.fits(n):
            self.close()
        if self.process is None:
            self.start(n)
            self.load(0, 1, 64, 8)  # each has been asked once before
        else:
            os.killpg(self.process.pid, signal.SIGCONT)

    def end(self):
        if self.stays:
            os.killpg(self.process.pid, signal.SIGSTOP)
        else:
            self.close()

    def load(self, seed, n, n_in, n_out, n_shared=0):
        options = ["--concurrency", n, "--requests", n, "--input-tokens", n_in, "--output-tokens", n_out, "--seed", seed]
        options += ["--shared-prefix", n_shared] if n_shared else []
        figures = loads.bench(self.build, self.url, *options)
        if isinstance(self, Parley) and figures["cached_tokens"] and not n_shared:
            raise SystemExit(f"{figures['cached_tokens']} tokens were cached: a peer that caches none would look slower than it is")
        if figures["failed"]:
            print(f"{self.name}: {figures['failed']} of {n} failed: {figures.get('first_error')}", file=sys.stderr)
        return figures

    def quality(self):
        return None if self.http is None else [top_logprobs(self.http, self.model_name, text) for text in BEGINNINGS]

    def start_server(self, command, environment=None):
        self.command = shlex.join(map(str, command))
        self.process = children.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)

    def wait_until_ready(self, path):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.http}{path}", timeout=5):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{self.name} is not ready: {self.command}")
                time.sleep(0.2)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


class Parley(Competitor):
    name = "Parley"

    def __init__(self, build, model, *flags):
        self.build, self.model, self.flags = build, model, flags
        self.version = said_by(f"{build}/parleyd", "--version")

    def start(self, n):
        grpc, http = free_port(), free_port()
        self.url, self.http = f"parley://127.0.0.1:{grpc}", f"http://127.0.0.1:{http}"
        self.start_server([f"{self.build}/parleyd", "--listen", f"127.0.0.1:{grpc}", "--http", f"127.0.0.1:{http}", "--model", f"model={self.model}", "--log-level", "error", *self.flags])
        self.wait_until_ready("/health")


class Undrafted(Parley):
    name = "Parley, no drafts"

    def __init__(self, build, model, slots, most):
        super().__init__(build, model, "--speculate", "off")


def llama_cpp():
    """The folder of llama.cpp's programs, and what they are to be started with."""
    folder = subprocess.run([f"{HERE}/llama_server.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return folder, os.environ | {"LD_LIBRARY_PATH": folder}


def requantised(model, kind):
    """A file of the model in another type, made once."""
    home = os.path.join(os.environ.get("PEERS_HOME", os.path.expanduser("~/.cache/peers")), "models")
    path = os.path.join(home, f"{os.path.basename(model).removesuffix('.gguf')}.{kind}.gguf")
    if not os.path.exists(path):
        os.makedirs(home, exist_ok=True)
        folder, environment = llama_cpp()
        subprocess.run([f"{folder}/llama-quantize", "--allow-requantize", model, f"{path}.part", kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        os.rename(f"{path}.part", path)
    return path


def file_of(model, name):
    """The path of what --files names, and whether its weights are random."""
    if name == "MODEL" or os.path.exists(name):
        return model if name == "MODEL" else name, False
    if ":" not in name:
        return requantised(model, name), False
    return subprocess.run([sys.executable, f"{HERE}/shapes.py", model, *name.split(":", 1)], check=True, stdout=subprocess.PIPE, text=True).stdout.strip(), True


class LlamaServer(Competitor):
    def __init__(self, build, model, slots, most):
        self.build, self.model, self.slots, self.most = build, model, slots or "64", most
        self.name = f"llama-server, {self.slots} slots"
        self.folder, self.environment = llama_cpp()
        done = subprocess.run([f"{self.folder}/llama-server", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment)
        self.version = next(line for line in done.stdout.splitlines() if "version" in line).strip()

    def fits(self, n):
        return self.slots != "each" or n == self.n_slots

    def start(self, n):
        port = free_port()
        self.url = self.http = f"http://127.0.0.1:{port}"
        self.n_slots = {"each": n, "own": 4}.get(self.slots) or int(self.slots)
        slots = [] if self.slots == "own" else ["-np", self.n_slots]
        # Its context is shared out among its slots: each has room for the longest conversation of the rows.
        command = [f"{self.folder}/llama-server", "-m", self.model, "--host", "127.0.0.1", "--port", port, "-t", N_THREADS, *slots, "-c", self.n_slots * self.most]
        self.start_server(command, self.environment)
        self.wait_until_ready("/health")


class Vllm(Competitor):
    name = "vLLM, CPU"

    def __init__(self, build, model, slots, most):
        is_folder = os.path.isdir(model)
        said = subprocess.run([f"{HERE}/vllm.sh", *([] if is_folder else [model])], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
        self.build, self.python, self.model = build, said[0], model if is_folder else said[1]
        self.version = said_by(self.python, "-c", "import vllm; print(vllm.__version__)")

    def start(self, n):
        port = free_port()
        self.url = self.http = f"http://127.0.0.1:{port}"
        serve = [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, "--served-model-name", "model", "--host", "127.0.0.1", "--port", port]
        self.start_server([*serve, "--max-model-len", 2048, "--max-num-seqs", 64, "--gpu-memory-utilization", 0.5], os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "4"})
        self.wait_until_ready("/health")


class InProcess(Competitor):
    """One without a server, in a process that stops itself between loads."""

    peer = None

    def start_peer(self):
        """Returns its compare.Process."""
        raise NotImplementedError

    def begin(self, n):
        if self.peer is None:
            self.peer = self.start_peer()
            self.load(0, 1, 64, 8)

    def load(self, *load):
        return self.peer.load(*load)

    def end(self):
        if not self.stays:
            self.close()

    def close(self):
        if self.peer is not None:
            self.peer.close()
            self.peer = None


class OpenVino(InProcess):
    name = "OpenVINO GenAI"

    def __init__(self, build, model, slots, most):
        os.environ["OPENVINO_PYTHON"] = python = subprocess.run([f"{HERE}/openvino.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.version = said_by(python, "-c", "import openvino_genai; print(openvino_genai.__version__)")
        self.command = f"openvino_peer.py {model} --prefix-cache"
        self.model = model

    def start_peer(self):
        return compare.OpenVino(self.model, "--prefix-cache")


class IkLlama(InProcess):
    name = "ik_llama.cpp"

    def __init__(self, build, model, slots, most):
        python = subprocess.run([f"{HERE}/ik_llama.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.version = said_by(python, "-c", "import importlib.metadata as m; print(m.version('ik-llama-cpp-python'))")
        self.arguments = [python, f"{HERE}/ik_llama_peer.py", model, N_THREADS, 64 * most]  # a context for 64 of the longest conversations
        self.command = shlex.join(map(str, ["ik_llama_peer.py", *self.arguments[2:]]))

    def start_peer(self):
        return compare.Process(self.name, *self.arguments)

    def quality(self):
        return [self.peer.ask(text=text, n_top=N_TOP) for text in BEGINNINGS]


PEERS = {"llama-server": LlamaServer, "openvino": OpenVino, "ik-llama": IkLlama, "vllm": Vllm, "parley": Undrafted}


def measure(competitors, rows, n_rounds):
    """{(row, competitor): figures}; a round begins with another one each time."""
    found = {(row, one): [] for row in rows for one in competitors}
    for row in rows:
        _, load, read, _ = ROWS[row]
        for i in range(n_rounds):
            seed = next(compare.SEEDS)
            turn = i % len(competitors)
            for one in competitors[turn:] + competitors[:turn]:
                loads.progress(f"row {row}, round {i + 1} of {n_rounds}: {one.name}")
                one.begin(load[0])
                figure = read(one.load(seed, *load))
                one.end()
                if figure:
                    found[row, one].append(figure)
    loads.progress("")
    return found


def qualities(build, competitors, reference):
    """The mean divergence of each, None of one that does not say."""
    said = {}
    for one in competitors:
        one.begin(1)
        said[one] = one.quality()
        one.end()
    definition = Parley(build, reference, "--backend", "ref")
    try:
        definition.start(1)
        wanted = definition.quality()
    finally:
        definition.close()
    return {one: None if said[one] is None else statistics.mean(map(divergence, said[one], wanted)) for one in competitors}


def cell(figures, ours, more_is_better, is_first):
    if not figures:
        return "–"
    median = statistics.median(figures)
    text = f"{median:,.1f} ({min(figures):,.1f}–{max(figures):,.1f})"
    if is_first or not ours:
        return text
    ratio = statistics.median(ours) / median
    return f"{text}, {ratio if more_is_better else 1 / ratio:.2f}\u00a0×"


def table_of(competitors, rows, found, kl):
    """Lines of cells, the head first."""
    lines = [["", *(one.name for one in competitors)]]
    for row in rows:
        title, _, _, more = ROWS[row]
        ours = found[row, competitors[0]]
        lines.append([title, *(cell(found[row, one], ours, more, i == 0) for i, one in enumerate(competitors))])
    if kl is not None:
        lines.append(["KL from the reference, nats", *("–" if kl[one] is None else f"{kl[one]:.4f}" for one in competitors)])
    return lines


def about_machine(model, reference, n_rounds):
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    yield f"{names[0] if names else platform.processor()}, {N_THREADS} processors, {platform.system()} {platform.release()}, {time.strftime('%Y-%m-%d', time.gmtime())}."
    yield f"Medians of {n_rounds} interleaved rounds (least–most); × is Parley's figure over this one, above 1 where Parley is the better."
    yield "The words of each prompt are new to every cache, except for tokens that a row calls shared: 64 prompts begin with them. All servers keep prefix caches."
    yield f"KL: of {os.path.basename(model)} the reference is {os.path.basename(reference)} by --backend ref, of other files these themselves."


def about(competitors):
    for one in competitors:
        yield f"{one.name}: {one.version}; {one.command}"


def write(folder, tables, notes):
    """tables: (the file's name, lines of cells, notes on them)."""
    os.makedirs(folder, exist_ok=True)
    text, sections = ["# Leaderboard", ""], []
    for title, lines, own_notes in tables:
        text += [f"## {title}", "", "| " + " | ".join(lines[0]) + " |", "|" + "---|" * len(lines[0])]
        text += ["| " + " | ".join(line) + " |" for line in lines[1:]] + [""] + [f"- {note}" for note in own_notes] + [""]
        rows = "".join(f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in line)}</tr>\n" for line, tag in zip(lines, ["th"] + ["td"] * len(lines)))
        sections.append(f"<h2>{html.escape(title)}</h2>\n<table>\n{rows}</table>\n<ul>{''.join(f'<li>{html.escape(n)}</li>' for n in own_notes)}</ul>\n")
    text += [f"- {note}" for note in notes]
    with open(os.path.join(folder, "leaderboard.md"), "w") as file:
        file.write("\n".join(text) + "\n")
    with open(os.path.join(folder, "leaderboard.html"), "w") as file:
        file.write(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Leaderboard</title>\n'
            "<style>:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;"
            "font-variant-numeric:tabular-nums}th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #8884}th:first-child,td:first-child,li{text-align:left}"
            f"li{{overflow-wrap:anywhere}}</style></head><body>\n<h1>Leaderboard</h1>\n{''.join(sections)}<ul>{''.join(f'<li>{html.escape(n)}</li>' for n in notes)}</ul>\n</body></html>\n"
        )
    print("\n".join(text))


def fit_together(competitors, file):
    """Whether the memory that is free holds all of them, each with the file's weights and as much again for what it computes with."""
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return 2 * len(competitors) * os.path.getsize(file) < 1024 * free


def is_variant(kind, name):
    if kind == "llama-server":
        return name in ("", "own", "each") or name.isdigit() and int(name) > 0
    return name == ("undrafted" if kind == "parley" else "")


def measure_file(args, rows, name):
    """The table of one file: its name, lines, notes."""
    file, is_random = file_of(args.model, name)
    most = max(sum(ROWS[row][1][1:3]) for row in rows) + 128  # tokens of a conversation; a template's are among them
    competitors = [Parley(args.build, file)]
    try:
        for peer in args.peers:
            spec, _, own = peer.partition("=")
            kind, _, slots = spec.partition(":")
            competitors.append(PEERS[kind](args.build, own or (requantised(file, "Q8_0") if kind == "openvino" else file), slots, most))
        stays = fit_together(competitors, file)
        for one in competitors:
            one.stays = stays
        found = measure(competitors, rows, args.rounds)
        kl = None if is_random else qualities(args.build, competitors, args.reference if name == "MODEL" and args.reference else file)
        return os.path.basename(file), table_of(competitors, rows, found, kl), list(about(competitors))
    finally:
        for one in competitors:
            one.close()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("peers", nargs="+")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", default="MODEL")
    parser.add_argument("--reference")
    parser.add_argument("--out", default="build/leaderboard")
    args = parser.parse_args()
    rows = args.rows.split(",")
    if unknown := [row for row in rows if row not in ROWS]:
        parser.error(f"there is no row '{unknown[0]}'; there are {','.join(ROWS)}")
    for peer in args.peers:
        kind, _, slots = peer.partition("=")[0].partition(":")
        if kind not in PEERS or not is_variant(kind, slots):
            parser.error(f"there is no peer '{peer}'; there are llama-server[:SLOTS], openvino, vllm, ik-llama, parley:undrafted")
    tables = [measure_file(args, rows, name) for name in args.files.split(",")]
    write(args.out, tables, list(about_machine(args.model, args.reference or args.model, args.rounds)))


if __name__ == "__main__":
    main()
