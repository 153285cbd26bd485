#!/usr/bin/env python3
"""The chat service at /websocket: people go from the menu by a form and a pool to a task and back, in ParlAI's own JSON; who waits too long, says
nothing, loses the connection or breaks the rules is told so; what was said is in ParlAI's log; a wrong file is refused by its line. With --data all are
where they were after kill -9.

usage: test_service.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import urllib.request

import grpc

import children
import test_rooms
from test_rooms import BINARY, TEXT, Mortal, Socket

from parley.v1 import conversations_pb2, conversations_pb2_grpc, models_pb2, models_pb2_grpc

PLAN = """
world_module: parley.worlds
overworld: menu
task_name: test
max_workers: 1
grace: 600
log: {log}
welcome: "Hello.\\nChoose."
tasks:
  pair:
    onboard_world: form
    ask:
    - key: name
      text: Who are you?
    - {{key: side, text: Which side?, choices: [left, right], strict: true}}
    onboard_closing: You are {{name}}.
    task_world: relay
    agents_required: 2
    welcome: Speak, {{name}}.
    eligible: {{side: left}}
    timeout: 3000
    notice: 3000
  bot: {{task_world: chat, welcome: "Here is a bot."}}
  group: {{task_world: chat, agents_required: 2, timeout: 3000, notice: 3000, policy: named, agent: Max, system: You are Max.}}
  slow: {{task_world: relay, agents_required: 2, timeout: 2, notice: 1, backup_task: alone}}
  alone: {{task_world: echo, welcome: You are alone., idle: 1}}
  late: {{task_world: relay, agents_required: 2, timeout: 1}}
  plain: {{task_world: echo, welcome: Say something.}}
  panel: {{task_world: "attached:panel:2", agents_required: 2, roles: [asks, answers], welcome: A panel., timeout: 3000, notice: 3000}}
