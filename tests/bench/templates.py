#!/usr/bin/env python3
"""The chat templates that llama.cpp carries, rendered by ours and by jinja2: the sources of llama-cpp-python are
fetched from PyPI once, into build/templates.

usage: templates.py BUILD_DIR MODEL.gguf      (the Python of build/venv; the model is not used)
"""

import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "build" / "templates"
URL = ("https://files.pythonhosted.org/packages/ec/e9/e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/"
       "llama_cpp_python-0.3.36.tar.gz")
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"


def fetch():
    if FOLDER.exists():
        return
    print(f"fetching {URL}", file=sys.stderr)
    with urllib.request.urlopen(URL, timeout=600) as answer:
        packed = answer.read()
    if hashlib.sha256(packed).hexdigest() != SHA256:
        raise SystemExit(f"{URL}: not the bytes that were expected")
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file, tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        file.write(packed)
        file.flush()
        with tarfile.open(file.name) as archive:
            for member in archive:
                if "/models/templates/" in member.name and member.name.endswith(".jinja"):
                    member.name = pathlib.Path(member.name).name
                    archive.extract(member, pathlib.Path(folder) / "all", filter="data")
        (pathlib.Path(folder) / "all").rename(FOLDER)


def main():
    fetch()
    renderer = pathlib.Path(sys.argv[1]) / "tests" / "integration" / "render_template"
    script = HERE.parent / "integration" / "chat_templates.py"
    return subprocess.run([sys.executable, script, renderer, FOLDER], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
