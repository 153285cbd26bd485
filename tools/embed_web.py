#!/usr/bin/env python3
"""Writes the files of the page as the C of server/api/web_files.h: compressed, with the hash of each.

The modules that main.js imports become one script, in the order in which they need each other, without their imports and
exports: a browser asks once, not once a module. For that the modules follow three rules, which are checked here: they import by
name from ./FILE.js, they rename nothing, and no two of them give a name at their top level.

A library that Debian packages as a script becomes a module whose default export is what the script exports.

usage: embed_web.py PAGE.html PAGE.css MAIN.js MARKED.js KATEX.js OUT.c OUT.d
"""
import gzip
import hashlib
import os
import re
import sys

IMPORT = re.compile(r"^import\s+\{([^}]*)\}\s+from\s+'\./([a-z_]+\.js)';\n", re.M)
LIBRARY = re.compile(r"^import\s+([a-z]+)\s+from\s+'(/web/[a-z]+\.js)';\n", re.M)
NAME = re.compile(r"^(?:export )?(?:async )?(?:function\*? |class |const |let )(\w+)", re.M)
LICENCES = {"marked": "libjs-marked", "katex": "libjs-katex"}
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
         "txt": "text/plain; charset=utf-8"}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def die(text):
    sys.exit(f"embed_web.py: {text}")


def modules(folder, name, found, above=()):
    """Fills found, in the order in which modules need each other, with the source of each by its name."""
    if name in above:
        die(f"{' -> '.join(above + (name,))}: modules import each other in a circle")
    if name in found:
        return
    source = read(os.path.join(folder, name))
    for names, other in IMPORT.findall(source):
        if " as " in names:
            die(f"{name} renames what it imports from {other}")
        modules(folder, other, found, above + (name,))
        exported = re.findall(r"^export (?:async )?(?:function\*? |class |const |let )(\w+)", found[other], re.M)
        for one in filter(None, (n.strip() for n in names.split(","))):
            if one not in exported:
                die(f"{name} imports {one}, which {other} does not export")
    found[name] = source


def joined(main):
    """The modules as one script, and their paths."""
    folder, found, owners, libraries, parts = os.path.dirname(main), {}, {}, {}, []
    modules(folder, os.path.basename(main), found)
    for name, source in found.items():
        for one in NAME.findall(source):
            if one in owners:
                die(f"{name} and {owners[one]} both name {one}")
            owners[one] = name
        libraries.update({path: given for given, path in LIBRARY.findall(source)})
        rest = re.sub(r"^export ", "", LIBRARY.sub("", IMPORT.sub("", source)), flags=re.M)
        if re.search(r"^(import|export)\b", rest, re.M):
            die(f"{name} imports or exports in a way that is not understood")
        parts.append(f"// --- {name} ---\n{rest}")
    head = "".join(f"import {given} from '{path}';\n" for path, given in libraries.items())
    return head + "\n".join(parts), [os.path.join(folder, name) for name in found]


def as_module(script):
    return f"const module = {{exports: {{}}}}, exports = module.exports;\n{script}\nexport default module.exports;\n"


def licences():
    text = "The page is part of Parley, under the Apache License 2.0. It brings:\n"
    for name, package in LICENCES.items():
        text += f"\n--- {name} (Debian's {package}) ---\n\n" + read(f"/usr/share/doc/{package}/copyright")
    return text


def c_of(files):
    out = ['#include "server/api/web_files.h"', ""]
    rows = []
    for i, (name, text) in enumerate(files.items()):
        data = text.encode()
        packed = gzip.compress(data, 9, mtime=0)
        tag = hashlib.sha256(data).hexdigest()[:24]
        out.append(f"static const unsigned char bytes_{i}[] = {{")
        out += ["    " + " ".join(f"{b}," for b in packed[at : at + 20]) for at in range(0, len(packed), 20)]
        out.append("};")
        rows.append(f'    {{"{name}", {{"{TYPES[name.split(".")[1]]}", "\\"{tag}\\"", bytes_{i}, {len(packed)}, {len(data)}}}}},')
    return "\n".join(out + ["const struct web_file web_files[] = {"] + rows + ["};", f"const size_t web_n_files = {len(files)};", ""])


def main():
    page, style, program, marked, katex, out, depfile = sys.argv[1:]
    script, sources = joined(program)
    files = {
        "page.html": read(page),
        "page.css": read(style),
        "page.js": script,
        "marked.js": as_module(read(marked)),
        "katex.js": as_module(read(katex)),
        "licences.txt": licences(),
    }
    with open(out, "w", encoding="ascii") as f:
        f.write(c_of(files))
    with open(depfile, "w", encoding="utf-8") as f:
        f.write(f"{out}: {' '.join(sources)}\n")


if __name__ == "__main__":
    main()