"""
MENU = ["pair", "bot", "group", "slow", "alone", "late", "plain", "panel"]
PANEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/examples/panel.py")


class Person(Socket):
    path, protocol = "/websocket", None

    def __init__(self, parley, secret=None, **headers):
        super().__init__(parley, **headers)
        self.secret = secret

    def say(self, text, **more):
        self.send(text=text, **({"id": self.secret} if self.secret else {}), **more)

    def told(self, *texts, quick_replies=None):
        """The next messages have just these texts, and the last these quick replies."""
        for i, text in enumerate(texts):
            last = i == len(texts) - 1
            said = self.read()
            assert said == {"text": text, "quick_replies": quick_replies if last else None}, (said, text)

    def menu(self):
        self.told("Hello.\nChoose.", quick_replies=MENU)

    def choose(self, name):
        self.say("hello")
        self.menu()
        self.say(name)

    def ended(self, code, *words):
        said = self.read()
        assert isinstance(said, tuple) and said[0] == code and all(word in said[1] for word in words), said
        self.close()


class Watcher(Person):
    """One that is told where it is."""

    protocol = "parley.service.v1"

    def moved(self, *places):
        for before, now, task in places:
            said = self.read()
            assert said == {"moved": {"from": before, "to": now, "task": task}}, (said, now)

    def waits(self, task, place, size, wanted):
        said = self.read()
        assert 0 < said["waiting"].pop("timeout_ms") <= 3000 * 1000 and said == {"waiting": {"task": task, "place": place, "size": size, "wanted": wanted}}, said


def metric(parley, name):
    with urllib.request.urlopen(f"http://{parley.http}/metrics", timeout=children.PATIENCE) as page:
        return next(float(line.split()[1]) for line in page.read().decode().splitlines() if line.startswith(f"parley_service_{name} "))


def heard(parley, person, text):
    """The person says it, and the daemon has taken it."""
    before = metric(parley, "said_total")
    person.say(text)
    children.until("the person is heard", lambda: metric(parley, "said_total") == before + 1)


def onboard(person, name, side="left"):
    person.choose("pair")
    person.told("Who are you?")
    person.say(name)
    person.told("Which side?", quick_replies=["left", "right"])
    person.say("upwards")
    person.told("Please choose one of these answers.", quick_replies=["left", "right"])
    person.say(side)
    person.told(f"You are {name}.")


def pair(parley):
    """Two people from the form to a talk, a third of the wrong side waits; a lost connection, and the end."""
    ann, bob, eve = Person(parley, "ann's long secret"), Person(parley), Person(parley)
    onboard(ann, "Ann")
    ann.say("hello?")
    ann.told("Please wait while we pair you with another person. If you wish to exit, type *EXIT*.")
    onboard(eve, "Eve", "right")
    onboard(bob, "Bob")
    ann.told("Speak, Ann.")
    bob.told("Speak, Bob.")
    ann.say("two\nlines")
    bob.told("two\nlines")
    bob.say("a picture", payload={"type": "image", "data": "AAAA"})
    ann.told("a picture")
    assert ann.read() == {"text": "", "payload": {"type": "image", "data": "AAAA"}, "quick_replies": None}
    ann.close()
    children.until("Ann is away", lambda: metric(parley, "away") == 1)
    heard(parley, bob, "still there?")
    ann = Person(parley, "ann's long secret")
    ann.say("yes")
    bob.told("yes")
    ann.told("still there?")
    again = Person(parley, "ann's long secret")  # in another window
    again.say("here")
    bob.told("here")
    ann.ended(4001, "another connection")
    again.say("bye [DONE]")
    again.menu()
    bob.told("The other agent has ended the chat.")
    bob.menu()
    eve.say("EXIT")
    eve.menu()
    for person in again, bob, eve:
        person.close()


def bots(parley):
    """An agent answers one person; in a group it listens until it is named."""
    ann = Person(parley)
    ann.choose("bot")
    ann.told("Here is a bot.")
    ann.say("one two")
    first = ann.read()["text"]
    assert "one two" in first, first
    ann.say("[RESET]")
    ann.told("[History Cleared]")
    ann.say("")  # no agent hears it: it answers the next one as the first one
    ann.say("", payload={"type": "image", "data": "AAAA"})
    ann.say("one two")
    ann.told(first)
    ann.say("[DONE]")
    ann.menu()
    ann.say("group")
    bob = Person(parley)
    bob.choose("group")
    bob.say("tea?")
    ann.told("Agent_1: tea?")
    ann.say("Max, tea?")
    bob.told("Agent_0: Max, tea?")
    said = ann.read()["text"]
    assert said.startswith("Max: ") and "Agent_1: tea?" in said and "Agent_0: Max, tea?" in said, said
    bob.told(said)
    bob.close()
    ann.told("Agent_1 has left.")
    ann.say("EXIT")
    ann.menu()
    ann.close()


def attached(parley, name="panel", program=(PANEL,), **more):
    """The worker that has the world panel, or this agent."""
    worker = children.start([sys.executable, *program, parley.address], env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}, **more)

    def is_there():
        with urllib.request.urlopen(f"http://{parley.http}/v1/models", timeout=children.PATIENCE) as page:
            return name in [model["id"] for model in json.load(page)["data"]]

    children.until(f"{name} is attached", is_there, worker)
    return worker


def own(parley):
    """A world in Python says who may speak, who hears it, and when it is over."""
    worker, ann, bob = attached(parley), Person(parley), Person(parley)
    ann.choose("panel")
    children.until("Ann waits", lambda: metric(parley, "waiting") == 1)
    bob.choose("panel")
    ann.told("A panel.")
    bob.told("A panel.")
    for question in "Why?", "How?":
        ann.told("Your question?", quick_replies=["Why?", "How?"])
        bob.say("And I?")
        bob.told("Please wait: it is not your turn. This message was not delivered.")
        ann.say(question)
        bob.told(f"asks: {question}")
        bob.say("See this.", payload={"type": "image", "data": "AAAA"})
        ann.told("answers: See this.")
        assert ann.read() == {"text": "", "payload": {"type": "image", "data": "AAAA"}, "quick_replies": None}
    ann.menu()
    bob.menu()
    for person in ann, bob:
        person.close()
    worker.kill()
    worker.wait()


def times(parley):
    """A pool's notice, time-out and backup task; a silent task; a time-out without a backup."""
    ann, bob = Person(parley), Person(parley)
    ann.choose("slow")
    bob.choose("late")
    ann.told("Pairing is taking longer than expected. If you wish to exit, type *EXIT*.", "You are alone.",
             "Nobody has said anything for 1 seconds: this is over.")
    ann.menu()
    bob.told("Nobody was found to pair you with.")
    bob.menu()
    ann.close()
    bob.close()


