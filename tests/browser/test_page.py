#!/usr/bin/env python3
"""The page in Debian's Chromium: by the keyboard alone, narrow and wide, light and dark; a reply is stopped, branched, reloaded, followed
in a second tab and past a kill; a hostile reply does nothing; a key is asked for once.

usage: test_page.py PARLEYD WRITE_TINY_MODEL [NAME…]      (any python3; no packages; skipped without Chromium)"""
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402
from cable import Cable  # noqa: E402
from calls import ANSWERING, DONE, IDLE, N_DONE, READY, SHOWN, call, conversation, ids, leave, overflow, transcript, write  # noqa: E402
from chromium import Chromium  # noqa: E402

SKIPPED = 77
KV_BYTES = 2 << 20  # of a model
ITEMS = "[...document.querySelectorAll('[role=menuitemradio]')]"
N = 2000  # tokens of a reply in whose midst something happens
HOSTILE = "\n\n".join([
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'><svg onload='window.harmed = 1'></svg>",
    "[link](javascript:window.harmed=1) [data](data:text/html,<script>1</script>) [j2](JaVa\tScRiPt:alert(1)) ![image](http://127.0.0.1:1/seen.png)",
    "<javascript:alert(1)> <a href='javascript:window.harmed=1'>a</a> https://example.org/ok",
    "\u202e\u2066 evil \u202d\u200f bidi \ufffd \x01\x7f " + "\U000e0001",
    "```html\n<script>window.harmed = 1</script>\n```", "$\\href{javascript:window.harmed=1}{x}$ $$\\htmlData{a=b}{x}$$ \\(\\def\\x{\\x\\x}\\x\\)",
    "> " * 400 + "deep", "| a | b |\n|---|---|\n| <script>1</script> | [x](javascript:1) |", "[unclosed](", "```unclosed\n" + "*" * 3000,
])


def item(name):
    """A model's item in the menu."""
    return f"{ITEMS}.find((item) => item.innerText.startsWith('{name}'))"


class Ready:
    """A daemon and a browser that all tests use."""

    def __init__(self, daemon, browser, flags, parleyd):
        self.daemon, self.browser, self.flags, self.parleyd = daemon, browser, flags, parleyd
        self.http = daemon.http

    def page(self, where="", **more):
        page = self.browser.open(f"http://{self.http}/{where}", **more)
        page.until(READY)
        return page

    def slow(self, title, n_tokens=N):
        """The address of a conversation whose replies take a while."""
        return "#/c/" + conversation(self.http, "long", title, temperature=1, seed="7", ignoreEos=True, maxTokens=n_tokens)


def check_looks(ready):
    """At four widths and in both themes: six requests at most, no fault, nothing wider than the window."""
    for width, dark in ((360, False), (400, True), (1400, False), (2000, True)):
        page = ready.page(width=width, dark=dark)
        page.until("document.querySelector('.welcome')")
        assert len([url for url in page.requests if not url.startswith("data:")]) <= 6, page.requests
        assert not page.errors and not overflow(page), (width, page.errors, overflow(page))
        ground = page.js("getComputedStyle(document.body).backgroundColor")
        assert (int(ground[4:].split(",")[0]) < 128) == dark, ground
        page.press("Control+.")
        for tab in ("tree", "settings", "batch"):
            page.until(f"document.querySelector('#tab-{tab}[aria-selected=true]')")
            if width < 1000:  # it covers the rest, and has the keyboard
                assert page.js(f"document.activeElement.id === 'tab-{tab}' && document.querySelector('#main').inert"), (width, tab)
            assert not overflow(page), (width, tab, overflow(page))
            page.tab_to("[role=tab][aria-selected=true]")
            page.press("ArrowRight")
        page.press("Control+.")
        page.until("document.querySelector('#panel').hidden")
        if width < 1000:
            assert page.js("document.activeElement.matches('.head button') && !document.querySelector('#main').inert")
            page.tab_to(".open-list", backwards=True)
            page.press("Enter")
            page.until("document.activeElement.matches('.sidebar button') && document.querySelector('#main').inert")
            page.press("Escape")
            page.until("document.activeElement.matches('.open-list') && !document.querySelector('#main').inert")
        page.shot(f"build/browser/empty-{width}-{'dark' if dark else 'light'}.png")


