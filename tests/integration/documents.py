"""README.md, docs/*.md and the other documents: links and their anchors resolve, prose is no wider than 120 columns, commands name verbs and options that
there are, a part of an example's program stands in the file that the page names, README.md is a page of at most 150 lines whose endpoints are answered, and docs/command_line.md has the verbs that
`parley --help` lists.

usage: documents.py [PARLEY PARLEYD] SOURCE_ROOT      without the programs: links, anchors, widths and README.md's length alone"""
import glob
import http.client
import os
import re
import shlex
import sys
import tempfile

import children

MAX_COLUMNS, MAX_LINES = 120, 150
SHELLS = ("", "sh", "bash", "shell", "console")
# Words that a command may stand behind, and what a verb's --help shows more of when it is told what it is about.
BEFORE = ("sudo", "exec", "nohup", "time", "env", "setsid")
ABOUT = {"bench": [["cartpole"], ["params"], ["act://x"]], "eval": [["-t", "x"], ["--world", "x"]],
         "train": [["-t", "x"], ["-t", "x", "--agent", "starspace"], ["-t", "x", "--agent", "seq2seq"]]}
# A verb that is also a program in Python, whose help needs packages that this test has not: its options stand in its source.
PROGRAMS = {"train": "client/examples/train.py"}
# A page that is wrong in each way, and what must be said of it.
WRONG = """# A page

[one](missing.md) [two](#nowhere) [three](other.md#nowhere) [four](other.md#a-heading) `parley chat --nonsense`
![five](missing.svg)
""" + "word " * 30 + """

    build/release/parley chta
    echo x | parley ask x --nonsense     # --json
    parleyd --nonsense=1 &

```sh
$ parley status --jsn
./run nonsense
```

```python
print("parley nonsense")
```

[other.py](other.py):

```python
@parley.world("there")
class There:
```

```python
@parley.world("elsewhere")
class Elsewhere:
```
"""
SAYS = ["3: there is no missing.md", "3: there is no heading #nowhere in page.md", "3: there is no heading #nowhere in other.md",
        "3: parley chat has no option --nonsense", "4: there is no missing.svg", "5: 150 columns", "7: there is no verb 'chta'",
        "8: parley ask has no option --nonsense", "9: parleyd has no option --nonsense", "12: parley status has no option --jsn",
        "13: ./run has no verb 'nonsense'",
        "28: no program of this page's links has this part"]


