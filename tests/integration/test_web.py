#!/usr/bin/env python3
"""The page at /: browsers get it and other programs get Ollama's probe; its files are compressed, checked by their tags, and come under a
policy that lets nothing else in; --page off takes it away.

usage: test_web.py PARLEYD      (any python3; no packages)"""
import contextlib
import gzip
import http.client
import re
import sys

import children
from children import PATIENCE

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
PROBE = b"Ollama is running"
MOST = 150 * 1000  # compressed bytes of the page before the first formula


def ask(address, path, method="GET", **headers):
    """Status, headers by their names in small letters, body."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_who_gets_the_page(address):
    for accept in (BROWSER, "text/html", "TEXT/HTML;q=1", "application/json, text/html"):
        status, headers, body = ask(address, "/", Accept=accept)
        assert status == 200 and headers["content-type"] == "text/html; charset=utf-8" and b"<title>Parley</title>" in body, accept
    for accept in (None, "*/*", "text/*", "application/json", "text/htmlx", "xtext/html", "text/html-like", ""):
        given = {} if accept is None else {"Accept": accept}
        status, headers, body = ask(address, "/", **given)
        assert (status, headers["content-type"], body) == (200, "text/plain; charset=utf-8", PROBE), accept
        assert ask(address, "/", "HEAD", **given)[::2] == (200, b"")


def test_files(address):
    _, _, page = ask(address, "/", Accept=BROWSER)
    named = set(re.findall(rb'(?:href|src)="(/web/[^"]+)"', page)) | {b"/web/licences.txt", b"/web/katex.js"}
    sizes = {}
    for path in [b"/", *sorted(named)]:
        path = path.decode()
        _, headers, plain = ask(address, path, Accept=BROWSER)
        assert "content-encoding" not in headers and len(plain) == int(headers["content-length"])
        status, packed_headers, packed = ask(address, path, Accept=BROWSER, Accept_Encoding="gzip, br")
        assert status == 200 and packed_headers["content-encoding"] == "gzip" and gzip.decompress(packed) == plain
        assert headers["etag"] == packed_headers["etag"] and headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"] and "require-trusted-types-for 'script'" in headers["content-security-policy"]
        sizes[path] = len(packed)
        for known in (headers["etag"], headers["etag"].removeprefix("W/"), f'"other", {headers["etag"]}', "*"):
            status, again, body = ask(address, path, Accept=BROWSER, If_None_Match=known)
            assert status == 304 and body == b"" and again["etag"] == headers["etag"] and "content-length" not in again, known
        assert ask(address, path, Accept=BROWSER, If_None_Match='"other"')[0] == 200
        status, head, body = ask(address, path, "HEAD", Accept=BROWSER)
        assert status == 200 and body == b"" and int(head["content-length"]) == len(plain)
    first = sum(size for path, size in sizes.items() if path not in ("/web/katex.js", "/web/licences.txt"))
    print(f"{first} bytes before a formula, {sizes['/web/katex.js']} for formulas")
    assert first <= MOST
    for path in ("/web/nothing.js", "/web/../page.html", "/web/page.html/x", "/web/"):
        assert ask(address, path)[0] in (400, 404), path
    assert ask(address, "/web/page.css", "POST", Content_Length="0")[0] == 405


def test_nothing_from_elsewhere(address):
    """The page names no address but its own, and no text becomes markup or code."""
    for path in ("/", "/web/page.css", "/web/page.js"):
        text = ask(address, path, Accept=BROWSER)[2].decode()
        outside = set(re.findall(r"https?://[^\s'\"`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not outside, (path, outside)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path


def main():
    parleyd = sys.argv[1]
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--http-admin", "127.0.0.1:0") as daemon:
        assert daemon.ready["page"] == f"http://{daemon.http}/", daemon.ready
        test_who_gets_the_page(daemon.http)
        test_files(daemon.http)
        test_nothing_from_elsewhere(daemon.http)
        admin = daemon.ready["http_admin"]
        assert ask(admin, "/", Accept=BROWSER)[2] == PROBE and ask(admin, "/web/page.js")[0] == 404
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--page", "off") as daemon:
        assert "page" not in daemon.ready
        assert ask(daemon.http, "/", Accept=BROWSER)[2] == PROBE and ask(daemon.http, "/web/page.js")[0] == 404
    print("ok")


if __name__ == "__main__":
    main()
