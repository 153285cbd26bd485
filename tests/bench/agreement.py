#!/usr/bin/env python3
"""parley bench beside NVIDIA's perf_analyzer (KServe v2) and guidellm (OpenAI's API), each against the same stub server, whose
delays are scripted, at a low rate, where no client is the bottleneck. Exit 3 when figures differ by more than 5 %.

usage: agreement.py BUILD_DIR MODEL [kserve|openai]…      (MODEL is not used; by build/venv's Python)
perf_analyzer.sh fetches the one; guidellm (about 2 GB, PyTorch among it) is installed into GUIDELLM's folder, build/guidellm by default,
when it is asked for: without a word kserve alone is measured. Where other programs use the processors too, run it under chrt -r 1.

The throughput of two at once is compared with what follows from perf_analyzer's latencies (two over their mean): what it reports itself is
over a window that lasts longer than its requests, by up to 11 %.
"""
import asyncio
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 0.05
SECONDS, RATE = 15, 10
# A reply takes so long, one after another in turn; no common divisor with what a client may send at once.
INFER_MS = [120, 120, 140, 160, 200, 300, 120]
FIRST_MS = [200, 200, 220, 250, 300, 400, 200]  # until the first token
TOKEN_MS, N_TOKENS = 50, 9


def show(name, ours, theirs):
    ratio = ours / theirs
    is_good = abs(ratio - 1) <= LIMIT
    print(f"  {name:24} {ours:9.2f} {theirs:9.2f} {ratio:6.3f}{'' if is_good else '  differs'}")
    return is_good