class Programs:
    """The verbs and options that the programs say they have."""

    def __init__(self, parley, parleyd, root):
        self.parley, self.parleyd, self.root, self.options_of = parley, parleyd, root, {}
        self.verbs = dict(re.findall(r"^  ([\w-]+) {2,}(\S.*)$", self.told([parley, "--help"]), re.M))
        self.daemon_options = self.options_in(self.told([parleyd, "--help"]))
        self.run_verbs = set(re.findall(r"^  ([\w-]+) ", self.told([os.path.join(root, "run")]), re.M))
        assert len(self.verbs) > 10 and len(self.daemon_options) > 20 and "chat" in self.run_verbs, "the helps cannot be read"

    @staticmethod
    def told(command):
        said = children.run(command, capture_output=True, text=True)
        assert said.stdout != "" and said.stderr == "", (command, said)
        return said.stdout

    @staticmethod
    def options_in(text):
        return set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))

    def options(self, verb):
        if verb not in self.options_of:
            helps = [self.told([self.parley, verb, *about, "--help"]) for about in [[], *ABOUT.get(verb, [])]]
            self.options_of[verb] = set().union(*map(self.options_in, helps))
            if verb in PROGRAMS:
                with open(os.path.join(self.root, PROGRAMS[verb]), encoding="utf-8") as program:
                    self.options_of[verb].update(re.findall(r'add_argument\("(--[a-z-]+)"', program.read()))
        return self.options_of[verb]

    def complaints_of(self, words):
        """What is wrong with the words of one command, which may be none of ours."""
        while words and (words[0] in BEFORE or re.match(r"\w+=", words[0])):
            words = words[1:]
        if not words:
            return []
        name = os.path.basename(words[0])
        given = [word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
        if words[0] == "./run":
            return [f"./run has no verb '{verb}'" for verb in words[1:2] if re.match(r"[a-z]", verb) and verb not in self.run_verbs]
        if name == "parleyd":
            return [f"parleyd has no option {option}" for option in given if option not in self.daemon_options]
        if name != "parley":
            return []
        if len(words) == 1 or words[1] in ("--help", "--version", "help", "version"):
            return []
        verb = "chat" if words[1].startswith("-") else words[1]
        if verb not in self.verbs:
            return [f"there is no verb '{verb}'"] if re.match(r"[a-z]", verb) else []
        return [f"parley {verb} has no option {option}" for option in given if option not in self.options(verb)]


def commands_in(line):
    """The commands of a line of a shell: a list of words each."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands, is_name = [[]], False
    for word in lexer:
        if re.fullmatch(r"[();|&]+", word):
            commands.append([])
        elif re.fullmatch(r"[<>]+&?", word):
            is_name = True  # of a file, which is no word of the command
        elif is_name:
            is_name = False
        else:
            commands[-1].append(word)
    return commands


def lines_of(text):
    """Each line with its number and its kind: prose, table, shell or other."""
    fence, in_list, before = None, False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*(```+|~~~+)\s*(\S*)", line):
            fence = None if fence is not None else match[2]
            yield number, "other", line
        elif fence is not None:
            yield number, "shell" if fence in SHELLS else "other", line
        elif re.match(r" {4}|\t", line) and not in_list:
            yield number, "shell", line
        else:
            yield number, "table" if line.startswith("|") else "prose", line
            if line.strip():
                in_list = re.match(r"\s*([-*+]|\d+\.) ", line) is not None or in_list and (before != "" or line.startswith(" "))
        before = line.strip()


def anchors_of(text):
    """The anchors that GitHub gives to the headings, and those that are written."""
    anchors, seen = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)), {}
    for _, kind, line in lines_of(text):
        if kind == "prose" and (heading := re.match(r"#{1,6} +(.*?)[ #]*$", line)):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            seen[slug] = seen.get(slug, -1) + 1
            anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
    return anchors


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def link_complaint(page, target):
    """What is wrong with a link of this page; None: nothing, or it leads elsewhere."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    name, _, anchor = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
    if not os.path.exists(path):
        return f"there is no {name}"
    if anchor and path.endswith(".md") and anchor not in anchors_of(read(path)):
        return f"there is no heading #{anchor} in {os.path.basename(path)}"
    return None


def parts_complaints(page):
    """A block of Python that begins with a decorator imports nothing, and no test runs it: it is a part of a program that the page links to."""
    text = read(page)
    programs = [os.path.normpath(os.path.join(os.path.dirname(page), name)) for name in re.findall(r"\]\(([^)\s#]+\.py)\)", text)]
    whole = "".join(read(path) for path in programs if os.path.exists(path))
    for block in re.finditer(r"^```python\n(@.*?)^```", text, re.DOTALL | re.MULTILINE):
        if not all(line.split("  # ")[0].rstrip() in whole for line in block[1].splitlines()):
            yield f"{text.count(chr(10), 0, block.start()) + 2}: no program of this page's links has this part"


def complaints_of(page, programs):
    """A list of 'LINE: what is wrong'. programs: None leaves out what commands say."""
    found, begun = [], ""
    for number, kind, line in lines_of(read(page)):
        if kind in ("prose", "table"):
            said = [link_complaint(page, target) for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line))]
            for code in re.findall(r"`((?:parleyd?|\./run) [^`]*)`", line) if programs else ():
                said += programs.complaints_of(code.split())
            if kind == "prose" and len(line) > MAX_COLUMNS and re.search(r"\s", line.strip()) and not line.lstrip().startswith("!["):
                said.append(f"{len(line)} columns")
            found += [f"{number}: {one}" for one in said if one]
        elif kind == "shell" and programs:
            begun += line.strip()
            if begun.endswith("\\"):
                begun = begun[:-1]
                continue
            command, begun = begun.removeprefix("$ "), ""
            if not re.search(r"(^|[\s/|&;(])(parleyd?|run)(\s|$)", command):
                continue
            try:
                commands = commands_in(command)
            except ValueError as error:  # a quotation mark that is not closed, of another language
                if re.match(r"(\S*/)?parleyd?\s", command):
                    found.append(f"{number}: {error}")
                continue
            found += [f"{number}: {one}" for words in commands for one in programs.complaints_of(words)]
    return found + list(parts_complaints(page))


