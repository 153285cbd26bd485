#!/usr/bin/env python3
"""The first hour on a GPU. Sections in order, each of gates; the first gate that fails ends the check, since what follows would measure
nothing. What is seen goes into one report.

  A  ground     a reset heals a process whose kernel failed; operators and networks against ref and cpu; the bits of a tiny model
  B  sanitizers of memory, races and barriers, where compute-sanitizer is there
  C  answers    whole replies have the bits of cpu, also behind more than 256 positions; speed by length of the context
  D  profile    kernels one by one, where ncu is there
  E  load       the daemon with 1 to 256 conversations; which of its threads, and the GPU, are busy meanwhile
  F  pressure   pages that move to the host and back; two models on one GPU, of which one is unloaded while both speak; cuBLAS, where
                PARLEY_CUBLAS names it"""
import argparse
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
sys.path.insert(0, os.path.join(root, "tests", "integration"))
import children  # noqa: E402

NEEDS = ("gpu-check needs an NVIDIA GPU of compute capability 7.5 or more with a driver for CUDA 13, which nvidia-smi does not find here, and about "
         "40 minutes on it; for all sections compute-sanitizer and ncu too")
KERNELS = ("attend", "products_few", "products_many", "norm_quantise", "rope_and_store", "draw_kernel", "gate_quantise")
KERNEL_TESTS = {f"{name} on the device": f"tests/cuda/test_{program}_gpu"
                for name, program in (("attention", "cuda_sequence"), ("products", "cuda_products"), ("draws", "compute_draw"))}
METRICS = ",".join(("gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__warps_active.avg.pct_of_peak_sustained_active",
                    "sm__inst_issued.avg.pct_of_peak_sustained_active", "smsp__inst_executed.sum", "l1tex__data_bank_conflicts_pipe_lsu.sum"))


class Red(Exception):
    pass


