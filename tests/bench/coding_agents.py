"""Coding agents, unmodified, each edits a file in a scratch repository through parleyd. A plug-in gives the replies, in the format of Hermes' and
Qwen's models, since a model of the tests' size cannot do this work; all else is as with a model. Claude Code runs as an ordinary user.

    coding_agents.sh BUILD [--turns N] [--record FOLDER] [AGENT]…     (codex, claude, aider, openai-agents; all, if none is named)

--turns: so many commands of Codex and Claude Code before the edit. --record: what they send is written into FOLDER/AGENT.jsonl.xz, two sessions of
Codex and Claude Code in one repository, with commits between them. Prose of the programs is replaced by words of the same lengths, and paths, names
and ids of this machine by others; test_traces.py sends the recordings again."""
import argparse
import glob
import hashlib
import http.client
import http.server
import json
import lzma
import os
import pwd
import re
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(HERE, "../integration"))
import children  # noqa: E402

AGENTS = os.path.abspath(os.path.join(ROOT, "build/coding_agents"))
PATIENCE_S = 300
BEFORE, AFTER = "def river():\n    return 'Rhine'\n", "def river():\n    return 'Elbe'\n"
TASKS = ("Rename the river to Elbe in river.py.", "Please let river.py name the Elbe.")


class Recorder(http.server.ThreadingHTTPServer):
    """Passes requests on to parleyd, and keeps them."""
    daemon_threads = True

    def __init__(self, to):
        self.to, self.seen = to, []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "accept-encoding", "content-length")}
        link = http.client.HTTPConnection(self.server.to, timeout=PATIENCE_S)
        link.request(self.command, self.path, body or None, kept)
        answer = link.getresponse()
        said = answer.read()
        link.close()
        self.server.seen.append({"method": self.command, "path": self.path, "headers": kept, "body": body, "status": answer.status, "reply": said})
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_POST = do_HEAD = do_DELETE = forward


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def only(pattern):
    """The file that a package has."""
    found = glob.glob(os.path.join(AGENTS, pattern))
    assert len(found) == 1, f"{pattern}: {found}; tests/bench/coding_agents.sh installs it"
    return found[0]


def codex(home, repo, port, task):
    settings = os.path.join(home, "codex")
    os.makedirs(settings, exist_ok=True)
    with open(os.path.join(settings, "config.toml"), "w", encoding="utf-8") as f:
        f.write(f'model = "scripted"\nmodel_provider = "parley"\n[model_providers.parley]\nname = "parley"\n'
                f'base_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\n')
    program = only("agents/lib/python3*/site-packages/codex_cli_bin/bin/codex")
    return [program, "exec", "--dangerously-bypass-approvals-and-sandbox", "-C", repo, task], {"CODEX_HOME": settings}


def codex_script(repo, turns):
    return [*(call("exec_command", cmd=f"sed -n {i}p river.py; echo {i}") for i in range(1, turns + 1)),
            call("exec_command", cmd="sed -i s/Rhine/Elbe/ river.py && cat river.py"), "The river is the Elbe now."]


