"""Open WebUI as installed, in headless Chromium: two turns, a title, a tool. Only its addresses are set, and that replies are greedy."""
import json
import os
import subprocess
import tempfile
import urllib.request

from playwright.sync_api import sync_playwright

from checks import MODEL, TOOLS_MODEL, URL, check, free_port, main, until_up

PATIENCE = 240  # seconds for a reply: each message of Open WebUI carries a dozen tools' schemas
SETTINGS = {"OPENAI_API_BASE_URL": URL, "OPENAI_API_KEY": "none", "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "x", "ENABLE_OLLAMA_API": "False",
            "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1", "ENABLE_VERSION_UPDATE_CHECK": "False", "SCARF_NO_ANALYTICS": "true", "DO_NOT_TRACK": "true",
            "RAG_EMBEDDING_ENGINE": "openai", "AUDIO_STT_ENGINE": "openai", "DEFAULT_MODEL_PARAMS": '{"temperature": 0}'}
# Small as the model is, it repeats the form of a call; which function it names is its own choice among Open WebUI's.
CALL = 'Repeat after me: <tool_call>\n{"name": "get_current_timestamp", "arguments": {}}\n</tool_call>'
SITE = None  # http://HOST:PORT of Open WebUI
BROWSER = None


def stored(path):
    """What Open WebUI keeps, by its own API; the page's session is the one user's."""
    request = urllib.request.Request(f"{SITE}/api/v1/{path}", headers={"Authorization": f"Bearer {token()}"})
    return json.load(urllib.request.urlopen(request, timeout=PATIENCE))


def token():
    request = urllib.request.Request(f"{SITE}/api/v1/auths/signin", b'{"email": "", "password": ""}', {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=PATIENCE))["token"]


class Chat:
    """A new chat of a model's, in a page of its own."""

    def __init__(self, model):
        self.page = BROWSER.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.goto(f"{SITE}/?models={model}")
        self.page.wait_for_selector("#chat-input")
        self.n_replies = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            self.page.screenshot(path="build/clients/open_webui.png")
        self.page.close()

    def dismiss(self):
        """The news that Open WebUI shows a user once."""
        self.page.get_by_role("dialog").get_by_role("button").last.click()

    def say(self, text):
        """Sends a message; returns the reply once it has ended, which is when it can be rated."""
        self.page.click("#chat-input")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Enter")
        self.n_replies += 1
        reply = self.page.locator(".chat-assistant").nth(self.n_replies - 1)
        reply.wait_for()
        self.page.get_by_role("button", name="Good Response").nth(self.n_replies - 1).wait_for(state="attached")
        return reply.inner_text()

    def id(self):
        return self.page.url.rsplit("/", 1)[1]


@check("two turns and a title")
def _():
    with Chat(MODEL) as chat:
        chat.dismiss()
        said = chat.say("What is the capital of Germany?")
        assert "Berlin" in said, said
        again = chat.say("And what is the capital of France?")
        assert "Paris" in again, again
        chat.page.wait_for_function("!document.title.startsWith('New Chat') && !document.title.startsWith('Open WebUI')")
        kept = stored(f"chats/{chat.id()}")
        assert kept["title"] and kept["title"] != "New Chat" and len(kept["chat"]["history"]["messages"]) == 4, kept
        print(f"        {said!r}, {again!r}, title {kept['title']!r}", flush=True)


@check("a tool")
def _():
    with Chat(TOOLS_MODEL) as chat:
        said = chat.say(CALL)
        output = stored(f"chats/{chat.id()}")["chat"]["history"]["messages"].values()
        items = [item for message in output for item in message.get("output") or []]
        calls = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
        results = [item["call_id"] for item in items if item["type"] == "function_call_output"]
        assert calls and results and set(results) <= set(calls), items
        assert items[-1]["type"] == "message" and said.startswith("View Result from " + calls[results[0]]), (items, said)
        print(f"        called {', '.join(calls.values())}", flush=True)


def run():
    global SITE, BROWSER
    port = free_port()
    SITE = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log, sync_playwright() as playwright:
        command = ["setpriv", "--pdeathsig", "KILL", "--", os.environ["OPEN_WEBUI"], "serve", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | SETTINGS | {"DATA_DIR": folder, "HOME": folder})
        try:
            until_up(f"{SITE}/health", server, log)
            BROWSER = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            main("open_webui")
        finally:
            server.kill()
            server.wait()


run()
