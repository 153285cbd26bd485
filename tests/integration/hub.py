"""A hub of our own: it lists repositories, redirects large files to another host, sends ranges, and fails as a test asks. Any python3."""
import hashlib
import http.server
import json
import select
import socket
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 100_000  # bytes from which on a file is stored elsewhere, as git-lfs does


class File:
    def __init__(self, data):
        self.data, self.size, self.is_large = data, len(data), len(data) >= LARGE
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        self.etag = self.sha256 if self.is_large else self.git


class Hub:
    """with Hub(repositories) as hub: {"OWNER/REPO": {"file": bytes}}. hub.url is its address, hub.seen what was asked: (host, method, path,
    range, token). hub.fail(what, *answers) has the next requests answered otherwise; see Handler.failed.
    """

    def __init__(self, repositories, token=None):
        self.repositories = {name: {file: File(data) for file, data in files.items()} for name, files in repositories.items()}
        self.commits = dict.fromkeys(self.repositories, COMMIT)
        self.moved = {}  # new names of repositories, by their old ones
        self.token, self.seen, self.failures, self.lock = token, [], {}, threading.Lock()
        self.bytes_sent, self.gate = 0, None  # gate: how many bytes may be sent in all, until somebody raises it; None: any number
        self.raised = threading.Condition(self.lock)
        self.has_ranges = True

    def __enter__(self):
        self.servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler(which)) for which in ("hub", "store")]
        for server in self.servers:
            server.daemon_threads, server.handle_error = True, lambda *of: None  # clients are killed
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.servers[0].server_port}"
        self.store = f"http://localhost:{self.servers[1].server_port}"
        return self

    def __exit__(self, *what):
        self.open()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def fail(self, where, *answers):
        """where: "list", "resolve" or "store"."""
        with self.lock:
            self.failures.setdefault(where, []).extend(answers)

    def next_failure(self, where):
        with self.lock:
            return self.failures.get(where) and self.failures[where].pop(0)

    def take(self, n, connection):
        """Waits at the gate until some of n bytes may be sent; how many."""
        with self.raised:
            self.raised.wait_for(lambda: self.gate is None or self.bytes_sent < self.gate)
            if select.select([connection], [], [], 0)[0]:
                raise ConnectionError("the client was killed while its request waited")
            n = n if self.gate is None else min(n, self.gate - self.bytes_sent)
            self.bytes_sent += n
            return n

    def open(self, gate=None):
        with self.raised:
            self.gate = gate
            self.raised.notify_all()

    def handler(self, which):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *what):
                pass

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def failed(self, where):
                """Whether the test wants a failure here: a status, or (status, headers), or (n, "cut") after n bytes."""
                what = hub.next_failure(where)
                if not what:
                    return False
                status, headers = what if isinstance(what, tuple) else (what, {})
                if headers == "cut":
                    self.cut_after = status
                    return False
                self.answer(status, b"as the test asked", **headers)
                return True

            def send_file(self, file, **headers):
                data, at, status = file.data, 0, 200
                wanted = self.headers.get("Range") if hub.has_ranges else None
                if wanted:
                    first, last = wanted.removeprefix("bytes=").split("-")
                    at, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
                    if at > end:
                        return self.answer(416, Content_Range=f"bytes */{len(data)}")
                    headers["Content_Range"], status = f"bytes {at}-{end}/{len(data)}", 206
                    data = data[at : end + 1]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data)), "Accept-Ranges": "bytes"}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                if self.command == "HEAD":
                    return None
                at = 0
                while at < len(data) and self.cut_after != 0:
                    n = hub.take(min(65536, len(data) - at, self.cut_after or 65536), self.connection)
                    self.wfile.write(data[at : at + n])
                    at += n
                    if self.cut_after:
                        self.cut_after -= n
                if at < len(data):
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                return None

            def do_GET(self):
                self.cut_after = None
                hub.seen.append((which, self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization")))
                try:
                    (self.at_hub if which == "hub" else self.at_store)(urllib.parse.unquote(urllib.parse.urlparse(self.path).path))
                except ConnectionError:
                    self.close_connection = True

            do_HEAD = do_GET

            def at_hub(self, path):
                is_list = path.startswith("/api/models/")
                if self.failed("list" if is_list else "resolve"):
                    return None
                if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                    return self.answer(401, X_Error_Code="RepoNotFound")
                words = path.removeprefix("/api/models/").split("/") if is_list else path[1:].split("/")
                if new := hub.moved.get("/".join(words[:2])):
                    return self.answer(307, Location=self.path.replace("/".join(words[:2]), new, 1))
                repository = hub.repositories.get("/".join(words[:2]))
                commit = hub.commits.get("/".join(words[:2]))
                if repository is None:
                    return self.answer(404, X_Error_Code="RepoNotFound")
                if is_list:
                    return self.answer(200, json.dumps({"id": "/".join(words[:2]), "sha": commit, "siblings": [
                        {"rfilename": name, "size": file.size, "blobId": file.git}
                        | ({"lfs": {"sha256": file.sha256, "size": file.size, "pointerSize": 134}} if file.is_large else {})
                        for name, file in repository.items()]}).encode(), Content_Type="application/json")
                file = repository.get("/".join(words[4:]))
                if file is None:
                    return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
                head = {"X_Repo_Commit": commit, "ETag": f'"{file.etag}"'}
                if not file.is_large:
                    return self.send_file(file, **head)
                return self.answer(302, X_Linked_Etag=f'"{file.etag}"', X_Linked_Size=str(len(file.data)),
                                   Location=f"{hub.store}/{'/'.join(words[:2])}/{urllib.parse.quote('/'.join(words[4:]))}?signed=1", **head)

            def at_store(self, path):
                if self.failed("store"):
                    return None
                if self.headers.get("Authorization"):
                    return self.answer(400, b"a signed address and a token")
                words = path[1:].split("/")
                return self.send_file(hub.repositories["/".join(words[:2])]["/".join(words[2:])], ETag='"of-the-store"')

        return Handler
