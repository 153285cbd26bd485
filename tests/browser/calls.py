"""What the tests of the page ask the daemon for, and what they look for in the page."""
import contextlib
import http.client
import json

PATIENCE = 60


def call(address, method, request=None, key=None):
    """One call of parley.v1 over Connect."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        connection.request("POST", f"/parley.v1.{method}", json.dumps(request or {}), headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, (method, answer.status, body)
        return body


def conversation(address, model, title, **sampling):
    """The id of a new conversation."""
    return call(address, "Conversations/Open", {"model": model, "sampling": sampling, "metadata": {"title": title}})["conversation"]


def transcript(address, of):
    return call(address, "Conversations/Get", {"conversation": of}).get("transcript", [])


def ids(address):
    return [c["conversation"] for c in call(address, "Conversations/List", {"pageSize": 1000}).get("conversations", [])]


def leave(page):
    """Leaves the field that is being written in, by the keyboard: letters are commands then."""
    while page.js("document.activeElement.matches('input, textarea, select')"):
        page.press("Shift+Tab")


def write(page, text):
    """Writes a message and sends it, by the keyboard alone."""
    leave(page)
    page.press("/")
    page.until("document.activeElement === document.querySelector('.composer textarea')")
    page.type(text)
    page.press("Enter")


READY = "!document.querySelector('#app').hasAttribute('aria-busy') && document.querySelector('.model-button .dot.ready')"
ANSWERING = "document.querySelector('.composer .is-stop') !== null"
IDLE = "document.querySelector('.composer .is-stop') === null"
# The figures of a reply that is complete.
DONE = "document.querySelector('.turn .stats:not(.is-live) span')"
N_DONE = "document.querySelectorAll('.turn .stats:not(.is-live) span:first-child').length"
# What stands in the last reply, as the page has it from the server, without what Markdown does to it.
SHOWN = "[...document.querySelectorAll('.turn')].at(-1).querySelector('.markdown').textContent"


def overflow(page):
    """Elements that are wider than the window."""
    return page.js("""[...document.querySelectorAll('body *')].filter((e) => {
        const box = e.getBoundingClientRect();
        return e.checkVisibility() && !e.closest('.tree, .code pre, .table, .plain, .skip, .unseen, .sidebar') && box.width > 0 && box.right > innerWidth + 1;
    }).map((e) => e.tagName + '.' + e.getAttribute('class')).slice(0, 5)""")
