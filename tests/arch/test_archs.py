"""Every architecture against its definition in float64 (models.py), on each backend, and the bits of the same prompt
run in other ways (logits.c).

usage: test_archs.py LOGITS [--cuda MODULE] [NAME…]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import models

N_TOKENS = 120  # longer than the windows and original contexts of the models
N_CUDA, MOST_CUDA_LAYERS = 40, 12  # fibres are slow
REF_MOST = 1e-4
HIDDEN_MOST = {"ref": 1e-5, "cpu": 0.05, "cuda": 0.05}  # of a state's norm, in the mean over the prompt
CPU_MEAN = 0.02
# architectures that cuda has no kernels for: it must say so
CUDA_LACKS = {"gpt-oss", "granitemoe", "command-r", "cohere2", "starcoder2", "stablelm", "deepseek2", "gemma4", "lfm2", "lfm2moe", "qwen35", "qwen35moe",
              "qwen3next", "granitehybrid", "nemotron_h", "nemotron_h_moe", "phimoe", "falcon-h1", "minicpm3", "mamba2",
              "llama4", "gemma3n"}
# whose kernels the other models run on cuda's stand-in already, since only factors of ropes, scales or routing are others: it is slow
CUDA_ALIKE = {"minicpm", "seed_oss", "ernie4_5", "ernie4_5-moe", "hunyuan-moe", "exaone4", "exaone4_window", "glm4moe", "glm4moe_groups",
              "llama_linear", "llama_longrope", "llama_yarn", "phi3_short", "phi3_window", "granite_unrotated",
              "gemma2_defaults", "gemma3", "llama4_128"}
# cuda runs the prompt in other ways for these alone: their shapes are those of the rest, and the tests of determinism do, too
CUDA_WAYS = {"llama", "gemma2", "qwen3moe"}
TOP1 = {"cpu": 0.98, "cuda": 0.95}  # of 40, one may differ


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Checks:
    def __init__(self, logits, folder, cuda):
        self.logits, self.folder, self.cuda = logits, pathlib.Path(folder), cuda
        self.failures = []
        self.hidden = None  # of the last run, [n][width]
        self.max_context = 0

    def run(self, path, backend, ids, n_vocab, arch=""):
        """The log-probabilities of an engine, or None where it failed."""
        given, got = self.folder / "ids", self.folder / "logits"
        ids.astype(np.int32).tofile(given)
        env = dict(os.environ)
        if backend == "cuda":
            env["PARLEY_CUDA_MODULE"] = self.cuda
        once = backend == "cuda" and path.stem not in CUDA_WAYS
        context = [str(self.max_context), *(["once"] if once else [])] if self.max_context or once else []
        done = subprocess.run([self.logits, path, backend, "f32", given, got, *context], env=env, capture_output=True, text=True,
                              check=False)
        if backend == "cuda" and arch in CUDA_LACKS:
            if done.returncode == 0 or "for which the backend 'cuda' has no kernel" not in done.stderr:
                self.fail(f"{path.stem} on {backend}: not refused: {done.stderr.strip()}")
            return None
        if done.returncode != 0:
            self.fail(f"{path.stem} on {backend}: exit {done.returncode}: {done.stderr.strip()}")
            return None
        values = np.fromfile(got, np.float32).astype(np.float64)
        self.hidden = None if once else values[len(ids) * n_vocab:].reshape(len(ids), -1)
        return log_softmax(values[:len(ids) * n_vocab].reshape(len(ids), n_vocab))

    def run_both(self, name, path, backend, ids, n_vocab, arch):
        """run, and the check of the hidden states behind the final norm where it gave them."""
        got, want = self.run(path, backend, ids, n_vocab, arch), self.want_hidden[:len(ids)]
        if got is not None and self.hidden is not None:
            off = (np.linalg.norm(self.hidden - want, axis=1) / np.linalg.norm(want, axis=1)).mean()
            print(f"{backend} hidden: {off:.1e}", end=" ")
            if not off <= HIDDEN_MOST[backend]:
                self.fail(f"{name}: {backend}'s hidden states differ by {off:.2e}")
        return got

    def check_short_context(self):
        """Conversations that may not be longer than the original context have the short factors."""
        model, self.max_context = models.all_models()["phi3_long"], 64
        path = self.folder / "short.gguf"
        model.write(path)
        ids = np.random.default_rng(99).integers(0, model.n["vocab"], self.max_context)
        got = self.run(path, "ref", ids, model.n["vocab"])
        model.n["ctx"], self.max_context = 64, 0
        most = np.inf if got is None else np.abs(got - log_softmax(models.Forward(model).logits(ids))).max()
        if not most <= REF_MOST:
            self.fail(f"phi3_long in a short context: ref differs by {most:.2e}")

    def fail(self, text):
        self.failures.append(text)
        print("FAILED", text)

    def runs_on_cuda(self, name, model):
        return self.cuda and model.n["layers"] <= MOST_CUDA_LAYERS and name not in CUDA_ALIKE

    def check(self, name, model):
        path = self.folder / (name + ".gguf")
        model.write(path)
        ids = np.random.default_rng(99).integers(0, model.n["vocab"], N_TOKENS)
        forward = models.Forward(model)
        self.want_hidden = forward.hidden(ids)
        want = log_softmax(forward.logits_of(self.want_hidden))
        ref, cpu = (self.run_both(name, path, b, ids, model.n["vocab"], model.arch) for b in ("ref", "cpu"))
        cuda = self.run_both(name, path, "cuda", ids[:N_CUDA], model.n["vocab"], model.arch) if self.runs_on_cuda(name, model) else None
        if ref is not None:
            most = np.abs(ref - want).max()
            print(f"{name:20} ref: at most {most:.1e}", end=" ")
            if not most <= REF_MOST:
                self.fail(f"{name}: ref differs by {most:.2e}")
        if cpu is not None:
            self.check_near(name, "cpu", cpu, want)
        if cuda is not None:
            self.check_near(name, "cuda", cuda, want[:N_CUDA])
        path.unlink()
        print(flush=True)

    def check_near(self, name, backend, got, want):
        mean = np.abs(got - want).mean()
        top1 = (got.argmax(axis=1) == want.argmax(axis=1)).mean()
        print(f"{backend}: mean {mean:.1e}, top-1 {top1:.3f}", end=" ")
        if not (mean <= CPU_MEAN and top1 >= TOP1[backend]):
            self.fail(f"{name}: {backend} differs by {mean:.2e} in the mean, top-1 {top1:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("logits")
    parser.add_argument("--cuda")
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()  # names may follow --cuda
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(given.logits, folder, given.cuda)
        for name, model in models.all_models().items():
            if not given.names or name in given.names:
                checks.check(name, model)
        checks.check_short_context()
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