def places(parley):
    """Who asks for the subprotocol is told where it is, behind what it is told: each move, and its place in the pool, which changes with others'."""
    ann, bob, eve = Watcher(parley), Person(parley, "bob's long secret"), Watcher(parley)
    ann.say("hello")
    ann.menu()
    ann.moved(("new", "overworld", None))
    ann.say("group")
    ann.moved(("overworld", "waiting", "group"))
    ann.waits("group", 1, 1, 2)
    ann.say("EXIT")
    ann.menu()
    ann.moved(("waiting", "overworld", None))
    onboard(bob, "Bob", "right")  # waits for what nobody has answered
    children.until("Bob waits", lambda: metric(parley, "waiting") == 1)
    ann.say("pair")
    ann.told("Who are you?")
    ann.moved(("overworld", "onboarding", "pair"))
    ann.say("Ann")
    ann.told("Which side?", quick_replies=["left", "right"])
    ann.say("left")
    ann.told("You are Ann.")
    ann.moved(("onboarding", "waiting", "pair"))
    ann.waits("pair", 2, 2, 2)
    bob.say("EXIT")
    bob.menu()
    ann.waits("pair", 1, 1, 2)
    bob.say("pair")
    bob.told("Who are you?")
    bob.say("Bob")
    bob.told("Which side?", quick_replies=["left", "right"])
    bob.say("left")
    bob.told("You are Bob.", "Speak, Bob.")
    ann.told("Speak, Ann.")
    ann.moved(("waiting", "task", "pair"))
    assert eve.status == 101 and Person(parley, Sec_WebSocket_Protocol="chat").status == 101  # as before: none is chosen
    for person in ann, bob, eve:
        person.close()


def rules(parley):
    """Whatever breaks the rules ends its own connection with a code and a sentence; nobody else notices."""
    ann = Person(parley)
    ann.choose("plain")
    ann.told("Say something.")
    ann.say("", payload={"type": "image", "data": "AAAA"})
    assert ann.read() == {"text": "", "payload": {"type": "image", "data": "AAAA"}, "quick_replies": None}
    ann.say("", payload={"a": [0.1] * 20000})  # below 256 KiB as it comes, above 64 KiB as it is written
    ann.told("This payload is too long: it was not delivered.")
    for kind, body, code, word in ((TEXT, b"{", 1007, "JSON"), (TEXT, b"[1]", 1007, "JSON"), (TEXT, b'"x"', 1007, "JSON"), (TEXT, b'{"text": 3}', 1008, "text"),
                                   (TEXT, b'{"text": "a\\u0000b"}', 1008, "text"), (TEXT, b'{"payload": [1]}', 1008, "payload"),
                                   (TEXT, b"\xff", 1007, ""), (BINARY, b"{}", 1003, ""), (TEXT, b"x" * (1 << 18) + b"x", 1009, "")):
        eve = Person(parley)
        eve.frame(kind, body)
        eve.ended(code, word)
    assert Person(parley, Origin="https://evil.example").status == 403
    zipped = Person(parley, Sec_WebSocket_Extensions="permessage-deflate")
    assert zipped.status == 101 and "sec-websocket-extensions" not in zipped.headers
    zipped.send()  # no text at all: an empty one, which wakes the menu
    zipped.menu()
    zipped.raw.sendall((b"\x81\x90" + bytes(4) + b'{"text": "sing"}') * 40)  # at once, so that the machine's load changes nothing
    seen = [zipped.read()["text"] for _ in range(40)]
    assert seen[0] == "Please choose one of these." and "You write too fast: this message was not delivered." in seen, seen
    zipped.close()
    ann.close()