def check_keyboard(ready):
    """Ask, ask again, change, compare, find and delete, without a mouse."""
    for width, dark in ((1400, False), (400, True)):
        before = set(ids(ready.http))
        page = ready.page(width=width, dark=dark)
        write(page, "Name a river.")
        page.until(DONE)
        write(page, "And another one.")
        page.until(f"{N_DONE} === 2 && {IDLE}")
        mine = page.js("location.hash.slice(4)")
        assert [turn["messages"][0]["text"] for turn in transcript(ready.http, mine)] == ["Name a river.", "And another one."]

        # another reply: a fork after the first turn
        page.tab_to(".turn:last-child [aria-label='Another reply']", backwards=True)
        page.press("Enter")
        page.until(f"location.hash.slice(4) !== '{mine}' && {N_DONE} === 2 && {IDLE}")
        page.until("document.querySelector('.siblings')?.innerText.includes('2 / 2')")
        other = page.js("location.hash.slice(4)")
        assert call(ready.http, "Conversations/Get", {"conversation": other})["parent"] == mine
        leave(page)
        page.press("[")
        page.until(f"location.hash.slice(4) === '{mine}'")

        # the first message, changed
        page.until("document.querySelectorAll('.turn').length === 2")
        page.tab_to(".turn:first-child [aria-label='Edit and send again']", backwards=width > 1000)
        page.press("Enter")
        page.until("document.activeElement.matches('.user textarea')")
        page.write("Name a mountain.")
        page.press("Enter")
        page.until(f"document.querySelectorAll('.turn').length === 1 && {DONE} && {IDLE}")
        page.until("document.querySelector('.user-text').innerText === 'Name a mountain.'")

        # the tree: four turns below the start, walked to another one, compared
        page.press("Control+.")
        page.until("document.querySelectorAll('.tree .node').length === 4")
        page.tab_to(".tree [tabindex='0']")
        page.press("Home")
        page.until("document.activeElement.getAttribute('aria-label')?.includes('Name a river.')")
        page.press("ArrowRight")
        page.until("document.activeElement.getAttribute('aria-level') === '2'")
        page.shot(f"build/browser/tree-{width}.png")
        page.tab_to(".tree-foot button:last-child")
        page.press("Enter")
        page.until("document.querySelectorAll('dialog .side mark').length === 2")
        assert page.js("[...document.querySelectorAll('dialog mark')].map((m) => m.innerText)") == ["mountain.", "river."]
        page.shot(f"build/browser/compare-{width}.png")
        page.press("Escape")
        page.until("document.querySelector('dialog') === null")
        page.tab_to(".tree [tabindex='0']", backwards=True)
        page.press("Enter")
        page.until(f"['{mine}', '{other}'].includes(location.hash.slice(4))")

        # found by its name, deleted with its branches
        page.press("Control+K")
        page.until("document.activeElement.matches('.searchbox input')")
        page.type("river name")
        page.until("document.querySelectorAll('.list .row').length >= 1")
        page.press("ArrowDown")
        page.press("Tab")
        page.press("Enter")
        page.until("document.activeElement.matches('[role=menuitem]')")
        page.press("End")
        page.press("Enter")
        page.until("document.querySelector('dialog[open]')")
        page.tab_to("dialog [value=yes]")
        page.press("Enter")
        children.until("the branches are deleted", lambda: set(ids(ready.http)) <= before)
        assert not page.errors, page.errors


def check_stop(ready):
    """Escape ends a reply; what there is of it stays."""
    page = ready.page(ready.slow("stop", 30 * N))
    write(page, "Tell me a long story.")
    page.until(f"{ANSWERING} && document.querySelector('.markdown')?.textContent.length > 20")
    page.press("Escape")
    page.until(f"{IDLE} && document.querySelector('.ended')")
    assert "Stopped" in page.js("document.querySelector('.ended').innerText")
    turn = transcript(ready.http, page.js("location.hash.slice(4)"))[0]
    assert turn["finishReason"] == "FINISH_REASON_CANCELLED" and turn["reply"]


