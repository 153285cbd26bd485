"""parleyd on the CUDA module of tests/cuda_host says what multiplies, in the log and to `parley status`: our own kernels, cuBLAS beside
them under --fast-math, and our own again where cuBLAS is not there. The same conversation goes on under all of them.
usage: test_cuda_products.py PARLEY PARLEYD WRITE_TINY_MODEL MODULE CUBLAS, the last two being those of tests/cuda_host"""
import json
import os
import re
import sys
import tempfile
import urllib.request

import children

OWN = "own kernels, the same bits in any batch"
FAST = "own kernels, and libcublasLt.so.13 (13.0.2) for many rows: results depend on the batch"
NONE = "own kernels, because cuBLAS is not available: /nowhere/libcublasLt.so.13"


def good(done):
    assert done.returncode == 0, f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def metric(address, name):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=children.PATIENCE) as page:
        found = re.search(rf'^{name}{{model="tiny"}} (\S+)$', page.read().decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


def served(parley, parleyd, tiny, products, *flags):
    """The reply to a prompt of many rows."""
    daemon = children.Daemon(parleyd, "--log-level", "info", "--backend", "cuda", "--http", "127.0.0.1:0", "--kv-bytes", "4M", "--kv-host-bytes", "4M",
                             "--model", f"tiny={tiny}", *flags)
    with daemon:
        ask = [parley, "ask", "--json", "--server", daemon.address, "--max-tokens", "4", "a prompt of more than sixty-four tokens " * 2]
        reply = json.loads(good(children.run(ask, capture_output=True, text=True)))
        assert reply["usage"]["prompt_tokens"] >= 64 and len(reply["token_ids"]) > 0, reply
        status = good(children.run([parley, "status", "--server", daemon.address], capture_output=True, text=True))
        assert f"products     {products}" in status and re.search(r"device +\d+ of \d+ pages behind it on the host", status), status
        assert metric(daemon.http, "parley_device_losses_total") == 0
        assert metric(daemon.http, "parley_device_host_pages") > 0
    lines = [line for line in daemon.said if " loaded " in line and "model=tiny" in line]
    assert len(lines) == 1 and f'products="{products}' in lines[0], daemon.said


def fails(parley, parleyd, tiny, reset):
    """An illegal address in a step: where a reset heals the device, the next turn is answered; else the daemon ends, for a supervisor to
    start it anew, and says so."""
    os.environ |= {"CUDA_HOST_FAIL": "600:700", "CUDA_HOST_RESET": reset}
    daemon = children.Daemon(parleyd, "--backend", "cuda", "--http", "127.0.0.1:0", "--kv-bytes", "4M", "--kv-host-bytes", "off", "--model", f"tiny={tiny}")

    def ask():
        return children.run([parley, "ask", "--server", daemon.address, "--max-tokens", "200", "--seed", "1", "hello"], capture_output=True, text=True)

    try:
        with daemon:
            asked = 0
            while (failed := ask()).returncode == 0:
                asked += 1
                assert asked < 200, "the device does not fail"
            if reset == "0":
                assert "cudaErrorIllegalAddress" in failed.stderr, failed
                good(ask())
                assert metric(daemon.http, "parley_device_losses_total") == 1
            else:
                assert daemon.process.wait(children.PATIENCE) == 1
    except AssertionError as error:
        if reset == "0" or "ended with 1" not in str(error):
            raise
        assert sum("model 'tiny': the GPU failed and this process cannot use it again" in line for line in daemon.said) == 1, daemon.said
    del os.environ["CUDA_HOST_FAIL"], os.environ["CUDA_HOST_RESET"]


def main():
    parley, parleyd, write_tiny_model, module, cublas = sys.argv[1:6]
    os.environ["PARLEY_CUDA_MODULE"] = module
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        good(children.run([write_tiny_model, tiny], capture_output=True, text=True))
        os.environ["PARLEY_CUBLAS"] = "/nowhere/libcublasLt.so.13"
        served(parley, parleyd, tiny, OWN)
        served(parley, parleyd, tiny, NONE, "--fast-math")
        os.environ["PARLEY_CUBLAS"] = cublas
        served(parley, parleyd, tiny, FAST, "--fast-math")
        fails(parley, parleyd, tiny, "0")
        fails(parley, parleyd, tiny, "700")
        refused = children.run([parleyd, "--fast-math", "--check"], capture_output=True, text=True)
        assert refused.returncode == 2 and "has no effect with backend cpu" in refused.stderr and refused.stderr.count("\n") == 1, refused
    print("cuda_products: each says what multiplies")


if __name__ == "__main__":
    main()