def log_lines(path, name="test", agent="Max"):
    """What ParlAI's Conversations reads: a line a talk, whose dialog has groups of acts, and the metadata beside it."""
    with open(path + ".metadata", encoding="utf-8") as file:
        metadata = json.load(file)
    assert metadata["version"] == "0.1" and metadata["self_chat"] is False and metadata["opt"] == {"task": name} and agent in metadata["speakers"], metadata
    with open(path + ".jsonl", encoding="utf-8") as file:
        talks = [json.loads(line) for line in file]
    assert all(talk["metadata_path"] == path + ".metadata" and talk["context"] == [] for talk in talks)
    return [(talk["task"], [[(act["id"], act["text"]) for act in group] for group in talk["dialog"]]) for talk in talks]


def stops(parley):
    """Those who are there are told, then the connection ends."""
    ann = Person(parley)
    ann.say("hello")
    ann.menu()
    parley.process.send_signal(signal.SIGTERM)
    seen = ann.read()
    # The text is sent before the close; where the server's part has ended first, the close comes alone.
    assert seen == (1001, "the server is stopping") or "offline" in seen["text"], seen
    assert isinstance(seen, tuple) or ann.read() == (1001, "the server is stopping")
    ann.close()
    assert parley.process.wait(children.PATIENCE) == 0


DEMOS = {"overworld": """
tasks:
  echo: {onboard_world: MessengerEchoOnboardWorld, task_world: MessengerEchoTaskWorld, timeout: 180, agents_required: 1}
  onboard data: {onboard_world: MessengerOnboardDataOnboardWorld, task_world: MessengerOnboardDataTaskWorld, timeout: 180, agents_required: 1}
  chat: {onboard_world: MessengerChatOnboardWorld, task_world: MessengerChatTaskWorld, timeout: 3000, notice: 3000, agents_required: 2}
task_name: overworld_demo
world_module: parlai.chat_service.tasks.overworld_demo.worlds
overworld: MessengerOverworld
max_workers: 30
opt: {debug: True}
additional_args: {page_id: 1}
""", "bot": """
tasks:
  default: {onboard_world: MessengerBotChatOnboardWorld, task_world: MessengerBotChatTaskWorld, timeout: 1800, agents_required: 1}
task_name: chatbot
world_module: parlai.chat_service.tasks.chatbot.worlds
overworld: MessengerOverworld
max_workers: 30
opt: {debug: True, models: {echo: {model: x}}}
additional_args: {page_id: 1}
"""}