def opened_settings(page):
    """The panel of settings, by the keyboard; on a narrow window it is in the menu."""
    page.tab_to("[aria-label=Settings]", backwards=True)
    page.press("Enter")
    page.until("document.querySelector('#temperature')")


def check_settings(ready):
    """Sampling and the system prompt are the conversation's; what is no JSON is not used, and what the server refuses is said, once."""
    page = ready.page()
    opened_settings(page)
    for name, value in (("system", "Be brief."), ("temperature", "0.5"), ("maxTokens", "7"), ("tools", "{no JSON")):
        page.tab_to(f"#{name}")
        page.type(value)
    page.press("Tab")
    page.until("document.querySelector('#tools-error').innerText.startsWith('Not used yet')")
    page.tab_to("#tools", backwards=True)
    page.press("Control+A")
    page.press("Backspace")
    page.tab_to("#effort", backwards=True)
    page.press("h")
    page.until("document.querySelector('#effort').value === 'EFFORT_HIGH'")
    write(page, "Hello.")
    page.until("document.querySelector('.failure')?.innerText.includes('Reasoning is asked')")
    page.tab_to("#effort")
    page.press("Home")
    page.until("document.querySelector('#effort').value === ''")
    page.tab_to(".failure button", backwards=True)
    page.press("Enter")
    page.until(f"{DONE} && {IDLE}")
    mine = call(ready.http, "Conversations/Get", {"conversation": page.js("location.hash.slice(4)")})
    assert mine["sampling"] == {"temperature": 0.5, "maxTokens": 7} and mine["system"] == "Be brief." and mine["turns"] == 1, mine
    page.tab_to("#temperature")
    page.press("Control+A")
    page.press("Backspace")
    page.press("Tab")
    children.until("the temperature is the model's", lambda: "temperature" not in call(ready.http, "Conversations/Get", {"conversation": mine["conversation"]})["sampling"])


def check_constrained(ready):
    """A reply matches a JSON schema. A call of a tool is a card, also after a reload and in another browser; its result is typed in."""
    for width, dark in ((1400, True), (400, False)):
        page = ready.page("#/c/" + conversation(ready.http, "long", f"constrained {width}", temperature=1, seed="3", maxTokens=200), width=width, dark=dark)
        of = page.js("location.hash.slice(4)")
        if width > 1000:
            opened_settings(page)
        else:
            page.tab_to("[aria-label=More]", backwards=True)
            page.press("Enter")
            page.pick("Settings")
            page.until("document.activeElement.matches('#tab-settings')")
        page.tab_to("#schema")
        page.type('{"type": "object", "properties": {"town": {"enum": ["Bonn", "Rome"]}}, "required": ["town"], "additionalProperties": false}')
        page.press("Tab")
        page.until("document.querySelector('.tag')?.innerText === 'JSON'")
        if width < 1000:
            page.press("Escape")
        write(page, "Name a town.")
        page.until(f"{N_DONE} === 1 && {IDLE}")
        assert json.loads(transcript(ready.http, of)[0]["reply"])["town"] in ("Bonn", "Rome")
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Bonn"]}}, "required": ["city"], "additionalProperties": False}}}]
        asked = call(ready.http, "Conversations/Ask", {"conversation": of, "turn": 2, "text": "And its weather?", "toolChoice": {"mode": "MODE_REQUIRED", "noParallel": True},
                                                       "tools": [{"name": "weather", "parameters": json.dumps(tools[0]["function"]["parameters"])}]})
        (its_call,) = asked["message"]["toolCalls"]
        for looks in (page, ready.browser.open(page.js("location.href"), width=width, dark=dark)):
            looks.until("document.querySelector('.assistant .card')?.innerText.includes('\"Bonn\"')")
            assert looks.js("document.querySelector('.assistant .card code').innerText") == "weather"
            assert "tool_call" not in looks.js("document.querySelector('.thread').innerText")
        page.shot(f"build/browser/call-{width}.png")
        page.reload()
        page.until("document.querySelector('.assistant .card textarea')")
        page.tab_to(".assistant .card textarea")
        page.type('{"sky": "clear"}')
        page.press("Tab")
        page.press("Enter")
        page.until(f"document.querySelectorAll('.turn').length === 3 && {N_DONE} === 3 && {IDLE}")
        (result,) = transcript(ready.http, of)[2]["messages"]
        assert result == {"role": "tool", "text": '{"sky": "clear"}', "name": "weather", "toolCallId": its_call["id"]}, result
        assert "clear" in page.js("document.querySelector('.user .card').innerText") and not overflow(page) and not page.errors, (overflow(page), page.errors)
        page.shot(f"build/browser/result-{width}.png")