def claude(home, repo, port, task):
    program = only("agents/lib/python3*/site-packages/claude_agent_sdk/_bundled/claude")
    return [program, "-p", task, "--dangerously-skip-permissions", "--output-format", "json"], {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": "scripted",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def claude_script(repo, turns):
    path = os.path.join(repo, "river.py")
    return [call("Read", file_path=path),
            *(call("Bash", command=f"sed -n {i}p river.py; echo {i}", description=f"Look at line {i}") for i in range(1, turns)),
            call("Edit", file_path=path, old_string="Rhine", new_string="Elbe"), "The river is the Elbe now."]


def aider(home, repo, port, task):
    return [os.path.join(AGENTS, "aider/bin/aider"), "--model", "openai/scripted", "--no-check-update", "--no-show-release-notes", "--no-analytics",
            "--no-show-model-warnings", "--yes-always", "--no-gitignore", "--no-pretty", "--edit-format", "diff", "--message", task, "river.py"], {
                "OPENAI_API_BASE": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def aider_script(repo, turns):
    return ["river.py\n```python\n<<<<<<< SEARCH\n    return 'Rhine'\n=======\n    return 'Elbe'\n>>>>>>> REPLACE\n```\n"]


OPENAI_AGENTS = """
import asyncio, sys
import agents, openai
agents.set_tracing_disabled(True)
@agents.function_tool
def replace(path: str, old: str, new: str) -> str:
    "Replaces a text in a file."
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace(old, new))
    return f"replaced {text.count(old)}"
async def main():
    client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="none")
    for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
        editor = agents.Agent(name="editor", instructions="Edit files.", tools=[replace], model=kind(model="scripted", openai_client=client))
        told = agents.Runner.run_streamed(editor, sys.argv[2])
        async for event in told.stream_events():
            pass
        print(told.final_output)
asyncio.run(main())
"""


def openai_agents(home, repo, port, task):
    return [os.path.join(AGENTS, "agents/bin/python"), "-c", OPENAI_AGENTS, f"http://127.0.0.1:{port}/v1", task], {}


def openai_agents_script(repo, turns):
    return [call("replace", path="river.py", old="Rhine", new="Elbe"), "The river is the Elbe now."]


PROGRAMS = {"codex": (codex, codex_script, 2), "claude": (claude, claude_script, 2), "aider": (aider, aider_script, 1),
            "openai-agents": (openai_agents, openai_agents_script, 1)}


def make_repository(folder):
    repo = os.path.join(folder, "repo")
    os.makedirs(repo)
    with open(os.path.join(repo, "river.py"), "w", encoding="utf-8") as f:
        f.write(BEFORE)
    for command in (["init", "-q", "-b", "main"], ["config", "user.name", "Ann"], ["config", "user.email", "ann@example.org"], ["add", "."],
                    ["commit", "-q", "-m", "A river"]):
        children.run(["git", *command], cwd=repo, check=True)
    return repo


def give_away(name, folder):
    """To an ordinary user, where this one is root: Claude Code refuses some of its options to root. Returns who that is. Programs in Python run as
    who has made their environment, whose interpreter others may not be able to read."""
    if os.getuid() != 0 or name not in ("codex", "claude"):
        return {}
    nobody = pwd.getpwnam("nobody")
    for at, _, names in os.walk(folder):
        for name in (".", *names):
            os.chown(os.path.join(at, name), nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def take_back(repo):
    """The agent's edit is committed, and undone by a commit, so that the next session begins with the same files and another history."""
    safe = ["git", "-c", f"safe.directory={repo}"]
    children.run([*safe, "commit", "-q", "-a", "-m", "Another river"], cwd=repo, check=True)
    children.run([*safe, "revert", "--no-edit", "HEAD"], cwd=repo, check=True, stdout=subprocess.DEVNULL)


def run_agent(build, name, turns, task, home):
    """What the agent sends until its file is edited."""
    program, script, _ = PROGRAMS[name]
    repo = os.path.join(home, "repo")
    with tempfile.NamedTemporaryFile("w", suffix=".script") as replies:
        replies.write("\n----\n".join(script(repo, turns)))
        replies.flush()
        os.environ["PARLEY_SCRIPT"] = replies.name
        plugin = os.path.join(build, "tests/integration/scripted_agent.so")
        with children.Daemon(os.path.join(build, "parleyd"), "--plugin", f"scripted={plugin}", "--http", "127.0.0.1:0") as daemon:
            recorder = Recorder(daemon.http)
            threading.Thread(target=recorder.serve_forever, daemon=True).start()
            command, more = program(home, repo, recorder.server_address[1], task)
            path = {"PATH": os.environ["PATH"], "HOME": home, **more}
            done = children.run(command, cwd=repo, env=path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, **give_away(name, home))
            recorder.shutdown()
            recorder.server_close()
        with open(os.path.join(repo, "river.py"), encoding="utf-8") as f:
            edited = f.read()
        failed = [one for one in recorder.seen if one["status"] != 200 and one["method"] == "POST"]
        assert edited == AFTER and not failed, f"{name}: {edited!r}, {failed[:1]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return recorder.seen


# --- what is written down ---


def other_word(match):
    """Another word of the same length and case, always the same one."""
    digest = hashlib.sha256(match[0].lower().encode()).digest()
    letters = "".join("aeiou"[b % 5] if i % 2 else "bdfgklmnprst"[b % 12] for i, b in enumerate(digest[:len(match[0])]))
    return letters.capitalize() if match[0][0].isupper() else letters


def other_prose(text):
    """The text of a program in other words: its lines, marks, short words and sizes stay."""
    lines = text.split("\n")
    return "\n".join(line if line.startswith("x-anthropic-billing-header") or line in TASKS else
                     re.sub(r"(?<![\w/.-])[A-Z]?[a-z]{4,32}(?![\w/-])", other_word, line) for line in lines)


def without_prose(value, key="", is_own=False):
    """A body in which the program's own texts are in other words. is_own: inside what the program says itself, not its tools' results or the replies."""
    if isinstance(value, list):
        return [without_prose(one, key, is_own) for one in value]
    if isinstance(value, dict):
        said = is_own or value.get("role") in ("user", "system", "developer") or key == "system"
        is_result = value.get("type") in ("tool_result", "function_call_output", "tool_use", "function_call")
        return {k: without_prose(v, k, (said or k == "tools") and not is_result) for k, v in value.items()}
    if isinstance(value, str) and (key == "instructions" or (is_own and key == "description") or (is_own and key in ("text", "content", "system"))):
        return other_prose(value)
    return value


def without_details(text, home):
    """Without this machine's paths, ids and time."""
    ids = {}
    text = text.replace(home, "/home/ann").replace(re.sub("[^A-Za-z0-9]", "-", home), "-home-ann")
    text = text.replace(pwd.getpwuid(os.getuid()).pw_name + "@", "ann@")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
                  lambda m: ids.setdefault(m[0], f"00000000-0000-4000-8000-{len(ids):012x}"), text)
    text = re.sub(r"\b[0-9a-f]{40,64}\b", lambda m: ids.setdefault(m[0], f"{len(ids):0{len(m[0])}x}"), text)
    text = re.sub(r"\b1[789]\d{11}\b", "1767225600000", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d\b", "2026-01-01", text)
    return re.sub(r"OS Version: [^\\\"]*", "OS Version: Linux 6", text)


def write_down(path, name, sessions, home):
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as f:
        for k, seen in enumerate(sessions):
            for one in seen:
                if one["method"] != "POST":
                    continue
                body = without_prose(json.loads(without_details(one["body"].decode(), home)))
                headers = {k: v for k, v in one["headers"].items() if k.lower() in ("anthropic-beta", "anthropic-version")}
                f.write(json.dumps({"session": k, "path": one["path"], "headers": headers, "body": body}, ensure_ascii=False) + "\n")
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("agents", nargs="*", metavar="AGENT")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--record", metavar="FOLDER")
    o = options.parse_intermixed_args()
    for name in o.agents or PROGRAMS:
        sessions = []
        with tempfile.TemporaryDirectory(prefix="agent-") as home:
            repo = make_repository(home)
            for k in range(PROGRAMS[name][2] if o.record else 1):
                if k > 0:
                    take_back(repo)
                seen = run_agent(os.path.abspath(o.build), name, o.turns if k == 0 else 3, TASKS[k], home)
                sessions.append(seen)
                print(f"{name:13s} edited its file: {len(seen)} requests, {sum(len(one['body']) for one in seen)} bytes, all answered", flush=True)
            if o.record:
                write_down(os.path.join(o.record, f"{name}.jsonl.xz"), name, sessions, home)


if __name__ == "__main__":
    main()
