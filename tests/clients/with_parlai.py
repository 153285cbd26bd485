"""ParlAI 1.7.2's own clients of its chat services: at a terminal, and for a browser, which asks a program that has the WebSocket."""
import json
import os
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

from checks import URL, check, free_port, main

PORT = urllib.parse.urlsplit(URL).port
BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench")
START = f"import runpy, sys; sys.path.insert(0, {BENCH!r}); import parlai_stand_ins; sys.path.pop(0); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
SECONDS = 120  # for anything that is to come
MENU = "Options: [echo|onboard data|chat|EXIT]"


class Client:
    """One of ParlAI's programs. What it prints is kept; wait() returns once it has printed something after what was waited for last."""

    def __init__(self, service, *arguments):
        command = [sys.executable, "-P", "-u", "-c", START, f"parlai.chat_service.services.{service}.client", "--port", str(PORT), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said, self.at, self.has_more = "", 0, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def read(self):
        for line in self.process.stdout:
            with self.has_more:
                self.said += line
                self.has_more.notify_all()

    def wait(self, *texts):
        for text in texts:
            with self.has_more:
                assert self.has_more.wait_for(lambda text=text: text in self.said[self.at:], SECONDS), f"{text!r} is not in {self.said[self.at:]!r}"
                self.at = self.said.index(text, self.at) + len(text)

    def type(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()


def at_terminal():
    return Client("terminal_chat", "--host", "127.0.0.1")


@check("a terminal: menu, form, task, the end")
def _():
    with at_terminal() as ann:
        ann.type("hi")
        ann.wait("Bot: Welcome to the overworld", MENU)
        ann.type("nonsense")
        ann.wait("Bot: Invalid option.", MENU)
        ann.type("onboard data")
        ann.wait("Bot: Transferring to onboard data", "Enter your name.")
        ann.type("Ann")
        ann.wait("Enter your favorite color.")
        ann.type("green")
        ann.wait("your name was Ann and your favorite color was green", MENU)
        ann.type("echo")
        ann.wait("Bot: Transferring to echo", "Welcome to the onboarding world for our echo bot.")
        ann.type("Gr\u00fc\u00dfe \U0001f600")
        ann.wait("Bot: Gr\u00fc\u00dfe \U0001f600")
        ann.type("[DONE]")  # the client itself sends EXIT then
        assert ann.process.wait(SECONDS) == 0, ann.said


@check("two terminals: a talk")
def _():
    with at_terminal() as ann, at_terminal() as bob:
        for one, name in (ann, "Ann"), (bob, "Bob"):
            one.type("hi")
            one.wait(MENU)
            one.type("chat")
            one.wait("Enter your display name.")
            one.type(name)
            one.wait("You will be matched with a random person.")
        ann.type("Is anybody there?")
        bob.wait("Bot: Is anybody there?")
        bob.type("I am.")
        ann.wait("Bot: I am.")
        bob.type("[DONE]")
        ann.wait("Bot: The other agent has ended the chat.", MENU)
        assert bob.process.wait(SECONDS) == 0, bob.said


@check("a browser")
def _():
    port = free_port()
    with Client("browser_chat", "--serving_port", str(port)) as program:
        program.wait("Please connect to the link")

        def ask(path, body=None):
            return urllib.request.urlopen(f"http://localhost:{port}{path}", body, timeout=SECONDS).read().decode()

        assert "<html" in ask("/")
        for text, answer in ("hi", "Welcome to the overworld"), ("nonsense", "Invalid option."), ("nothing", "Invalid option."):
            said = json.loads(ask("/interact", text.encode()))
            assert said["id"] == "Model" and said["episode_done"] is False and said["text"].startswith(answer), said
        assert ask("/reset", b"") == "{}"


main("parlai")
