#!/usr/bin/env python3
"""What parleyd's HTTP port does for every API: compressed bodies, ids of requests, slashes at the end of a path.

usage: test_http.py PARLEYD
"""
import gzip
import http.client
import json
import sys
import zlib

import children
from children import PATIENCE, until

LIMIT = 100000  # of a body, also after inflation
CHAT = "/v1/chat/completions"


def ask(parley, path, body=None, method=None, **headers):
    """Status, headers (names in lower case), body."""
    host, port = parley.http.rsplit(":", 1)
    c = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    c.request(method or ("GET" if body is None else "POST"), path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
    reply = c.getresponse()
    result = reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    c.close()
    return result


def chat(text):
    return json.dumps({"model": "echo", "messages": [{"role": "user", "content": text}]}).encode()


def compressed_requests(parley):
    for coding, pack in [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes), ("GZIP", gzip.compress)]:
        status, _, body = ask(parley, CHAT, pack(chat("hello")), Content_Encoding=coding)
        assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "hello", (coding, status, body)
    whole = gzip.compress(chat("hello" * 5000))
    status, _, body = ask(parley, CHAT, iter([whole[:10], whole[10:11], whole[11:]]), Content_Encoding="gzip")  # in chunks
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "hello" * 5000, (status, body[:80])
    for bad, says in [(whole[:-9], b"cut off"), (b"no gzip at all", b"damaged"), (whole + b"more", b"behind its end"), (b"", b"cut off")]:
        status, _, body = ask(parley, CHAT, bad, Content_Encoding="gzip")
        assert status == 400 and (says in body or not bad), (says, status, body)
    status, _, body = ask(parley, CHAT, b"{}", Content_Encoding="br")
    assert status == 415 and b"'br'" in body and json.loads(body)["error"]["code"] == "unsupported_media_type", (status, body)


def bombs(parley):
    """A small body that becomes a large one is refused by its size, before it has been inflated."""
    for coding, bomb in [("gzip", gzip.compress(bytes(1 << 28))), ("deflate", zlib.compress(bytes(1 << 24)))]:
        status, _, body = ask(parley, CHAT, bomb[:LIMIT], Content_Encoding=coding)
        assert status == 413 and str(LIMIT).encode() in body, (coding, status, body)
        assert json.loads(body)["error"]["code"] == "request_too_large"
    assert ask(parley, CHAT, chat("on"))[0] == 200


def compressed_answers(parley):
    text = "many words of one kind, " * 100
    status, plain, body = ask(parley, CHAT, chat(text))
    assert status == 200 and "content-encoding" not in plain
    for accepts in ("gzip", "gzip, deflate, br, zstd", "br;q=1, GZIP;q=0.5", "*"):
        status, headers, packed = ask(parley, CHAT, chat(text), Accept_Encoding=accepts)
        assert headers.get("content-encoding") == "gzip" and headers["vary"] == "Accept-Encoding", (accepts, headers)
        assert len(packed) == int(headers["content-length"]) < len(body) / 4
        assert json.loads(gzip.decompress(packed))["choices"] == json.loads(body)["choices"]
    for accepts in ("identity", "br", "gzip;q=0", "deflate, gzip;q=0.0", "xgzip", ""):
        assert "content-encoding" not in ask(parley, CHAT, chat(text), Accept_Encoding=accepts)[1], accepts
    assert "content-encoding" not in ask(parley, CHAT, chat("short"), Accept_Encoding="gzip")[1]
    stream = json.dumps({**json.loads(chat(text)), "stream": True}).encode()
    _, headers, body = ask(parley, CHAT, stream, Accept_Encoding="gzip")
    assert "content-encoding" not in headers and body.endswith(b"data: [DONE]\n\n")


