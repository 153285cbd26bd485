"""What is made of the tarball: the container image, started as a container is, and the wheel with the programs, in a root that has Python
alone. Used by test_dist.py. Only root may: files get the owners that they have in the image."""
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tarfile

import children

EPOCH = 1_700_000_000
MOST_BYTES = 30_000_000  # compressed
WRITABLE = {"tmp": 0o1777, "data": 0o700, "models": 0o755}
# Processes, mounts and a network of its own; then the image's user and folder. $0: the root.
CONTAINER = """set -e
mount -t proc proc "$0/proc"
for device in null urandom; do : >"$0/dev/$device"; mount --bind "/dev/$device" "$0/dev/$device"; done
ip link set lo up
exec unshare --root "$0" "$@"
"""


def good(done):
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def path_of(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


class Image:
    """A file in OCI's layout: blobs are what their names say."""

    def __init__(self, path):
        with tarfile.open(path) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}

    def blob(self, descriptor):
        data = self.files[path_of(descriptor)]
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == descriptor["digest"] and len(data) == descriptor["size"], descriptor
        return data

    def json(self, descriptor):
        return json.loads(self.blob(descriptor))

    def platform(self, architecture):
        """The configuration of one processor's image, and its layers as tars."""
        (named,) = json.loads(self.files["index.json"])["manifests"]
        assert named["mediaType"] == "application/vnd.oci.image.index.v1+json"
        assert named["annotations"]["io.containerd.image.name"].startswith("docker.io/library/parley:")
        (found,) = [one for one in self.json(named)["manifests"] if one["platform"] == {"architecture": architecture, "os": "linux"}]
        manifest = self.json(found)
        config, layers = self.json(manifest["config"]), [gzip.decompress(self.blob(one)) for one in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        assert sum(one["size"] for one in [manifest["config"], *manifest["layers"]]) <= MOST_BYTES
        (docker,) = json.loads(self.files["manifest.json"])
        assert docker["Config"] == path_of(manifest["config"]) and docker["Layers"] == [path_of(one) for one in manifest["layers"]]
        return config, layers


def unpack(layers, root, user):
    """The layers in a folder. Only three places in it are the user's."""
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            for member in tar:
                mode = WRITABLE.get(member.name)
                assert member.mtime == EPOCH and member.uid == member.gid == (user if mode in (0o700, 0o755) else 0), member.get_info()
                assert member.mode == mode or mode is None and (member.issym() or not member.mode & (stat.S_IWGRP | stat.S_IWOTH)), member.get_info()
            tar.extractall(root, numeric_owner=True)


class Container(children.Daemon):
    """The image's program, as the first process of a container."""

    def __init__(self, root, config, *flags):
        user, group = config["User"].split(":")
        self.root, self.environment = root, config["Env"]
        self.who = ["--setuid", user, "--setgid", group, "--"]
        self.command = ["env", "-i", *self.environment, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER, root,
                        "--wd", config["WorkingDir"], *self.who, *config["Entrypoint"], *flags]

    def __enter__(self):
        super().__enter__()
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            self.first = int(file.read())
        self.process.send_signal = lambda signal: os.kill(self.first, signal)  # its parent is unshare, which waits for it
        return self

    def run(self, *command):
        """As `docker exec` does it."""
        return children.run(["env", "-i", *self.environment, "nsenter", "--target", self.first, "--mount", "--net", "--pid", "--root", "--wd", *self.who,
                             *command], capture_output=True, text=True)


def probe_of(compose):
    """The command by which the compose file asks whether parleyd serves."""
    with open(compose) as file:
        (words,) = re.findall(r"healthcheck: {test: \[CMD, (.*?)\]", file.read())
    return words.split(", ")


def check_image(tool, tarball, compose, work, write_tiny_model):
    path, root = os.path.join(work, "image.tar"), os.path.join(work, "image")
    good(children.run([tool, path, f"{tarball}=/"], capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}))
    config, layers = Image(path).platform("amd64")
    what = config["config"]
    os.mkdir(root)
    unpack(layers, root, int(what["User"].partition(":")[0]))
    good(children.run([write_tiny_model, f"{root}/models/tiny.gguf"], capture_output=True, text=True))
    # Where no parleyd listens the probe says so.
    probe = probe_of(compose)
    assert probe == ["parley", "status"], probe
    alone = children.run(["env", "-i", *what["Env"], "unshare", "--net", "--root", root, "--", *probe, "--wait", "0.2"], capture_output=True, text=True)
    assert alone.returncode == 1 and "127.0.0.1:8001" in alone.stderr, alone
    with Container(root, what, "--model", "tiny=tiny.gguf") as container:
        assert (container.address, container.http) == ("0.0.0.0:8001", "0.0.0.0:8000"), container.ready
        good(container.run(*probe))
        asked = good(container.run("parley", "ask", "--json", "--max-tokens", "4", "--seed", "1", "hello"))
        assert json.loads(asked)["usage"]["completion_tokens"] == 4, asked
        with open(f"/proc/{container.first}/status") as file:
            said = dict(line.split(":\t", 1) for line in file)
        assert said["NSpid"].split()[1:] == ["1"] and set(said["Uid"].split() + said["Gid"].split()) == set(what["User"].split(":")), said
    assert os.path.getsize(f"{root}/data/journal.db") > 0 and os.stat(f"{root}/data/journal.db").st_uid == int(what["User"].partition(":")[0])


def check_wheel(tool, tarball, pure_folder, work, root, started):
    """root.run runs a command where there are Python and the C library alone; started(program) is a parleyd there."""
    (pure,) = glob.glob(f"{pure_folder}/parleyd-*-py3-none-any.whl")
    wheel = good(children.run([tool, pure, tarball, work], capture_output=True, text=True, env={**os.environ, "PARLEY_WHEEL_LEVEL": "0"})).strip()
    assert wheel.endswith("-py3-none-manylinux_2_36_x86_64.whl"), wheel
    shutil.copy(wheel, f"{root.folder}/tmp/")
    (pip,) = glob.glob("/usr/share/python-wheels/pip-*.whl")
    good(root.run("/usr/bin/python3", f"{pip}/pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir",
                  "--break-system-packages", "--root-user-action", "ignore", f"/tmp/{os.path.basename(wheel)}"))
    with started("/usr/local/bin/parleyd") as daemon:
        chat = root.run("/usr/local/bin/parley", "chat", "--server", daemon.address, "--model", "echo", input="hello\n")
        assert "hello" in good(chat), chat
    assert "parleyd" in good(root.run("/usr/bin/python3", "-m", "parleyd", "--version"))