def check_models(parleyd, browser, folder, write_tiny_model):
    """The menu of models says which are loaded; one that is not is loaded when it is chosen, and one that cannot be says why."""
    paths = {name: os.path.join(folder, name + ".gguf") for name in ("first", "second", "third")}
    for i, path in enumerate(paths.values()):
        children.run([write_tiny_model, path, str(2048 - 64 * i)], check=True)
    memory = 5 * (os.path.getsize(paths["first"]) + KV_BYTES) // 2  # two of three
    flags = [f"--model={name}={path}" for name, path in paths.items()]
    with children.Daemon(parleyd, *flags, "--http", "127.0.0.1:0", "--kv-bytes", str(KV_BYTES), "--memory", str(memory)) as daemon:
        unloaded = lambda: next(m["name"] for m in call(daemon.http, "Models/List", {"all": True})["models"] if m["state"] == "MODEL_STATE_UNLOADED")  # noqa: E731
        for width, dark in ((1400, False), (400, True)):
            name = unloaded()
            page = browser.open(f"http://{daemon.http}/", width=width, dark=dark)
            page.until(READY)
            page.tab_to(".model-button", backwards=True)
            page.press("Enter")
            page.until("document.activeElement.matches('[role=menuitemradio]')")
            assert page.js(item(name) + ".innerText").endswith("not loaded")
            page.shot(f"build/browser/models-{width}.png")
            page.pick(name)
            page.until(f"document.querySelector('.model-button').innerText === '{name}' && document.querySelector('.model-button .dot.ready')")
            write(page, "Hello.")
            page.until(f"{DONE} && {IDLE}")
            assert call(daemon.http, "Conversations/Get", {"conversation": page.js("location.hash.slice(4)")})["model"] == name
        for of in ids(daemon.http):  # they hold their models
            call(daemon.http, "Conversations/Close", {"conversation": of})
        name = unloaded()
        os.remove(paths[name])
        page.press("Control+Shift+O")
        page.tab_to(".model-button", backwards=True)
        page.press("Enter")
        page.pick(name)
        page.until("document.querySelector('.toasts').innerText.includes('" + name + ".gguf')")
        page.shot("build/browser/model-failed.png")


def same(ready, pages, of):
    """Waits until all show the whole reply, which is the server's."""
    children.until("the turn is complete", lambda: len(transcript(ready.http, of)) == 1)
    reply = transcript(ready.http, of)[0]["reply"]
    texts = []
    for page in pages:
        page.until(IDLE)
        page.until(DONE)
        texts.append(page.js(SHOWN))
    fresh = pages[0].browser.open(pages[0].js("location.href"))
    fresh.until(DONE)
    assert len(reply) > 100 and all(text == fresh.js(SHOWN) for text in texts), texts
    return reply


def check_reload(ready):
    """A reload, a second tab and a lost network in the middle of a reply: all end with the same text, and it was computed once."""
    page = ready.page(ready.slow("reload"))
    of = page.js("location.hash.slice(4)")
    write(page, "Tell me a long story.")
    page.until("document.querySelector('.markdown')?.textContent.length > 20")
    second = ready.browser.open(page.js("location.href"))
    beside = ready.browser.beside(page, page.js("location.href"))
    beside.until("document.querySelector('.markdown')?.textContent.length > 20")
    beside.offline(True)
    page.reload()
    page.until("document.querySelector('.user-text')?.innerText === 'Tell me a long story.'")
    # Chromium cuts no stream then; what the page asks for at its end fails.
    children.until("the turn is complete", lambda: len(transcript(ready.http, of)) == 1)
    beside.until(f"{IDLE} && document.querySelector('.is-away')")
    beside.offline(False)
    same(ready, [page, second, beside], of)


