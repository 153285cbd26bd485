#!/usr/bin/env python3
"""Writes a container image from the tarballs of tools/dist.sh, without a daemon and without root: one file in OCI's layout, which podman,
skopeo, containerd and Docker load. An image has two layers: Debian's C library with certificates and a user, and Parley. Equal input
makes equal bytes.

usage: image.py OUT.tar TARBALL=FOLDER…    FOLDER has libc6 of the tarball's processor: /, or what tools/arm64_sysroot.sh made
       SOURCE_DATE_EPOCH: the time of all files and of the image
"""
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import tempfile

import libraries

USER = 65532  # who is nobody on the machine: the number that images without a shell usually have
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
LEVEL = 5  # gzip's 9 takes six times as long for 2 % less
MOST_BYTES = 30_000_000  # of what is fetched for one processor
OCI = "application/vnd.oci.image."
# Without the CUDA module, which is far larger than all else.
FROM_TARBALL = re.compile(r"(bin/.+|lib/(?!libparley-cuda).+|share/(golden|parley)(/.+)?|LICENSE(\..+)?)")
ENVIRONMENT = {
    "PATH": "/usr/bin",
    "LANG": "C.UTF-8",
    "PARLEY_LISTEN": "0.0.0.0:8001",
    "PARLEY_HTTP": "0.0.0.0:8000",
    "PARLEY_DATA": "/data",
    "HOME": "/data",
    "HF_HOME": "/models",
}
TEXTS = {
    "etc/passwd": f"root:x:0:0:root:/:/nologin\nparley:x:{USER}:{USER}:parley:/data:/nologin\n",
    "etc/group": f"root:x:0:\nparley:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Layer:
    """A tar of what it is given, in order of names, with folders above each; a second file by a name takes the first one's place."""

    def __init__(self, time):
        self.time, self.entries = time, {}

    def add(self, name, kind, mode, data=b"", link="", owner=0):
        above = os.path.dirname(name)
        if above and above not in self.entries:
            self.add(above, tarfile.DIRTYPE, 0o755)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
        info.uid = info.gid = owner
        info.mtime = self.time
        self.entries[name] = info, data

    def add_file(self, name, data, mode=0o644):
        self.add(name, tarfile.REGTYPE, mode, data)

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name in sorted(self.entries):
                info, data = self.entries[name]
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def loader_of(program):
    """Where the kernel looks for the program's loader, and the name of its processor's folders."""
    return re.search(r"interpreter: (.*)]", libraries.of_elf("--program-headers", program))[1], libraries.triplet(program)


def base_layer(folder, loader, triplet, time):
    """libc6, /lib and /lib64 as names of /usr/lib, certificates, and who parleyd is."""
    layer = Layer(time)
    for name in ("lib", "lib64", "bin"):
        layer.add(name, tarfile.SYMTYPE, 0o777, link="usr/bin" if name == "bin" else "usr/lib")
    places = [os.path.join(folder, place, triplet) for place in ("usr/lib", "lib")]
    for place in filter(os.path.isdir, places):
        for name in sorted(filter(libraries.C_LIBRARY.fullmatch, os.listdir(place))):
            layer.add_file(f"usr/lib/{name}", read(os.path.join(place, name)), 0o755)
    for name in (os.path.basename(loader), "libc.so.6", "libm.so.6"):
        if f"usr/lib/{name}" not in layer.entries:
            raise SystemExit(f"image: there is no {name} in {' or '.join(places)}")
    layer.add_file(CERTIFICATES, read(f"/{CERTIFICATES}"))
    for package, where in (("libc6", folder), ("ca-certificates", "/")):
        layer.add_file(f"usr/share/doc/{package}/copyright", read(os.path.join(where, f"usr/share/doc/{package}/copyright")))
    for name, text in TEXTS.items():
        layer.add_file(name, text.encode())
    for name in ("dev", "proc", "sys", "usr/bin"):
        layer.add(name, tarfile.DIRTYPE, 0o755)
    layer.add("tmp", tarfile.DIRTYPE, 0o1777)
    layer.add("data", tarfile.DIRTYPE, 0o700, owner=USER)
    layer.add("models", tarfile.DIRTYPE, 0o755, owner=USER)
    return layer


def parley_layer(tarball, time):
    """The tarball in /usr, without its pages: bin and lib lie beside each other, as the programs expect it."""
    layer = Layer(time)
    with tarfile.open(tarball) as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            if member.isfile() and FROM_TARBALL.fullmatch(name):
                place = f"usr/share/doc/parley/{name}" if name.startswith("LICENSE") else f"usr/{name}"
                layer.add_file(place, tar.extractfile(member).read(), 0o755 if member.mode & 0o100 else 0o644)
    if "usr/bin/parleyd" not in layer.entries:
        raise SystemExit(f"image: {tarball} has no bin/parleyd: ./run dist makes such a tarball")
    return layer


class Image:
    """What the file will have: blobs by their sha256."""

    def __init__(self, time):
        self.blobs, self.time = {}, time

    def add(self, kind, data):
        """A blob's descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": OCI + kind, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, kind, value):
        return self.add(kind, json.dumps(value, indent=1).encode())

    def write(self, path, index, docker):
        layer = Layer(self.time)
        layer.add_file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        layer.add_file("index.json", json.dumps(index, indent=1).encode())
        layer.add_file("manifest.json", json.dumps(docker).encode())  # for a Docker older than 25, which does not read OCI's
        for name, data in self.blobs.items():
            layer.add_file(name, data)
        with open(f"{path}.part", "wb") as out:
            out.write(layer.tar())
        os.replace(f"{path}.part", path)


def created(time):
    return datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def add_platform(image, tarball, folder, version):
    """The image of one processor: its descriptor, and what Docker's own list says of it."""
    parley = parley_layer(tarball, image.time)
    with tempfile.NamedTemporaryFile() as program:
        program.write(parley.entries["usr/bin/parleyd"][1])
        program.flush()
        loader, triplet = loader_of(program.name)
    tars = [base_layer(folder, loader, triplet, image.time).tar(), parley.tar()]
    layers = [image.add("layer.v1.tar+gzip", gzip.compress(tar, LEVEL, mtime=0)) for tar in tars]
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[triplet.partition("-")[0]]
    config = image.add_json("config.v1+json", {
        "created": created(image.time),
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8000/tcp": {}, "8001/tcp": {}},
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "Entrypoint": ["/usr/bin/parleyd"],
            "Volumes": {"/data": {}, "/models": {}},
            "WorkingDir": "/models",
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "parleyd", "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars]},
        "history": [{"created": created(image.time), "created_by": what} for what in ("Debian's libc6 and certificates", f"parley {version}")],
    })
    manifest = {"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config, "layers": layers}
    size = sum(blob["size"] for blob in [config, *layers])
    if size > MOST_BYTES:
        raise SystemExit(f"image: {architecture} has {size} bytes compressed, more than {MOST_BYTES}")
    print(f"{architecture}: {size / 1e6:.1f} MB compressed", file=sys.stderr)
    docker = {"Config": path_of(config), "RepoTags": [f"parley:{version}"], "Layers": [path_of(layer) for layer in layers]}
    return {**image.add_json("manifest.v1+json", manifest), "platform": {"architecture": architecture, "os": "linux"}}, docker


def path_of(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


def main():
    out, *given = sys.argv[1:]
    if not given or not all("=" in one for one in given):
        raise SystemExit(__doc__)
    image = Image(int(os.environ.get("SOURCE_DATE_EPOCH", 0)))
    version = re.search(r"parley-(.*)-[^-]+\.tar\.gz$", given[0].partition("=")[0])[1]
    platforms = [add_platform(image, *one.split("=", 1), version) for one in given]
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [descriptor for descriptor, _ in platforms]}
    name = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/parley:{version}"}
    image.write(out, {**index, "manifests": [{**image.add_json("index.v1+json", index), "annotations": name}]}, [platforms[0][1]])


main()
