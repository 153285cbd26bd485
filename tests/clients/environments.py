"""Environments of the client programs in build/clients, each made once by uv, from PyPI: some want another openai than the others do."""
import os
import subprocess
import sys

FOLDER = os.path.abspath("build/clients")
UV = "uv==0.13.9"
# None of these is of use here, and torch alone has gigabytes. The second line's are what Open WebUI runs models and reads documents with.
LEFT_OUT = ("torch", "transformers", "accelerate", "sentence-transformers",
            "torchvision", "faster-whisper", "onnxruntime", "opencv-python-headless", "rapidocr-onnxruntime", "colbert-ai", "unstructured",
            "azure-ai-documentintelligence")
FRAMEWORKS = ("langchain==1.5.2", "langchain-openai==1.7.4", "pydantic-ai-slim[openai]==2.38.0", "instructor==1.17.0", "openai-agents==0.24.0",
              "dspy==3.4.1", "litellm[proxy]==1.108.7", "jsonschema==4.26.0")
PACKAGES = {
    "frameworks": FRAMEWORKS,
    "small": ("langchain-ollama==1.1.0", "llm==0.36"),
    "llama_index": ("llama-index-llms-openai-like==0.8.1",),
    "open_webui": ("open-webui==0.12.4",),
    "browser": ("playwright==1.61.0",),
    # whose schemas collect_schemas.py collects
    "collected": ("mcp==1.30.0", "fastapi==0.165.0", "ollama==0.6.3", "langchain-core==1.8.3", "pyyaml==6.0.4",
                  "mcp-server-time==2026.10.10", "mcp-server-fetch==2026.10.10", "mcp-server-git==2026.10.10", "mcp-server-sqlite==2025.4.25", "duckduckgo-mcp-server==0.6.1",
                  "awslabs-aws-documentation-mcp-server==1.1.30", "excel-mcp-server==0.1.8", "office-word-mcp-server==1.1.11", "wikipedia-mcp==2.0.1", "dask-kubernetes==2026.3.0", "prance==26.7.19.0"),
    "lm_eval": ("lm_eval[api]==0.4.13", "gguf==0.19.0"),
}


def uv():
    program = f"{FOLDER}/uv/bin/uv"
    if not os.path.exists(program):
        subprocess.run([sys.executable, "-m", "venv", f"{FOLDER}/uv"], check=True)
        subprocess.run([f"{FOLDER}/uv/bin/pip", "install", "--quiet", "--disable-pip-version-check", UV], check=True)
    return program


def python_of(name):
    """The interpreter of an environment, which is made where it is not there as it should be."""
    if name == "parlai":
        return subprocess.run([os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench/parlai.sh")], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    folder, wanted = f"{FOLDER}/{name}", " ".join(PACKAGES[name])
    stamp = f"{folder}/packages"
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != wanted:
        print(f"installing {wanted}", flush=True)
        os.makedirs(FOLDER, exist_ok=True)
        with open(f"{FOLDER}/left_out.txt", "w", encoding="utf-8") as file:
            file.writelines(f'{package} ; python_version < "3"\n' for package in LEFT_OUT)
        subprocess.run([uv(), "venv", "--quiet", "--clear", folder], check=True)
        subprocess.run([uv(), "pip", "install", "--quiet", "--python", f"{folder}/bin/python", "--override", f"{FOLDER}/left_out.txt", *PACKAGES[name]], check=True)
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(wanted)
    return f"{folder}/bin/python"


def program_of(name, program):
    return os.path.join(os.path.dirname(python_of(name)), program)