def check_kill(ready, folder):
    """kill -9 in mid-sentence: the page says that it waits, and the reply goes on to the bytes of one that nothing disturbed."""
    flags = [*ready.flags, "--data", os.path.join(folder, "data"), "--http"]
    asked = {"temperature": 1, "seed": "11", "ignoreEos": True, "maxTokens": N}
    with children.Daemon(ready.parleyd, *flags, "127.0.0.1:0") as daemon:
        calm = conversation(daemon.http, "long", "calm", **asked)
        whole = call(daemon.http, "Conversations/Ask", {"conversation": calm, "turn": 1, "text": "Tell me a long story."})["message"]["text"]
        of = conversation(daemon.http, "long", "killed", **asked)
    with children.Daemon(ready.parleyd, *flags, daemon.http) as first:
        page = ready.browser.open(f"http://{first.http}/#/c/{of}")
        page.until(READY)
        write(page, "Tell me a long story.")
        page.until("document.querySelector('.markdown')?.textContent.length > 20")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        page.until("document.querySelector('.lost')")
        page.shot("build/browser/lost.png")
        first.process.returncode = 0  # as it was to be
    with children.Daemon(ready.parleyd, *flags, daemon.http) as second:
        page.until("document.querySelector('.lost') === null")
        page.until(f"{IDLE} && {DONE}")
        assert transcript(second.http, of)[0]["reply"] == whole
        shown = page.js(SHOWN)
        fresh = ready.browser.open(f"http://{second.http}/#/c/{calm}")
        fresh.until(DONE)
        assert shown == fresh.js(SHOWN)


def check_files(ready, folder):
    """What is exported in both JSON forms can be imported, and is the same conversation; a text file becomes part of a message."""
    of = conversation(ready.http, "long", "Kept")
    turns = [{"messages": [{"role": "user", "text": f"Question {i}"}], "reply": f"Answer {i} \u00e9 \U0001f600", "finishReason": "FINISH_REASON_STOP"} for i in range(3)]
    call(ready.http, "Conversations/Import", {"conversation": of, "turns": turns})
    said = lambda c: [(t["messages"][0]["text"], t["reply"]) for t in transcript(ready.http, c)]  # noqa: E731
    page = ready.page(f"#/c/{of}")
    page.until("document.querySelectorAll('.turn').length === 3")
    page.download_to(folder)
    for label, name in (("to read", "Kept.md"), ("all of it", "Kept.json"), ("OpenAI", "Kept.messages.json")):
        page.tab_to("[aria-label=More]", backwards=True)
        page.press("Enter")
        page.pick(label)
        path = os.path.join(folder, name)
        children.until(f"{name} is written", lambda: os.path.exists(path) and os.path.getsize(path) > 100)
        if not name.endswith(".json"):
            continue
        before = page.js("location.hash")
        page.choose(lambda: page.click(".list-foot [aria-label^=Import]"), path)
        page.until(f"location.hash !== {before!r} && document.querySelectorAll('.turn').length === 3")
        assert said(page.js("location.hash.slice(4)")) == said(of)
    text = os.path.join(folder, "notes.txt")
    with open(text, "w") as out:
        out.write("some ``` notes\n")
    page.tab_to("[aria-label^=Attach]")
    page.choose(lambda: page.press("Enter"), text)
    page.until("document.querySelector('.file')?.innerText.includes('notes.txt')")
    write(page, "Read this.")
    page.until(f"document.querySelectorAll('.turn').length === 4 && {IDLE}")
    assert transcript(ready.http, page.js("location.hash.slice(4)"))[3]["messages"][0]["text"] == "notes.txt:\n````txt\nsome ``` notes\n````\n\nRead this."
    assert not page.errors, page.errors