def as_parlai(parleyd, folder):
    """The same messages in the same order as ParlAI 1.7.2's own WebsocketManager sent: parlai_chats.txt has what it was told and said when it ran
    with its two demos, with an agent that echoes. Its writer waited 1.5 s before each message, since ParlAI loses what comes while it moves people."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "parlai_chats.txt"), encoding="utf-8") as file:
        runs = [run.splitlines() for run in file.read().split("# ")[1:]]
    assert len(runs) == 4
    for name, plan in DEMOS.items():
        path = os.path.join(folder, f"{name}.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(plan)
        with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--service", path) as parley:
            for run in (run for run in runs if run[0] == name):
                people = {}
                for line in run[1:]:
                    who, way, message = line.split(" ", 2)
                    if who not in people:
                        people[who] = Person(parley)
                    if way == ">":
                        people[who].send(**json.loads(message))
                    else:
                        said = people[who].read()
                        assert said == json.loads(message), (name, line, said)
                for person in people.values():
                    person.close()


def refused(parleyd, folder):
    """A start, and --check, with a wrong file, or without what the service needs."""
    path = os.path.join(folder, "wrong.yaml")
    good = PLAN.format(log=os.path.join(folder, "other.jsonl"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(good.replace("max_workers", "max_wokers"))
    for flags in (), ("--check",):
        done = children.run([parleyd, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--service", path, *flags], capture_output=True, text=True)
        assert done.returncode == 1 and "wrong.yaml:5: " in done.stderr and "there is no key 'max_wokers', did you mean 'max_workers'?" in done.stderr, done
    with open(path, "w", encoding="utf-8") as file:
        file.write(good + "principal: ann\n")
    for http, word in ("off", "--http, which is off"), ("127.0.0.1:0", "there are no principals without --keys"):
        done = children.run([parleyd, "--listen", "127.0.0.1:0", "--http", http, "--service", path], capture_output=True, text=True)
        assert done.returncode == 1 and word in done.stderr, done
    with open(path, "w", encoding="utf-8") as file:
        file.write(PLAN.format(log="/nowhere/x.jsonl"))
    done = children.run([parleyd, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--service", path], capture_output=True, text=True)
    assert done.returncode == 1 and "/nowhere/x.jsonl" in done.stderr, done
    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as parley:
        assert Person(parley).status == 422


def with_keys(parleyd, folder):
    """People send no key; the agents belong to the principal of the plan, which must be there."""
    path, keys = os.path.join(folder, "keyed.yaml"), os.path.join(folder, "keys")
    said = children.run([os.path.join(os.path.dirname(parleyd), "parley"), "keys", "new", "--principal", "chats"], capture_output=True, text=True, check=True)
    with open(keys, "w", encoding="utf-8") as file:
        file.write(said.stdout.splitlines()[1] + "\n")
    os.chmod(keys, 0o600)
    plan = DEMOS["bot"].replace("opt: {debug: True,", "opt: {password: let me in,")
    for principal, word in ("", "the key 'principal' must name"), ("principal: others", "no key of --keys is 'others'"), ("principal: chats", None):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{plan}{principal}\n")
        command = ["--http", "127.0.0.1:0", "--keys", keys, "--service", path]
        if word is not None:
            done = children.run([parleyd, "--listen", "127.0.0.1:0", *command], capture_output=True, text=True)
            assert done.returncode == 1 and word in done.stderr, done
    with children.Daemon(parleyd, *command) as parley:
        ann = Person(parley)
        ann.say("hello")
        assert ann.read()["text"].startswith("Sorry, this conversation bot is password-protected.")
        ann.say("let me in")
        assert ann.read()["quick_replies"] == ["begin", "exit"]
        ann.say("begin")
        assert ann.read()["text"].startswith("Welcome to the ParlAI Chatbot demo.")
        ann.say("one two")
        ann.told("one two")
        ann.close()


DURABLE = """
world_module: parley.worlds
overworld: menu
task_name: durable
max_workers: 1
grace: 600
log: {log}
tasks:
  pair:
    onboard_world: form
    ask:
    - {{key: name, text: Who are you?}}
    - {{key: side, text: Which side?, choices: [left, right], strict: true}}
    task_world: relay
    agents_required: 2
    welcome: Speak.
    eligible: {{side: left}}
    timeout: 3000
    notice: 3000
  bot: {{task_world: chat, model: echo, welcome: Here is a bot.}}
  trio: {{task_world: chat, agents_required: 2, model: tiny, agent: Tiny, max_tokens: 60, names: always}}
  late: {{task_world: relay, agents_required: 2, timeout: 1}}
  panel: {{task_world: "attached:panel:1", agents_required: 2, roles: [asks, answers], welcome: A panel., timeout: 3000, notice: 3000}}
