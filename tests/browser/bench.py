#!/usr/bin/env python3
"""What the page must bear: ten thousand conversations, a tree of 200 branches, a line of megabytes, kills in mid-sentence; how soon it
is there; and what axe-core finds. Times are printed, not judged. Pictures are in build/browser.

usage: bench.py BUILD MODEL [first|list|tree|hostile|kill|axe|pictures]…"""
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402
from calls import DONE, IDLE, READY, SHOWN, call, conversation, transcript, write  # noqa: E402
from chromium import Chromium  # noqa: E402

N_LOADS, N_LISTED, N_BRANCHES, N_KILLS = 15, 10_000, 200, 5
KEPT_IMPACTS = ("serious", "critical")
LINE_BYTES = 4 << 20  # the longest reply that is kept
THEMES = ((400, False), (400, True), (1400, False), (1400, True))
# Frame times while something scrolls to its end and back.
SCROLLED = """(async (box) => {
    const times = [];
    let last = performance.now();
    for (let i = 0; i < 120; i++) {
        const part = i < 60 ? i / 59 : (119 - i) / 59;
        box.scrollTop = part * (box.scrollHeight - box.clientHeight);
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        times.push(now - last);
        last = now;
    }
    return times;
})"""


def processor_ms(page):
    """What the page's main thread has computed, whatever else the machine does."""
    page.call("Performance.enable", timeDomain="threadTicks")
    return 1000 * next(m["value"] for m in page.call("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")


def framed(page, expression):
    """Frame times of what an expression does, and the processor time of a frame."""
    before = processor_ms(page)
    times = page.js(expression)
    return f"{frames(times)}; {(processor_ms(page) - before) / len(times):.1f} ms of the processor a frame"


def frames(times):
    times = sorted(times)
    return f"frames: median {statistics.median(times):.1f} ms, 95 % {times[int(len(times) * 0.95)]:.1f} ms, longest {times[-1]:.1f} ms"


def first_paint(browser, address):
    """Each in a browser that has nothing of it, then once more with what the first left."""
    for name in ("first visit", "again"):
        paints, listed, requests = [], [], 0
        page = browser.open(f"http://{address}/")
        for _ in range(N_LOADS):
            if name == "first visit":
                page.close()
                page = browser.open("about:blank")
            page.requests.clear()
            page.go(f"http://{address}/")
            page.until(READY)
            page.until("performance.getEntriesByName('first-contentful-paint').length > 0")
            paints.append(page.js("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            listed.append(page.js("performance.getEntriesByType('resource').at(-1).responseEnd"))
            requests = max(requests, len([url for url in page.requests if not url.startswith("data:")]))
        print(f"{name}: first paint {statistics.median(paints):.0f} ms ({min(paints):.0f} to {max(paints):.0f}), all answers after "
              f"{statistics.median(listed):.0f} ms, {requests} requests")
        assert requests <= 6, page.requests


def open_many(address, n):
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        for i in range(n):
            body = json.dumps({"model": "echo", "metadata": {"title": f"Conversation {i} about {'rivers' if i % 1000 == 7 else 'hills'}"}})
            connection.request("POST", "/parley.v1.Conversations/Open", body, {"Content-Type": "application/json"})
            connection.getresponse().read()


def long_list(browser, parleyd):
    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as daemon:
        open_many(daemon.http, N_LISTED)
        page = browser.open(f"http://{daemon.http}/")
        start = time.monotonic()
        page.until("document.querySelectorAll('.list .row').length > 10")
        first = time.monotonic() - start
        page.until(f"document.querySelector('.list-foot').innerText.includes('{N_LISTED:,}')")
        print(f"{N_LISTED} conversations: first rows after {first:.2f} s, all known after {time.monotonic() - start:.2f} s")
        print("  scrolled,", framed(page, SCROLLED + "(document.querySelector('.list'))"))
        print("  search:", page.js("""(async () => {
            const input = document.querySelector('.searchbox input');
            input.value = 'rivers';
            const start = performance.now();
            input.dispatchEvent(new Event('input'));
            await new Promise(requestAnimationFrame);
            return (performance.now() - start).toFixed(1) + ' ms, ' + document.querySelectorAll('.list .row').length + ' found';
        })()"""))
        assert page.js("document.querySelectorAll('.list .row').length") == N_LISTED // 1000 and not page.errors, page.errors
        page.shot("build/browser/list.png")


def grow_tree(address, model, n):
    """A conversation with n branches, forked from each other at many turns."""
    turn = lambda text: {"messages": [{"role": "user", "text": text}], "reply": f"A reply to: {text}", "finishReason": "FINISH_REASON_STOP"}  # noqa: E731
    root = conversation(address, model, "A tree")
    call(address, "Conversations/Import", {"conversation": root, "turns": [turn(f"Question {i}") for i in range(8)]})
    members = [(root, 8)]
    for i in range(1, n):
        parent, turns = members[(i * 7) % len(members)]
        at = (i * 3) % turns
        fork = call(address, "Conversations/Fork", {"conversation": parent, "atTurn": at, "metadata": {
            "title": "A tree", "forked_at": str(at), "forked_generation": "1"}})["conversation"]
        more = 1 + i % 4
        call(address, "Conversations/Import", {"conversation": fork, "turns": [turn(f"Branch {i}, question {k}") for k in range(more)]})
        members.append((fork, at + more))
    return root


def big_tree(browser, address):
    root = grow_tree(address, "echo", N_BRANCHES)
    page = browser.open(f"http://{address}/#/c/{root}")
    page.until(READY)
    page.until(f"document.querySelector('.list').innerText.includes('{N_BRANCHES} branches')")
    page.press("Control+.")
    page.until("document.querySelectorAll('.tree .node').length > 10")
    rows = page.js("Number(document.querySelector('.tree svg').getAttribute('height')) / 34 - 1")
    idle = page.js("(async () => { const times = []; let last = performance.now(); for (let i = 0; i < 60; i++) { await new Promise(requestAnimationFrame); const now = performance.now(); times.push(now - last); last = now; } return times; })()")
    print("nothing to draw:", frames(idle))
    page.js("document.querySelector('.tree [tabindex=\"0\"]').focus()")
    walked = framed(page, """(async () => {
        const times = [];
        for (let i = 0; i < 150; i++) {
            const start = performance.now();
            document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true }));
            await new Promise(requestAnimationFrame);
            times.push(performance.now() - start);
        }
        return times;
    })()""")
    print(f"a tree of {N_BRANCHES} branches, {rows:.0f} turns: scrolled,", framed(page, SCROLLED + "(document.querySelector('.tree'))"))
    print("  walked by keys,", walked)
    page.shot("build/browser/tree-200.png")
    assert rows >= N_BRANCHES and not page.errors, (rows, page.errors)


def hostile(browser, address):
    """Lines of megabytes, streamed by echo and stored; the page stays usable and whole."""
    for name, text in {"one line": "x" * LINE_BYTES, "one word a line": "a\n" * (LINE_BYTES // 4), "stars": "**a _b" * 20_000, "quotes": "> " * 60_000 + "a" * 2000,
                       "brackets": "[" * 60_000, "ticks": "`a" * 30_000, "dollars": "$" * 60_000, "pipes": "|a" * 30_000 + "\n" + "|-" * 30_000, "tags": "<b>" * 40_000}.items():
        of = conversation(address, "echo", name)
        page = browser.open(f"http://{address}/#/c/{of}")
        page.until(READY)
        start = time.monotonic()
        call(address, "Conversations/Import", {"conversation": of, "turns": [{"messages": [{"role": "user", "text": "?"}], "reply": text, "finishReason": "FINISH_REASON_STOP"}]})
        page.go("about:blank")
        page.go(f"http://{address}/#/c/{of}")
        page.until("document.querySelector('.markdown')?.textContent.length > 1000")
        shown = time.monotonic() - start
        start = time.monotonic()
        page.press("Control+K")
        page.until("document.activeElement.matches('.searchbox input')")
        print(f"{len(text)} characters, {name}: shown after {shown:.2f} s, a key answered after {time.monotonic() - start:.2f} s")
        assert not page.errors, page.errors
        page.close()


def kills(browser, parleyd, model, folder):
    """The browser finishes a real reply over kills, with the bytes of a calm one."""
    flags = ["--model", f"model={model}", "--data", os.path.join(folder, "data"), "--http"]
    asked = {"temperature": 0.8, "seed": "5", "maxTokens": 400, "ignoreEos": True}
    with children.Daemon(parleyd, *flags, "127.0.0.1:0") as daemon:
        calm = conversation(daemon.http, "model", "calm", **asked)
        whole = call(daemon.http, "Conversations/Ask", {"conversation": calm, "turn": 1, "text": "Tell me a long story."})["message"]["text"]
        of = conversation(daemon.http, "model", "killed", **asked)
    seen = 0
    for n in range(N_KILLS + 1):
        with children.Daemon(parleyd, *flags, daemon.http) as one:
            if n == 0:
                page = browser.open(f"http://{daemon.http}/#/c/{of}")
                page.until(READY)
                write(page, "Tell me a long story.")
            if n < N_KILLS:
                page.until(f"document.querySelector('.lost') === null && document.querySelector('.markdown')?.textContent.length > {seen}")
                seen = page.js("document.querySelector('.markdown').textContent.length")
                one.process.send_signal(signal.SIGKILL)
                one.process.wait()
                one.process.returncode = 0
                page.until("document.querySelector('.lost') || " + DONE)
                continue
            page.until(f"{IDLE} && {DONE}")
            assert transcript(one.http, of)[0]["reply"] == whole
            fresh = browser.open(f"http://{one.http}/#/c/{calm}")
            fresh.until(DONE)
            assert page.js(SHOWN) == fresh.js(SHOWN)
    print(f"{N_KILLS} kills in mid-sentence: the same {len(whole.encode())} bytes")


def states(page):
    """What is to be looked at, by name; each leaves the page as it shows it."""
    yield "conversation"
    for tab in ("tree", "settings", "batch"):
        page.js(f"document.querySelector('[aria-label=\"Close the panel\"]').offsetParent ?? document.querySelector('.head [aria-pressed]').click()")
        page.js(f"document.querySelector('#tab-{tab}').click()")
        page.until("document.querySelector('.panel-body > *')")
        yield tab
    page.js("document.querySelector('[aria-label=\"Close the panel\"]').click()")
    page.press("?")
    yield "help"
    page.press("Escape")
    page.press("Control+K")
    yield "list"
    page.press("Escape")
    page.tab_to(".head [aria-label=More]")
    page.press("Enter")
    page.until("document.activeElement.matches('[role=menuitem]')")
    yield "menu"
    page.press("Escape")


def examined(browser, address, model):
    """Faults that axe-core calls serious or critical."""
    script = subprocess.run([os.path.join(os.path.dirname(os.path.abspath(__file__)), "axe.sh")], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with open(script) as f:
        axe = f.read()
    of = grow_tree(address, model, 6)
    call(address, "Conversations/Import", {"conversation": of, "turns": [{
         "messages": [{"role": "tool", "name": "weather", "toolCallId": "a", "text": '{"sky": "clear"}'}, {"role": "user", "text": "Show me."}],
         "finishReason": "FINISH_REASON_LENGTH",
         "reply": "<think>So be it.</think># Title\n\n1. one\n2. two\n\n- [ ] task\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```python\nprint('x')  # y\n```\n\n> quote [link](https://example.org) $e^x$"}]})
    n = 0
    for width, dark in THEMES:
        page = browser.open(f"http://{address}/", width=width, dark=dark)
        page.call("Page.setBypassCSP", enabled=True)  # for axe's own styles
        for where in ("", f"#/c/{of}"):
            page.go("about:blank")
            page.go(f"http://{address}/{where}")
            page.until(READY)
            page.js(axe)
            for state in states(page):
                found = page.js("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary?.slice(0, 200))]))")
                page.shot(f"build/browser/{'empty-' if where == '' else ''}{state}-{width}-{'dark' if dark else 'light'}.png")
                for impact, rule, nodes in found:
                    if impact in KEPT_IMPACTS:
                        n += 1
                        print(f"{state} {width} {'dark' if dark else 'light'}: {impact} {rule}", *nodes[:3], sep="\n    ")
    print(f"axe-core: {n} serious findings")
    assert n == 0


def main():
    build, model = sys.argv[1:3]
    parleyd = os.path.join(build, "parleyd")
    wanted = sys.argv[3:] or ["first", "list", "tree", "hostile", "kill", "axe"]
    with tempfile.TemporaryDirectory() as folder, Chromium("--enable-gpu-rasterization") as browser:
        with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--model", f"model={model}", "--max-message-bytes", "64M") as daemon:
            checks = {"first": lambda: first_paint(browser, daemon.http), "list": lambda: long_list(browser, parleyd),
                      "tree": lambda: big_tree(browser, daemon.http), "hostile": lambda: hostile(browser, daemon.http),
                      "kill": lambda: kills(browser, parleyd, model, folder), "axe": lambda: examined(browser, daemon.http, "model")}
            for name in wanted:
                checks[name]()


if __name__ == "__main__":
    main()