def check_hostile(ready):
    """Nothing in a reply, a message or a name becomes markup, code, a request or a link to code."""
    title = "<img src=x onerror=window.harmed=1>\u202e"
    of = conversation(ready.http, "long", title)
    call(ready.http, "Conversations/Import", {"conversation": of, "turns": [
        {"messages": [{"role": "user", "text": HOSTILE}], "reply": HOSTILE, "finishReason": "FINISH_REASON_STOP"}]})
    page = ready.page(f"#/c/{of}")
    page.until("document.querySelectorAll('.markdown > *').length > 5")
    page.until("document.querySelector('math')")
    assert page.js("window.harmed") is None
    assert page.js("document.querySelectorAll('.thread script, .thread img, .thread iframe, .thread [onerror], .thread [onload]').length") == 0
    links = page.js("[...document.querySelectorAll('.thread a')].map((a) => a.href + ' ' + a.rel)")
    assert links and all(link.startswith(("http:", "https:", "mailto:")) and "noopener" in link for link in links), links
    assert not [url for url in page.requests if not url.startswith((f"http://{ready.http}/", "data:"))], page.requests
    assert "<script>window.harmed = 1</script>" in page.js("document.querySelector('.markdown').textContent")
    assert not page.errors and not overflow(page), (page.errors, overflow(page))


def check_key(parleyd, browser, folder):
    """A key is asked for once a tab; a wrong one is asked for again; only administrators see the server at work."""
    keys = os.path.join(folder, "keys")
    with open(keys, "w") as out:
        for name, key, role in (("anna", "chat-key-123456", ""), ("root", "admin-key-123456", "admin")):
            print(name, hashlib.sha256(key.encode()).hexdigest(), role, file=out)
    os.chmod(keys, 0o600)
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--keys", keys) as daemon:
        page = browser.open(f"http://{daemon.http}/")
        for key in ("wrong-key-0", "chat-key-123456"):
            page.until("document.activeElement?.id === 'key'")
            page.type(key)
            page.press("Enter")
            if key.startswith("wrong"):
                page.until("document.querySelector('dialog .field-error').innerText.includes('does not know')")
        page.until("document.querySelector('dialog') === null && " + READY)
        page.reload()
        page.until(READY)
        assert page.js("document.querySelector('dialog')") is None
        page.press("Control+.")
        page.click("#tab-batch")
        page.until("document.querySelector('.panel-empty')?.innerText.includes('administrators')")
        page.tab_to(".panel-empty button")
        page.press("Enter")
        page.until("document.activeElement?.id === 'key'")
        page.press("Escape")  # the one that is there stays
        page.until("document.querySelector('dialog') === null && document.activeElement.matches('.panel-empty button')")
        page.press("Enter")
        page.until("document.activeElement?.id === 'key'")
        page.type("admin-key-123456")
        page.loading(lambda: page.press("Enter"))
        page.until("document.querySelector('.figures')")
        # A key that is not admitted any more is asked for anew, and what was open stays.
        write(page, "Hello.")
        page.until(f"document.querySelectorAll('.turn').length === 1 && {IDLE}")
        with open(keys, "w") as out:
            print("root", hashlib.sha256(b"other-key-123456").hexdigest(), "admin", file=out)
        daemon.process.send_signal(signal.SIGHUP)
        page.until("document.activeElement?.id === 'key'")
        page.type("other-key-123456")
        page.press("Enter")
        page.until("document.querySelector('dialog') === null && document.querySelectorAll('.turn').length === 1")
        write(page, "Again.")
        page.until(f"document.querySelectorAll('.turn').length === 2 && {IDLE}")


SAID = "[...document.querySelectorAll('.room-view [role=log] .said')].map((e) => e.querySelector('b').innerText + ': ' + e.querySelector('.said-text').innerText)"
EVENTS = "[...document.querySelectorAll('.room-event')].map((e) => e.innerText)"
STATE = "(document.querySelector('.room-state').checkVisibility() ? document.querySelector('.room-state').innerText : 'hidden')"