def fails(programs):
    """What is wrong on a page is found, all of it and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.md")
        there = '@parley.world("there")\nclass There:\n'
        for path, text in (page, WRONG), (os.path.join(folder, "other.md"), "# Other\n\n## A `heading`\n"), (os.path.join(folder, "other.py"), there):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        found, says = complaints_of(page, programs), [one for one in SAYS if programs or re.search(r"there is no (missing|heading)|columns|part", one)]
        assert found == says, found
    if programs is None:
        return
    _, missing = endpoints_missing("| `:8000/v1/nothing`, `/v1/models` | x |\n| `:8001 parley.v1.Act`, `Acts` | x |\n", programs.parleyd, programs.root)
    assert missing == ["Acts", "/v1/nothing"], missing


def endpoints_missing(text, parleyd, root):
    """What a page's table of endpoints names and the daemon does not answer: paths of HTTP, and services of the .proto files."""
    rows = re.findall(r"^\| (`:\d+.*?) \|", text, re.M)
    paths = {path for row in rows for path in re.findall(r"`(?::8000)?(/[^`]*)`", row) if not path.endswith("/ID")}
    services = {service.removeprefix("parley.v1.") for row in rows for service in re.findall(r"`(?::8001 )?([\w.]+)`", row)}
    known = set()
    for proto in glob.glob(os.path.join(root, "proto/**/*.proto"), recursive=True):
        package = re.search(r"^package ([\w.]+);", read(proto), re.M)[1]
        known |= {f"{package}.{service}".removeprefix("parley.v1.") for service in re.findall(r"^service (\w+)", read(proto), re.M)}
    missing = sorted(services - known)
    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as daemon:
        for path in sorted(paths):
            connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
            connection.request("GET", path)
            missing += [path] if connection.getresponse().status == 404 else []
            connection.close()
    return len(paths) + len(services), missing


def programs_complaints(programs, readme):
    """What README.md and docs/command_line.md say of the programs, and is not so."""
    n_endpoints, missing = endpoints_missing(readme, programs.parleyd, programs.root)
    assert n_endpoints > 20, n_endpoints
    found = [f"README.md: there is no endpoint {one}" for one in missing]
    table = dict(re.findall(r"^\| `([\w-]+)` \| (.*?) \|$", read(os.path.join(programs.root, "docs/command_line.md")), re.M))
    return found + [f"docs/command_line.md: '{verb}' is '{says}' in parley --help, '{table.get(verb)}' there"
                    for verb, says in programs.verbs.items() if table.get(verb) != says]


def main():
    *paths, root = map(os.path.abspath, sys.argv[1:])
    programs = Programs(*paths, root) if paths else None
    fails(programs)
    pages = [os.path.join(root, name) for name in ("README.md", "CHANGES.md", "CONTRIBUTING.md", "DESIGN.md", "tests/bench/README.md")]
    pages += sorted(glob.glob(os.path.join(root, "docs/*.md")))
    assert len(pages) > 3, pages
    found = [f"{os.path.relpath(page, root)}:{one}" for page in pages for one in complaints_of(page, programs)]
    if (n_lines := read(pages[0]).count("\n")) > MAX_LINES:
        found.append(f"README.md: {n_lines} lines, at most {MAX_LINES}")
    if programs:
        found += programs_complaints(programs, read(pages[0]))
    if found or programs:
        print("\n".join([*found, f"{len(pages)} pages, {len(found)} complaints"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