"""
DURABLE_MENU = ["pair", "bot", "trio", "late", "panel"]


def secret_of(name):
    return f"{name} has a long secret"


def come_back(parley, name, text):
    """The person of this secret says a text, once the stored people are read."""
    while True:
        one = Person(parley, secret_of(name))
        one.say(text)
        said = one.read()
        if isinstance(said, dict):
            one.first = said["text"], said["quick_replies"]
            return one
        assert said == (1013, "the stored people are being read: come again"), said
        one.close()


def begin(parley, who, name):
    one = come_back(parley, who, "hello")
    assert one.first == ("Welcome. Choose what to do.", DURABLE_MENU), one.first
    one.say(name)
    return one


def onboarded(parley, who, name):
    one = begin(parley, who, "pair")
    one.told("Who are you?")
    one.say(name)
    one.told("Which side?", quick_replies=["left", "right"])
    return one


def rest_of(one):
    """The texts that had come before the daemon was killed."""
    texts = []
    try:
        while True:
            texts.append(one.read()["text"])
    except (AssertionError, ConnectionError):
        return texts


def durable(parleyd, model, folder):
    """All are where they were after kill -9: in the menu, a form, a pool, a talk and with an agent, also amid its answer; who was away gets what was said."""
    path = os.path.join(folder, "durable.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(DURABLE.format(log=os.path.join(folder, "kept.jsonl")))
    flags = ["--model", f"tiny={model}", "--data", os.path.join(folder, "data"), "--http", "127.0.0.1:0", "--service", path]
    menu = DURABLE_MENU
    with Mortal(parleyd, *flags) as parley:
        worker, ivy = attached(parley), begin(parley, "ivy", "panel")
        children.until("Ivy waits", lambda: metric(parley, "waiting") == 1)
        joe = begin(parley, "joe", "panel")
        ivy.told("A panel.")
        joe.told("A panel.")
        ivy.told("Your question?", quick_replies=["Why?", "How?"])
        ivy.say("why")
        joe.told("asks: why")
        eve = onboarded(parley, "eve", "Eve")
        late = begin(parley, "late", "late")
        gus, hal = onboarded(parley, "gus", "Gus"), onboarded(parley, "hal", "Hal")
        gus.say("left")
        hal.say("left")
        gus.told("Speak.")
        hal.told("Speak.")
        gus.say("one")
        hal.told("one")
        hal.close()
        children.until("Hal is away", lambda: metric(parley, "away") == 1)
        heard(parley, gus, "where are you?")
        ann = onboarded(parley, "ann", "Ann")
        ann.say("left")
        ann.say("hello?")
        ann.told("Please wait while we pair you with another person. If you wish to exit, type *EXIT*.")
        kim = begin(parley, "kim", "bot")
        kim.told("Here is a bot.")
        kim.say("sing")
        kim.told("sing")
        bob = come_back(parley, "bob", "hello")
        come_back(parley, "zoe", "hello").close()  # what she gets is told behind all that came before: it is durable
    for one in eve, late, gus, ann, kim, bob, ivy, joe:
        one.close()
    worker.kill()
    worker.wait()
    with Mortal(parleyd, *flags) as parley:
        worker, joe = attached(parley), come_back(parley, "joe", "because")
        assert joe.first == ("Welcome. Choose what to do.", menu), joe.first
        ivy = come_back(parley, "ivy", "thanks")
        assert ivy.first[0] == "answers: because", ivy.first
        ivy.told("Welcome. Choose what to do.", quick_replies=menu)
        ivy.close()
        joe.close()
        worker.kill()
        worker.wait()
        bob = come_back(parley, "bob", "what?")
        assert bob.first == ("Please choose one of these.", menu), bob.first
        eve = come_back(parley, "eve", "upwards")
        assert eve.first == ("Please choose one of these answers.", ["left", "right"]), eve.first
        ann = come_back(parley, "ann", "hello?")
        assert ann.first[0].startswith("Please wait while"), ann.first
        hal = come_back(parley, "hal", "here")
        assert hal.first[0] == "where are you?", hal.first
        gus = come_back(parley, "gus", "good")
        assert gus.first[0] == "here", gus.first
        hal.told("good")
        kim = come_back(parley, "kim", "sing")
        assert kim.first == ("sing", None), kim.first
        late = come_back(parley, "late", "still?")
        if late.first[0].startswith("Please wait"):
            late.told("Nobody was found to pair you with.")
        else:  # the time was over before; in the first daemon it may have been told so
            assert late.first[0] in ("Nobody was found to pair you with.", "Please choose one of these."), late.first
        late.close()
        eve.say("left")
        ann.told("Speak.")
        eve.told("Speak.")
        kim.say("[DONE]")
        kim.told("Welcome. Choose what to do.", quick_replies=menu)
        bob.say("trio")
        children.until("Bob waits", lambda: metric(parley, "waiting") == 1)
        kim.say("trio")
        children.until("they are together", lambda: metric(parley, "tasks") == 3)
        bob.say("Where am I?")
        kim.told("Agent_0: Where am I?")  # so it is durable, and Tiny is asked
        parley.process.kill()
        told = {"kim": rest_of(kim), "bob": rest_of(bob)}
    for one in eve, ann, gus, hal, kim, bob:
        one.close()
    with children.Daemon(parleyd, *flags) as parley:
        come_back(parley, "zoe", "hello").close()
        kim, bob = Person(parley, secret_of("kim")), Person(parley, secret_of("bob"))
        kim.say("I am back.")
        bob.say("I, too.")
        for name, one in ("kim", kim), ("bob", bob):
            while not any(text.startswith("Tiny: ") for text in told[name]):
                told[name].append(one.read()["text"])
        answers = {next(text for text in told[name] if text.startswith("Tiny: ")) for name in told}
        assert len(answers) == 1, told
        hal = Person(parley, secret_of("hal"))
        heard(parley, hal, "better?")
        gus = come_back(parley, "gus", "bye [DONE]")
        assert gus.first[0] == "better?", gus.first
        hal.told("The other agent has ended the chat.")
        for one in kim, bob, gus, hal:
            one.close()
    with Mortal(parleyd, *flags) as parley:  # the one before was stopped in order
        bob = come_back(parley, "bob", "[DONE]")
        while bob.first != ("Welcome. Choose what to do.", menu):
            said = bob.read()
            bob.first = said["text"], said["quick_replies"]
        ann = Person(parley, secret_of("ann"))
        heard(parley, ann, "Eve?")
        eve = come_back(parley, "eve", "[DONE]")
        assert eve.first[0] == "Eve?", eve.first
        path = os.path.join(folder, "kept")
        children.until("the log has Bob's talk", lambda: "trio" in dict(log_lines(path, "durable", "Tiny")))
        talks = log_lines(path, "durable", "Tiny")
    assert ("panel", [[("asks", "why"), ("answers", "because")]]) in [(name, [group[-2:] for group in dialog]) for name, dialog in talks], talks
    talks = [talk for talk in talks if talk[0] != "panel"]
    assert talks[1] == ("pair", [[("Gus", "one")], [("Gus", "where are you?"), ("Hal", "here")], [("Gus", "good"), ("Hal", "better?")]]), talks
    acts = [act for group in dict(talks)["trio"] for act in group]
    assert acts[0] == ("Agent_0", "Where am I?") and "Tiny: " + next(text for name, text in acts if name == "Tiny") in answers, (acts, answers)


HELD = """
import sys, parley
@parley.agent("held", deterministic=True)
class Held:
    def observe(self, messages): self.text = messages[-1].text
    def act(self):
        print("asked", flush=True)
        sys.stdin.readline()
        return self.text.upper()