def check_room(ready):
    """Two windows side by side in one room: who is there, who types, words in one order, quick replies, an agent; lost connections
    and a reload miss nothing; who leaves is asked again. Narrow and wide, by the keyboard."""
    pages, cable = {}, Cable(ready.http)
    for name, width, http in (("Ann", 1000, ready.http), ("Bob", 380, cable.address)):
        page = pages[name] = ready.browser.open(f"http://{http}/#/r/the%20den", width=width, dark=width < 1000)
        page.until("document.activeElement?.id === 'person'")
        page.type(name)
        page.press("Enter")
        page.until(f"{EVENTS}.includes('{name} joined') && document.activeElement.matches('.room-view textarea')")
    ann, bob = pages["Ann"], pages["Bob"]
    ann.until(f"{EVENTS}.includes('Bob joined') && document.querySelectorAll('.person').length === 2")
    ann.type("Is it ")
    bob.until(f"{STATE} === 'Ann types…'")
    ann.type("me? <b>\u202eno</b>")
    ann.press("Enter")
    bob.until(f"{SAID}.length === 1 && {STATE} === ''")
    assert bob.js(SAID) == ["Ann: Is it me? <b>\u202eno</b>"], bob.js(SAID)
    assert bob.js("document.querySelector('.room-view .said-text').childElementCount") == 0
    bob.type("It is.")
    bob.press("Enter")
    ann.until(f"{SAID}.at(-1) === 'Bob: It is.'")
    bob.until("document.querySelectorAll('.said.is-mine').length === 1")
    cable.cut()  # Bob's connections
    ann.type("Are you there?")
    ann.press("Enter")
    bob.until(f"{SAID}.at(-1) === 'Ann: Are you there?'")
    bob.type("I am.")
    cable.cut()
    bob.press("Enter")
    ann.until(f"{SAID}.at(-1) === 'Bob: I am.'")
    bob.until(f"{SAID}.length === 4 && document.querySelector('.is-unsaid') === null")
    # Another person, whose client knows quick replies, and an agent: both over gRPC's JSON.
    ann.js(f"""(async () => {{
        const s = new WebSocket('ws://{ready.http}/v1/rooms/socket', 'parley.rooms.v1');
        await new Promise((r) => s.onopen = r);
        for (const frame of [{{hello: {{name: 'Eve'}}}}, {{join: {{room: 'the den'}}}}, {{invite: {{room: 'the den', agent: 'echo', name: 'Echo'}}}},
                             {{say: {{room: 'the den', text: 'tea or coffee?', clientSeq: 1, quickReplies: ['tea', 'coffee']}}}}]) s.send(JSON.stringify(frame));
        window.eve = s;
    }})()""")
    bob.until(f"{SAID}.at(-1) === 'Eve: tea or coffee?'")
    bob.tab_to(".quick-replies button", backwards=True)
    bob.press("Enter")
    ann.until(f"{SAID}.at(-1) === 'Bob: coffee' || {SAID}.at(-1) === 'Bob: tea'")
    ann.type("Echo, say something.")
    ann.press("Enter")
    bob.until(f"{SAID}.at(-1).startsWith('Echo: ') && [...document.querySelectorAll('.person .tag')].some((e) => e.innerText === 'agent')")
    ann.js("eve.close()")
    bob.until("[...document.querySelectorAll('.person.is-away')].some((e) => e.innerText.includes('Eve'))")
    for page in (ann, bob):
        assert not page.errors and not overflow(page), (page.errors, overflow(page))
    ann.shot("build/browser/room-wide.png")
    bob.shot("build/browser/room-narrow.png")
    said = ann.js(SAID)
    bob.reload()  # the same person, with all that was said
    bob.until(f"{SAID}.length === {len(said)} && document.querySelectorAll('.person').length === 4")
    assert bob.js(SAID) == said and bob.js(EVENTS) == ann.js(EVENTS)
    bob.until("document.activeElement.matches('.room-view textarea')")
    bob.type("Back again.")
    bob.press("Enter")
    ann.until(f"{SAID}.at(-1) === 'Bob: Back again.'")
    bob.click("[aria-label='Leave the room']")
    bob.until("document.activeElement?.id === 'person' && document.querySelector('.room-door').innerText.includes('You have left')")
    ann.until(f"{EVENTS}.at(-1) === 'Bob left'")
    # An agent that is dismissed amid its answer: its words go with it, and until then its button stays the same node.
    ann.js("""window.told = null;
        window.WebSocket = class extends EventTarget {
          static OPEN = 1;
          readyState = 1;
          constructor() {
            super();
            window.socket = this;
            window.told = (frame) => this.dispatchEvent(new MessageEvent('message', {data: JSON.stringify(frame)}));
          }
          send(text) { (window.sent ??= []).push(JSON.parse(text)); }
          close() {}
        };
        location.hash = '#/r/made%20up'""")
    ann.until("document.activeElement?.id === 'person'")
    ann.press("Enter")
    ann.until("told !== null")
    button = "document.querySelector('.room-coming button')"
    ann.js(f"""told({{snapshot: {{members: [{{participant: 'a', name: 'Echo', kind: 'ROOM_KIND_AGENT'}}], nextClientSeq: 1}}}});
        told({{piece: {{participant: 'a', text: 'one'}}}})""")
    ann.until(f"{button} !== null")
    ann.js(f"""window.first = {button};
        first.focus();
        told({{piece: {{participant: 'a', offset: '3', text: ' two'}}}})""")
    ann.until("document.querySelector('.room-coming .said-text').innerText === 'one two'")
    assert ann.js(f"{button} === first && document.activeElement === first")
    # Its newest words are in view, until one scrolls back.
    ann.js("told({piece: {participant: 'a', offset: '7', text: '\\nand on'.repeat(100)}})")
    coming = "document.querySelector('.room-coming')"
    ann.until(f"{coming}.scrollTop > 1000 && {coming}.scrollTop + {coming}.clientHeight >= {coming}.scrollHeight - 1")
    ann.js(f"{coming}.scrollTop = 500; told({{piece: {{participant: 'a', offset: '707', text: ' three'}}}})")
    ann.until("document.querySelector('.room-coming .said-text').innerText.endsWith('three')")
    assert ann.js(f"{coming}.scrollTop") == 500
    ann.js("told({entry: {seq: 1, kind: 'ROOM_ENTRY_KIND_LEFT', name: 'Echo', participant: 'a', text: 'dismissed', unixMs: '1'}})")
    ann.until(f"{button} === null && {EVENTS}.at(-1) === 'Echo dismissed'")
    # A token that is nothing any more: the person is another one, and so may be the room, whose log is read from its beginning.
    ann.js("""window.first = socket;
        told({welcome: {participant: 'm', token: 'secret', name: 'Ann'}});
        told({error: {code: 'NOT_FOUND', field: 'token', message: 'nobody has it'}});
        socket.dispatchEvent(new CloseEvent('close', {code: 4003}))""")
    ann.until("socket !== first")
    ann.js("socket.dispatchEvent(new Event('open'))")
    assert ann.js("sent.slice(-2)") == [{"hello": {"name": "Ann"}}, {"join": {"room": "made up", "afterSeq": 0}}]
    ann.js("""told({snapshot: {members: [], nextClientSeq: 1}});
        told({entry: {seq: 1, kind: 'ROOM_ENTRY_KIND_SAID', name: 'Zoe', participant: 'z', text: 'Another room.', unixMs: '1'}})""")
    ann.until(f"{SAID}.at(-1) === 'Zoe: Another room.' && {EVENTS}.length === 0")
    ann.js("location.hash = ''")
    ann.until("document.querySelector('.welcome')?.checkVisibility() && document.querySelector('.room-view') === null")


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    wanted = sys.argv[3:]
    if shutil.which("chromium") is None:
        print("Chromium is missing: ./run setup browser installs it")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        long = os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, long, "65536"], check=True)
        flags = ["--model", f"long={long}"]
        with children.Daemon(parleyd, *flags, "--http", "127.0.0.1:0") as daemon:
            ready = Ready(daemon, browser, flags, parleyd)
            checks = {"looks": lambda: check_looks(ready), "keyboard": lambda: check_keyboard(ready), "stop": lambda: check_stop(ready),
                      "settings": lambda: check_settings(ready), "constrained": lambda: check_constrained(ready),
                      "models": lambda: check_models(parleyd, browser, folder, write_tiny_model), "reload": lambda: check_reload(ready),
                      "files": lambda: check_files(ready, folder), "hostile": lambda: check_hostile(ready), "kill": lambda: check_kill(ready, folder), "room": lambda: check_room(ready),
                      "key": lambda: check_key(parleyd, browser, folder)}
            for name, check in checks.items():
                if not wanted or name in wanted:
                    check()
                    print(f"{name}: good", flush=True)


if __name__ == "__main__":
    main()
