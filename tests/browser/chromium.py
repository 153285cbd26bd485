"""Debian's Chromium without a window, driven over its pipe by the DevTools protocol. No package is needed for that.

    with Chromium() as browser:
        page = browser.open("http://127.0.0.1:8000/", width=400, dark=True)
        page.press("Tab")
        page.until("document.title === 'Parley'")
"""
import base64
import collections
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

SECONDS = 60  # the longest wait for anything
MOST_TABS = 120
KEYS = {  # name: (code, virtual key code, text)
    "Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, ""), "Home": ("Home", 36, ""), "End": ("End", 35, ""),
    "ArrowDown": ("ArrowDown", 40, ""), "ArrowUp": ("ArrowUp", 38, ""), "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowRight": ("ArrowRight", 39, ""),
    " ": ("Space", 32, " "), "Backspace": ("Backspace", 8, ""),
}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class PageError(AssertionError):
    """What the page threw, or did not become in time."""


class Chromium:
    def __init__(self, *flags):
        program = shutil.which("chromium")
        if program is None:
            raise FileNotFoundError("chromium is missing: ./run setup browser installs it")
        self._folder = tempfile.TemporaryDirectory(prefix="parley-browser-", ignore_cleanup_errors=True)
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()
        to_read, to_write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs, ours))  # away from 3 and 4
        os.close(theirs)
        os.close(ours)
        arguments = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "--no-first-run", "--disable-gpu",
                     "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                     "--force-prefers-reduced-motion", "--hide-scrollbars", "--mute-audio", *flags]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # it refuses root with one
        # Chromium reads from 3 and writes to 4.
        shell = f"exec 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-; exec \"$@\""
        self._process = subprocess.Popen(["bash", "-c", shell, "bash", *arguments], pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._changed = threading.Condition()
        self._answers, self._pages, self._last, self._ended = {}, {}, 0, False
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _listen(self):
        rest = b""
        while data := os.read(self._from, 1 << 20):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                with self._changed:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif message.get("sessionId") in self._pages:
                        self._pages[message["sessionId"]]._heard(message["method"], message["params"])
                    self._changed.notify_all()
        os.close(self._from)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def call(self, method, session=None, **params):
        with self._changed:
            self._last += 1
            number = self._last
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        write_all(self._to, json.dumps(message).encode() + b"\0")
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers or self._ended, SECONDS) or number not in self._answers:
                raise PageError(f"Chromium gave no answer to {method}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url, width=1400, height=900, dark=False, fresh=True):
        """A tab; with fresh it shares nothing with others."""
        context = {"browserContextId": self.call("Target.createBrowserContext")["browserContextId"]} if fresh else {}
        return self._attach(url, width, height, dark, context)

    def beside(self, page, url, width=1400, height=900, dark=False):
        """Another tab that shares what the given one keeps."""
        return self._attach(url, width, height, dark, page.context)

    def _attach(self, url, width, height, dark, context):
        target = self.call("Target.createTarget", url="about:blank", **context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target, context)
        with self._changed:
            self._pages[session] = page
        page.set_up(width, height, dark)
        page.go(url)
        return page


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


class Page:
    def __init__(self, browser, session, target, context):
        self.browser, self.session, self.target, self.context = browser, session, target, context
        self.requests, self.errors, self.choosers, self.events = [], [], [], collections.Counter()

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def _heard(self, method, params):
        self.events[method] += 1
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.fileChooserOpened":
            self.choosers.append(params["backendNodeId"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def set_up(self, width, height, dark):
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def go(self, url):
        self.loading(lambda: self.call("Page.navigate", url=url))

    def reload(self):
        self.loading(lambda: self.call("Page.reload"))

    def loading(self, act):
        """Does what loads a page, and waits until that is there."""
        before = self.events["Page.loadEventFired"]
        act()
        with self.browser._changed:
            if not self.browser._changed.wait_for(lambda: self.events["Page.loadEventFired"] > before, SECONDS):
                raise PageError("nothing is loaded")

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def js(self, expression):
        """The value of an expression, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def until(self, expression, seconds=SECONDS):
        """Waits until an expression holds, and returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.js(f"(async () => {{ const value = await ({expression}); return value instanceof Node ? true : value; }})()")
            if value:
                return value
            if time.monotonic() > end:
                text = self.js("document.body.innerText.slice(0, 1500)")
                raise PageError(f"never became true: {expression}\nerrors: {self.errors}\nshown:\n{text}")
            # The page draws once a frame: the next look is after one.
            self.js("new Promise((go) => setTimeout(go, 15))")

    def press(self, keys, times=1):
        """Presses a key, such as "Tab", "a" or "Control+Shift+O"."""
        *held, name = keys.split("+") if len(keys) > 1 else [keys]
        code, number, text = KEYS.get(name, (f"Key{name.upper()}", ord(name.upper()) if len(name) == 1 else 0, name))
        modifiers = sum(MODIFIERS[h] for h in held)
        typed = "" if modifiers & ~8 else text
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=code, windowsVirtualKeyCode=number, modifiers=modifiers, text=typed)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=code, windowsVirtualKeyCode=number, modifiers=modifiers)

    def tab_to(self, selector, backwards=False):
        """Presses Tab until the focus is at what the selector finds, as one does without a mouse."""
        for _ in range(MOST_TABS):
            if self.js(f"Boolean(document.activeElement?.matches({json.dumps(selector)}))"):
                return
            self.press("Shift+Tab" if backwards else "Tab")
        raise PageError(f"no Tab leads to {selector}; the focus is at {self.js('document.activeElement?.outerHTML.slice(0, 200)')}")

    def click(self, selector):
        """Presses the mouse at the middle of what the selector finds, which must be in view and not covered."""
        x, y = self.js(f"""(() => {{
            const node = document.querySelector({json.dumps(selector)});
            const box = node.getBoundingClientRect();
            const at = [box.x + box.width / 2, box.y + box.height / 2];
            if (!node.contains(document.elementFromPoint(...at))) throw new Error({json.dumps(selector + ' is covered')});
            return at;
        }})()""")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=int(kind != "mouseMoved"))

    def pick(self, label):
        """Chooses an item of the menu that is open, by the arrow keys."""
        self.until("document.activeElement.matches('[role^=menuitem]')")
        at = self.js(f"""(() => {{
            const items = [...document.querySelectorAll('[role^=menuitem]')];
            return items.findIndex((item) => item.innerText.includes({json.dumps(label)})) - items.indexOf(document.activeElement);
        }})()""")
        self.press("ArrowDown" if at > 0 else "ArrowUp", times=abs(at))
        assert label in self.js("document.activeElement.innerText"), label
        self.press("Enter")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def write(self, text):
        """Writes over what the focused field has."""
        self.press("Control+A")
        self.type(text)

    def offline(self, is_so):
        self.call("Network.emulateNetworkConditions", offline=is_so, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    def choose(self, act, path):
        """Gives a file to the chooser that act opens."""
        self.call("Page.setInterceptFileChooserDialog", enabled=True)
        act()
        with self.browser._changed:
            if not self.browser._changed.wait_for(lambda: self.choosers, SECONDS):
                raise PageError("no file is asked for")
            chooser = self.choosers.pop()
        self.call("DOM.setFileInputFiles", files=[os.path.abspath(path)], backendNodeId=chooser)

    def download_to(self, folder):
        self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=os.path.abspath(folder), **self.context)

    def shot(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