parley.serve(Held, sys.argv[1])
"""


def n_conversations(parley, model):
    """How many there are, also those that only the journal has."""
    with grpc.insecure_channel(parley.address) as channel:
        found = conversations_pb2_grpc.ConversationsStub(channel).List(conversations_pb2.ConversationsListRequest(), timeout=children.PATIENCE)
        return [one.model for one in found.conversations].count(model)


def goes_on(parleyd, folder):
    """An answer that could not be stored is computed again once it can be, and the talk goes on. What the agent has forgotten amid an answer is closed,
    and so is, with its task, the conversation of a model that was unloaded."""
    path = os.path.join(folder, "held.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{world_module: parley.worlds, overworld: menu, task_name: held, max_workers: 1, tasks: {held: {task_world: chat, model: held, welcome: I listen.}}}")
    with children.Daemon(parleyd, "--data", os.path.join(folder, "held"), "--http", "127.0.0.1:0", "--service", path) as parley:
        worker = attached(parley, "held", ["-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def answers():
            worker.stdin.write("\n")
            worker.stdin.flush()

        ann = Person(parley, secret_of("ann"))
        ann.say("hello")
        ann.told("Welcome. Choose what to do.", quick_replies=["held"])
        ann.say("held")
        ann.told("I listen.")
        ann.say("sing")
        assert worker.stdout.readline() == "asked\n"
        test_rooms.fails_to_store(parley, answers)
        assert worker.stdout.readline() == "asked\n"
        heard(parley, ann, "louder")
        answers()
        ann.told("SING")
        assert worker.stdout.readline() == "asked\n"
        answers()
        ann.told("LOUDER")
        ann.say("softly")
        assert worker.stdout.readline() == "asked\n"
        assert n_conversations(parley, "held") == 1
        ann.say("[RESET]")
        ann.told("[History Cleared]")
        children.until("the former one to be closed", lambda: n_conversations(parley, "held") == 1)
        children.until("its turn to end", lambda: test_rooms.metric(parley, "parley_cancelled_turns_total{", "held") == "1")
        with grpc.insecure_channel(parley.address) as channel:
            models_pb2_grpc.ModelsStub(channel).Unload(models_pb2.ModelsUnloadRequest(name="held"), timeout=children.PATIENCE)
        assert n_conversations(parley, "held") == 1
        ann.say("[DONE]")
        ann.told("Welcome. Choose what to do.", quick_replies=["held"])
        assert n_conversations(parley, "held") == 0
        ann.close()
        worker.kill()
        worker.wait()


def forgets(parleyd, write_tiny_model, folder):
    """An agent that has heard more than its context holds answers what was said last, as if it were the first text, also after kill -9."""
    path, model = os.path.join(folder, "small.yaml"), os.path.join(folder, "small.gguf")
    children.run([write_tiny_model, model, "256"], check=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{world_module: parley.worlds, overworld: menu, task_name: small, max_workers: 1, tasks: {bot: {task_world: chat, max_tokens: 20, welcome: Speak.}}}")
    flags = ["--model", f"small={model}", "--data", os.path.join(folder, "small"), "--http", "127.0.0.1:0", "--service", path]

    def talk(ann, numbers):
        for number in numbers:
            ann.say(f"Say more, {number}.")
            said = ann.read()["text"]
            assert not said.startswith("Sorry"), (number, said)

    with Mortal(parleyd, *flags) as parley:
        ann = Person(parley, secret_of("ann"))
        ann.say("hello")
        ann.told("Welcome. Choose what to do.", quick_replies=["bot"])
        ann.say("bot")
        ann.told("Speak.")
        talk(ann, range(10))
        resource.prlimit(parley.process.pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        ann.say("x" * 140)  # it goes on in a conversation that cannot be stored
        children.until("the journal to fail", lambda: test_rooms.metric(parley, "parley_journal_failing ") == "1")
        resource.prlimit(parley.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        said = ann.read()["text"]
        assert not said.startswith("Sorry"), said
        children.until("the full ones to be closed", lambda: test_rooms.metric(parley, "parley_conversations{", "small") == "1")
        talk(ann, range(10))
    with Mortal(parleyd, *flags) as parley:
        ann = come_back(parley, "ann", "Say more.")
        assert not ann.first[0].startswith("Sorry"), ann.first
        talk(ann, range(10))
        ann.say("x" * 400)
        while ann.read()["text"] != "Sorry, this world closed. Returning to overworld.":
            pass  # the kill may have had an answer told twice
        ann.told("Welcome. Choose what to do.", quick_replies=["bot"])
        ann.close()


def main():
    parleyd = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "service.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PLAN.format(log=os.path.join(folder, "talks.jsonl")))
        with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--service", path) as parley:
            for test in (pair, bots, own, times, places, rules, stops):
                test(parley)
                print(f"{test.__name__}: good", flush=True)
        said = dict(log_lines(os.path.join(folder, "talks")))
        assert said["pair"] == [[("Ann", "two\nlines"), ("Bob", "a picture")], [("Bob", "still there?"), ("Ann", "yes")], [("Ann", "here")]], said
        assert [name for group in said["group"] for name, _ in group] == ["Agent_1", "Agent_0", "Max"], said
        as_parlai(parleyd, folder)
        refused(parleyd, folder)
        with_keys(parleyd, folder)
        model = os.path.join(folder, "tiny.gguf")
        children.run([sys.argv[2], model], check=True)
        durable(parleyd, model, folder)
        goes_on(parleyd, folder)
        forgets(parleyd, sys.argv[2], folder)
    print("service: passed")


if __name__ == "__main__":
    main()