def request_ids(parley):
    status, headers, _ = ask(parley, "/health", X_Request_Id="mine-1")
    assert status == 200 and headers["x-request-id"] == "mine-1"
    ids = [ask(parley, path, **more)[1]["x-request-id"]
           for path, more in [("/health", {}), ("/nowhere", {}), (CHAT, {"body": b"{"}), ("/health", {"X_Request_Id": "two words"}), ("/health", {"X_Request_Id": "x" * 129})]]
    assert len(set(ids)) == 5 and all(i.startswith("req_") and len(i) == 36 for i in ids), ids
    headers = ask(parley, "/health", Origin="http://localhost:3000")[1]
    assert "x-request-id" in headers["access-control-expose-headers"].lower()
    ask(parley, "/v1/models/no%22where", X_Request_Id="in-the-log")
    logged = []

    def holds():
        logged[:] = [line for line in list(parley.said) if "request_id=in-the-log" in line]
        return logged

    until("a line of the log with the request's id", holds)
    line, = logged
    assert "method=GET" in line and "status=404" in line and '/v1/models/no' in line, line


def lingering(parley):
    """A request whose body is refused unread is logged once, though its connection lingers."""
    for status, says in (413, {"Content_Length": str(LIMIT + 1)}), (501, {"Transfer_Encoding": "gzip"}):
        assert ask(parley, CHAT, b"{}", X_Request_Id=f"lingers-{status}", **says)[0] == status
    for i in range(3):
        ask(parley, "/health", X_Request_Id=f"behind-it-{i}")  # by then the connections above have ended
    until("the log", lambda: any("request_id=behind-it-2" in line for line in list(parley.said)))
    for status in 413, 501:
        line, = (line for line in list(parley.said) if f"request_id=lingers-{status}" in line)
        assert f'method=POST path="{CHAT}" status={status}' in line or status == 501, line


def slashes(parley):
    assert ask(parley, "/v1/models/")[2] == ask(parley, "/v1/models")[2] != b""
    assert ask(parley, CHAT + "/", chat("hello"))[0] == ask(parley, CHAT + "//?beta=true", chat("hello"))[0] == 200
    assert json.loads(ask(parley, "/v1/models/echo/")[2])["id"] == "echo"
    assert ask(parley, "/")[2] == b"Ollama is running" and b"'/nowhere/'" in ask(parley, "/nowhere/")[2]


def bases(parley):
    """A base URL without the /v1 of the paths, or with one too many, means the path that there is."""
    for path in CHAT.removeprefix("/v1"), CHAT.removeprefix("/v1") + "/?beta=true", "/v1" + CHAT:
        assert ask(parley, path, chat("hello"))[0] == 200, path
    for path in "/models/echo", "/models/%65cho/", "/v1/v1/models/echo", "/models/e%63ho":
        assert json.loads(ask(parley, path)[2])["id"] == "echo", path
    for path in "/models/a%2Fb", "/v1/v1/models/a%2Fb":
        status, _, body = ask(parley, path)
        assert status == 404 and b"there is no model 'a/b'" in body, (path, status, body)
    for path in "/models%2Fecho", "/v1/v1/v1/models", "/v1/v1", "/v1v1/models", "/v1/v1/nowhere", "/nowhere":
        status, _, body = ask(parley, path)
        assert status == 404 and b"there is no '" + path.replace("%2F", "/").encode() in body, (path, status, body)
    assert ask(parley, "/completions", b'{"prompt": "hello"}')[0] == 200  # llama-server's own, in its form
    assert ask(parley, "/v1/completions", b'{"prompt": "hello"}')[2] != ask(parley, "/completions", b'{"prompt": "hello"}')[2]


def kserve(parley):
    """KServe's HTTP is not served, which its clients can read; other paths of /v2 are."""
    for path, body in ("/v2", None), ("/v2/health/ready", None), ("/v2/models/echo/infer", b"{}"), ("/v2/embed", b"{}"):
        status, _, said = ask(parley, path, body)
        assert status == 501 and json.loads(said)["error"].startswith(path + " is not served") and "gRPC" in json.loads(said)["error"], (path, status, said)
    assert ask(parley, "/v2/rerank", b"{}")[0] == 400
    said = json.loads(ask(parley, "/" + "x" * 200)[2])["error"]["message"]
    for path in said.split("there are: ")[1].split(", "):  # none is cut
        assert b"there is no '" not in ask(parley, path)[2], (path, said)


def main():
    parleyd = sys.argv[1]
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--max-message-bytes", str(LIMIT), "--log-level", "debug") as parley:
        for test in (compressed_requests, bombs, compressed_answers, request_ids, lingering, slashes, bases, kserve):
            test(parley)
            print(f"{test.__name__}: good", flush=True)


if __name__ == "__main__":
    main()