class Check:
    """small: on the stand-in, whose steps are slow and whose figures say nothing."""

    def __init__(self, build, model, report, small):
        self.build, self.model, self.report, self.small = build, model, report, small
        self.parley, self.parleyd = os.path.join(build, "parley"), os.path.join(build, "parleyd")
        self.same_bytes = os.path.join(build, "tests/determinism/same_bytes")

    def say(self, text):
        print(text, flush=True)
        self.report.write(text + "\n")
        self.report.flush()

    def skip(self, name, why):
        self.say(f"--- {name}: {why}")

    def command(self, name, *command, limit_s=300, keep=15, **env):
        """Runs it; the last lines of what it says go into the report. Whether it succeeded, and all that it said."""
        begin = time.monotonic()
        try:
            done = subprocess.run(children.mortal(command), stdout=-1, stderr=-2, text=True, timeout=limit_s, env={**os.environ, **env})
            status, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            status, said = "none", f"not done after {limit_s} s"
        except OSError as error:
            status, said = "none", str(error)
        self.say(f"{'ok ' if status == 0 else 'RED'} {name}  ({time.monotonic() - begin:.1f} s)")
        for line in said.splitlines()[-keep:]:
            self.say(f"      {line}")
        return status, said

    def gate(self, name, *command, **more):
        status, said = self.command(name, *command, **more)
        if status != 0:
            raise Red(f"{name}: exit status {status} of {' '.join(command)}")
        return said

    @contextlib.contextmanager
    def beside(self, name, *command, limit_s=300, keep=15):
        """It runs while the block does, and ends by itself behind it; yields the process, whose exit status says whether it succeeded."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            process = children.start(command, stdout=said, stderr=said)
            try:
                yield process
                process.wait(limit_s)
            finally:
                process.kill()
                process.wait()
            said.seek(0)
            self.say(f"beside: {name}, exit status {process.returncode}")
            for line in said.read().splitlines()[-keep:]:
                self.say(f"      {line}")

    def threads(self, process, seconds):
        """How busy each thread of a process is."""
        def times():
            found = {}
            for path in glob.glob(f"/proc/{process.pid}/task/*/stat"):
                with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
                    name, _, rest = file.read().rpartition(")")
                    found[path.split("/")[-2]] = name.partition("(")[2], sum(map(int, rest.split()[11:13]))
            return found

        before = times()
        time.sleep(seconds)  # what is measured
        after = times()
        busy = {thread: (ticks - before[thread][1]) / os.sysconf("SC_CLK_TCK") / seconds for thread, (_, ticks) in after.items() if thread in before}
        self.say("threads of the daemon, the busiest: near 100 % of the one called parleyd the host is the bound")
        for thread in sorted(busy, key=busy.get, reverse=True)[:8]:
            self.say(f"      {after[thread][0]:<16} {busy[thread]:6.0%}")

    def daemon(self, backend, *flags, models=("m",)):
        if self.small:
            flags = ("--kv-bytes", "8M", *flags)
        return children.Daemon(self.parleyd, "--backend", backend, *(word for m in models for word in ("--model", f"{m}={self.model}")), *flags)

    def selftest(self, *flags):
        return [self.parley, "selftest", "--backend", "cuda", *flags]

    def ground(self):
        if not self.small:
            self.gate("device", "nvidia-smi", "--format=csv",
                      "--query-gpu=name,driver_version,compute_cap,memory.total,memory.used,clocks.max.sm,clocks.max.mem,power.limit,ecc.mode.current")
        nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(("/usr/local/cuda/bin", os.path.join(root, "build/cuda/nvidia/cu13/bin"))))
        if self.small or not nvcc:
            self.skip("reset", "the stand-in has its own" if self.small else "no nvcc here")
        else:
            program = os.path.join(self.build, "gpu_reset")
            self.gate("reset, compiled", nvcc, "-arch=native", "-o", program, os.path.join(here, "reset.cu"))
            self.gate("reset", program, keep=80)
        self.gate("operators", *self.selftest("--seconds", "0"), keep=60)
        if self.small:
            return self.skip("kernels, networks, same bytes", "tests of their own on the stand-in")
        for name, program in KERNEL_TESTS.items():
            self.gate(name, os.path.join(self.build, program), CK_FORK="no")
        self.gate("networks", os.path.join(self.build, "tests/unit/compute/test_compute_net"), CK_FORK="no")
        self.gate("same bytes", self.same_bytes, "cuda")

    def sanitizers(self):
        tool = shutil.which("compute-sanitizer")
        if self.small or not tool:
            return self.skip("memcheck, racecheck, synccheck", "kernels of the host" if self.small else "no compute-sanitizer here")
        under = [tool, "--error-exitcode", "9", "--print-limit", "20", "--tool"]
        self.gate("memcheck", *under, "memcheck", *self.selftest("--seconds", "0"))
        for name, program in KERNEL_TESTS.items():
            self.gate(f"memcheck of {name}", *under, "memcheck", os.path.join(self.build, program), CK_FORK="no")
        self.gate("memcheck of the model", *under, "memcheck", *self.selftest("--model", self.model, "--seconds", "0"))
        self.gate("racecheck", *under, "racecheck", "--racecheck-report", "all", self.same_bytes, "cuda")
        self.gate("synccheck", *under, "synccheck", self.same_bytes, "cuda")
        self.command("initcheck, no gate: padding that is copied counts too", *under, "initcheck", self.same_bytes, "cuda")

    def replies(self, backend):
        n, tokens = (1, "4") if self.small else (20, "96")
        asks = [(f"Tell story number {i}", str(i % 2), str(i)) for i in range(n)]
        asks.append((" ".join(map(str, range(1, 70 if self.small else 400))), "0", "0"))  # more than 256 positions: blocks share them
        ids = []
        with self.daemon(backend) as daemon:
            for text, temperature, seed in asks:
                done = children.run([self.parley, "ask", "--json", "--server", daemon.address, "--max-tokens", tokens, "--temperature", temperature,
                                     "--seed", seed, text], capture_output=True, text=True)
                if done.returncode != 0:
                    raise Red(f"ask of {backend}: {done.stderr}")
                reply = json.loads(done.stdout)
                ids.append(reply["token_ids"])
        if reply["usage"]["prompt_tokens"] <= 256:
            raise Red(f"the long prompt has {reply['usage']['prompt_tokens']} tokens")
        return ids

    def answers(self):
        ours, known = self.replies("cuda"), self.replies("cpu")
        differ = [i for i, (a, b) in enumerate(zip(ours, known)) if a != b]
        self.say(f"{'RED' if differ else 'ok '} replies  ({len(known)}, {sum(map(len, known))} tokens)")
        if differ:
            raise Red(f"replies {differ} are not cpu's: {ours[differ[0]]}, {known[differ[0]]}")
        if self.small:
            return self.skip("golden, speed", "of the real model on a device")
        self.gate("golden", *self.selftest("--model", self.model, "--golden", os.path.join(root, "tests/golden"), "--seconds", "0"), keep=40)
        for context in (64, 512, 2048, 8000):
            self.gate(f"speed at context {context}", *self.selftest("--model", self.model, "--context", str(context), "--seconds", "2"), keep=40)
        self.gate("speed on the host", self.parley, "selftest", "--backend", "cpu", "--model", self.model, "--seconds", "1", keep=40)

    def profile(self):
        tool = shutil.which("ncu")
        if self.small or not tool:
            return self.skip("kernels", "of the host" if self.small else "no ncu here")
        for kernel in KERNELS:
            self.gate(kernel, tool, "--clock-control", "none", "--graph-profiling", "node", "-k", f"regex:{kernel}", "-s", "20", "-c", "3",
                      "--metrics", METRICS, *self.selftest("--model", self.model, "--seconds", "0.2"), limit_s=120, keep=30)
        self.gate("products by rows", os.path.join(self.build, "tests/bench/bench_products"), "--backend", "cuda", self.model, keep=40)

    def load_of(self, daemon, n, tokens, *flags, model="m", rounds=4):
        if self.small:  # a figure would be of the stand-in, and take minutes
            return [self.parley, "ask", "--server", daemon.address, "--model", model, "--max-tokens", "2", "Hi"]
        return [self.parley, "bench", f"parley://{daemon.address}", "--model", model, "--concurrency", str(n), "--requests", str(rounds * n),
                "--input-tokens", str(tokens), "--output-tokens", "128", "--ignore-eos", *flags]

    def bench(self, daemon, name, *load, **more):
        self.gate(name, *self.load_of(daemon, *load, **more), keep=25)

    def status(self, daemon):
        self.gate("status", self.parley, "status", "--server", daemon.address, keep=40)

    def load(self):
        with self.daemon("cuda") as daemon:
            for n in (1,) if self.small else (1, 8, 64, 256):
                self.bench(daemon, f"{n} conversations", n, 512)
            self.status(daemon)
            with self.beside("256 conversations, short prompts", *self.load_of(daemon, 256, 64, rounds=8)) as load:
                self.threads(daemon.process, 0.1 if self.small else 3)
                if not self.small:
                    self.command("the GPU", "nvidia-smi", "dmon", "-c", "5", "-s", "u")
            self.must_end_well(load)

    def must_end_well(self, process):
        if process.returncode != 0:
            raise Red(f"exit status {process.returncode} of {' '.join(process.args)}")

    def n_conversations(self, daemon, model):
        status = json.loads(children.run([self.parley, "status", "--json", "--server", daemon.address], stdout=-1, check=True, text=True).stdout)
        return sum(m["conversations"] for m in status["models"] if m["name"] == model)

    def two_models(self, config):
        """Both speak; then the file that names them is written anew without b, whose conversations may end as they can: a's must go on."""
        def write(names):
            with open(config + ".new", "w", encoding="utf-8") as file:
                file.write("models:\n" + "".join(f"  - {name}={self.model}\n" for name in names))
            os.rename(config + ".new", config)

        write("ab")
        with self.daemon("cuda", "--config", config, "--log-level", "info", *(() if self.small else ("--kv-bytes", "4G")), models=()) as daemon:
            with self.beside("b speaks with a", *self.load_of(daemon, 32, 256, model="b")) as b:
                self.bench(daemon, "a speaks with b", 32, 256, model="a")
            self.must_end_well(b)
            with (self.beside("a goes on", *self.load_of(daemon, 32, 256, model="a")) as a,
                  self.beside("b is unloaded", *self.load_of(daemon, 32, 256, model="b")) as b):
                children.until("a conversation with b", lambda: b.poll() is not None or self.n_conversations(daemon, "b") > 0, daemon.process)
                write("a")
                daemon.process.send_signal(signal.SIGHUP)
                children.until("the unload of b", lambda: any("unloaded" in line and "model=b" in line for line in daemon.said), daemon.process)
            self.must_end_well(a)
            self.bench(daemon, "a speaks alone", 32, 256, model="a")

    def pressure(self):
        small = ("--kv-bytes", "1M", "--kv-host-bytes", "8M") if self.small else ("--kv-bytes", "64M", "--kv-host-bytes", "256M")
        with self.daemon("cuda", *small) as daemon:
            self.bench(daemon, "pages move", 128, 256, "--turns", "3")
            self.status(daemon)
        with tempfile.TemporaryDirectory() as folder:
            self.two_models(os.path.join(folder, "two.yaml"))
        if self.small:
            return self.skip("cuBLAS", "for a device")
        if not os.environ.get("PARLEY_CUBLAS"):
            return self.skip("cuBLAS", "PARLEY_CUBLAS does not name it")
        self.gate("cuBLAS", *self.selftest("--model", self.model, "--seconds", "1"), keep=40)