def parley(build, url, *options):
    command = [f"{build}/parley", "bench", url, "--json", *map(str, options)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


# --- KServe ---


def serve_kserve():
    """The address of a model "stub" of one text, which answers after INFER_MS."""
    import grpc
    from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

    class Stub(service_pb2_grpc.GRPCInferenceServiceServicer):
        n, lock = 0, threading.Lock()

        def ServerLive(self, request, context):
            return service_pb2.ServerLiveResponse(live=True)

        def ServerReady(self, request, context):
            return service_pb2.ServerReadyResponse(ready=True)

        def ModelReady(self, request, context):
            return service_pb2.ModelReadyResponse(ready=True)

        def ServerMetadata(self, request, context):
            return service_pb2.ServerMetadataResponse(name="stub", version="1")

        def ModelMetadata(self, request, context):
            tensor = service_pb2.ModelMetadataResponse.TensorMetadata
            return service_pb2.ModelMetadataResponse(
                name="stub", versions=["1"], platform="stub", inputs=[tensor(name="x", datatype="FP32", shape=[4])], outputs=[tensor(name="y", datatype="FP32", shape=[1])]
            )

        def ModelConfig(self, request, context):
            config = model_config_pb2.ModelConfig(name="stub", platform="stub", max_batch_size=0)
            config.input.add(name="x", data_type=model_config_pb2.TYPE_FP32, dims=[4])
            config.output.add(name="y", data_type=model_config_pb2.TYPE_FP32, dims=[1])
            return service_pb2.ModelConfigResponse(config=config)

        def ModelStatistics(self, request, context):
            answer = service_pb2.ModelStatisticsResponse()
            one = answer.model_stats.add(name="stub", version="1", inference_count=self.n, execution_count=self.n)
            one.inference_stats.success.count = self.n
            return answer

        def ModelInfer(self, request, context):
            with self.lock:
                delay_ms = INFER_MS[self.n % len(INFER_MS)]
                Stub.n += 1
            time.sleep(delay_ms / 1e3)
            answer = service_pb2.ModelInferResponse(model_name="stub", model_version="1", id=request.id)
            answer.outputs.add(name="y", datatype="FP32", shape=[1])
            answer.raw_output_contents.append(b"\0\0\0\0")
            return answer

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Stub(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return f"127.0.0.1:{port}", server


def kserve(build):
    address, server = serve_kserve()
    tool = subprocess.run([f"{HERE}/../integration/perf_analyzer.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    n = SECONDS * RATE
    is_good = True
    for what, ours, theirs in [
        ("constant rate", ["--rate", RATE, "--arrivals", "constant"], ["--request-rate-range", RATE]),
        ("closed loop of two", ["--concurrency", 2], ["--concurrency-range", 2]),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "export.json")
            flags = ["-m", "stub", "-i", "grpc", "-u", address, "--request-count", n, *theirs, "--profile-export-file", path]
            subprocess.run([tool, *map(str, flags)], check=True, stdout=subprocess.DEVNULL, timeout=20 * SECONDS)
            with open(path) as export:
                requests = json.load(export)["experiments"][0]["requests"]
        ms = sorted((r["response_timestamps"][-1] - r["timestamp"]) / 1e6 for r in requests)
        figures = parley(build, f"kserve://{address}", "--model", "stub", "--requests", n, *ours)
        assert figures["completed"] == n, figures
        print(f"perf_analyzer, {what}: ours, theirs, ratio; {n} and {len(ms)} inferences")
        if "--concurrency" in ours:  # a rate says it itself
            is_good &= show("inferences/s", figures["request_throughput"], 2e3 * len(ms) / sum(ms))
        is_good &= show("mean ms", figures["mean_e2el_ms"], sum(ms) / len(ms))
        for p in 50, 90, 99:
            is_good &= show(f"p{p} ms", figures[f"p{p}_e2el_ms"], ms[min(len(ms) - 1, round(p / 100 * (len(ms) - 1)))])
    server.stop(None)
    return is_good


# --- OpenAI ---


class OpenAi:
    """Completions and chat completions as streams: the first token after FIRST_MS, each other one TOKEN_MS later."""

    def __init__(self):
        self.n, self.port, self.is_up = 0, 0, threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True).start()
        self.is_up.wait()

    async def run(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.is_up.set()
        await server.serve_forever()

    async def stream(self, writer, body):
        is_chat = "messages" in body
        n = body.get("max_tokens") or body.get("max_completion_tokens") or N_TOKENS
        delay_ms = FIRST_MS[self.n % len(FIRST_MS)]
        self.n += n > 1  # not for ours that ask how tokens are counted
        start = time.monotonic()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")

        def event(choices, usage=None):
            kind = "chat.completion.chunk" if is_chat else "text_completion"
            writer.write(b"data: " + json.dumps({"id": "x", "object": kind, "created": 0, "model": "stub", "choices": choices, "usage": usage}).encode() + b"\n\n")

        for i in range(n):
            await asyncio.sleep(max(0, start + (delay_ms + i * TOKEN_MS) / 1e3 - time.monotonic()))
            text = {"delta": {"content": "w "}} if is_chat else {"text": "w "}
            event([{"index": 0, "finish_reason": "length" if i == n - 1 else None, **text}])
            await writer.drain()
        said = json.dumps(body.get("prompt") or body["messages"])
        event([], {"prompt_tokens": len(said.split()), "completion_tokens": n, "total_tokens": n})
        writer.write(b"data: [DONE]\n\n")

    async def serve(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            body = await reader.readexactly(int(fields.get(b"content-length", 0)))
            if body:
                await self.stream(writer, json.loads(body))
            else:
                answer = json.dumps({"object": "list", "data": [{"id": "stub", "object": "model"}]}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


# A vocabulary of bytes, which guidellm wants to make its prompts of.
TOKENIZER = """
import sys, tokenizers, transformers
alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
one = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
one.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
one.decoder = tokenizers.decoders.ByteLevel()
transformers.PreTrainedTokenizerFast(tokenizer_object=one).save_pretrained(sys.argv[1])
"""


def guidellm_python():
    folder = os.environ.get("GUIDELLM", "build/guidellm")
    if not os.path.exists(f"{folder}/bin/guidellm"):
        print(f"making {folder} (guidellm, from PyPI)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/pip", "install", "--quiet", "--disable-pip-version-check", "guidellm==0.8.1"], check=True, stdout=sys.stderr)
    return f"{folder}/bin"


def run_guidellm(port, profile, n):
    """Its benchmark's metrics, by name."""
    bin_folder = guidellm_python()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1", "HOME": folder}
        subprocess.run([f"{bin_folder}/python", "-c", TOKENIZER, f"{folder}/words"], check=True, env=environment, stdout=subprocess.DEVNULL)
        flags = [
            *("--backend", f"kind=openai_http,target=http://127.0.0.1:{port},request_format=/v1/completions", "--tokenizer", f"kind=huggingface_auto,model={folder}/words"),
            *("--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={N_TOKENS}", "--profile", profile),
            *("--constraint", f"kind=max_requests,count={n}", "--output", f"kind=json,path={folder}/out.json", "--disable-progress"),
        ]
        done = subprocess.run([f"{bin_folder}/guidellm", "run", *flags], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30 * SECONDS)
        if done.returncode != 0:
            sys.exit(f"guidellm ended with {done.returncode}:\n{done.stdout[-3000:]}")
        with open(f"{folder}/out.json") as file:
            return json.load(file)["benchmarks"][0]["metrics"]


def openai(build):
    server, is_good, n = OpenAi(), True, SECONDS * RATE // 2
    for what, ours, theirs in [
        ("constant rate", ["--rate", RATE / 2, "--arrivals", "constant"], f"kind=constant,rate={RATE / 2}"),
        ("closed loop of two", ["--concurrency", 2], "kind=concurrent,streams=2"),
    ]:
        metrics = run_guidellm(server.port, theirs, n)
        figures = parley(build, f"http://127.0.0.1:{server.port}", "--requests", n, "--input-tokens", 16, "--output-tokens", N_TOKENS, *ours)
        assert figures["completed"] == n, figures
        print(f"guidellm, {what}: ours, theirs, ratio; {n} requests")
        for name, theirs_name, scale in [("ttft", "time_to_first_token_ms", 1), ("tpot", "inter_token_latency_ms", 1), ("e2el", "request_latency", 1e3)]:
            of = metrics[theirs_name]["successful"]
            is_good &= show(f"mean {name} ms", figures[f"mean_{name}_ms"], of["mean"] * scale)
            for p in 50, 90:
                is_good &= show(f"p{p} {name} ms", figures[f"p{p}_{name}_ms"], of["percentiles"][f"p{p}"] * scale)
    return is_good


def main():
    build, what = sys.argv[1], sys.argv[3:] or ["kserve"]
    sys.exit(0 if all([{"kserve": kserve, "openai": openai}[w](build) for w in what]) else 3)


main()