SECTIONS = {"A": Check.ground, "B": Check.sanitizers, "C": Check.answers, "D": Check.profile, "E": Check.load, "F": Check.pressure}


def gpus():
    """As nvidia-smi lists them."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], stdout=-1, stderr=-3, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 and "GPU" in done.stdout else ""


def run(check, sections):
    for name in sections:
        title = SECTIONS[name].__name__
        check.say(f"\n{name}. {title}")
        try:
            SECTIONS[name](check)
        except (Red, AssertionError, subprocess.TimeoutExpired) as red:
            check.say(f"\nstopped: section {name} is red: {red}")
            return False
    check.say("\nall sections passed")
    return True


def main():
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(root, "build/release"), metavar="DIR", help="what ./run cuda built (build/release)")
    parser.add_argument("--model", default=os.path.join(root, "build/model/SmolLM2-135M-Instruct.Q4_1.gguf"), metavar="FILE", help="of the sections after A (./run model)")
    parser.add_argument("--report", default=os.path.join(root, "build/gpu-check.txt"), metavar="FILE", help="build/gpu-check.txt")
    parser.add_argument("--sections", default="ABCDEF", metavar="LETTERS", help="those that run (ABCDEF)")
    parser.add_argument("--stand-in", metavar="MODULE", help="runs on this module, of tests/cuda_host, with little work, and needs no GPU")
    parser.add_argument("--needs", action="store_true", help="says whether there is a GPU, and no more")
    args = parser.parse_args()
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"there is no section {min(unknown)}")
    found = "the stand-in" if args.stand_in else gpus()
    if not found:
        sys.exit(NEEDS)
    if args.needs:
        return
    os.environ["PARLEY_CUDA_MODULE"] = args.stand_in or os.path.join(args.build, "compute/cuda/libparley-cuda.so")
    with open(args.report, "w", encoding="utf-8") as report:
        check = Check(args.build, args.model, report, args.stand_in is not None)
        check.say(f"gpu-check on {found}")
        passed = run(check, args.sections)
    sys.exit(not passed)


main()
