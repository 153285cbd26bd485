"""Versioned values and models that processes share.

    >>> import numpy as np
    >>> server = parley.connect(ADDRESS)
    >>> store = parley.OrderedStore(server)
    >>> store.push("scores", {"best": 3}, version=1)
    True
    >>> store.push("scores", {"best": 4}, version=2, prev_version=1)  # the newest version was 1
    True
    >>> store.pull("scores")
    ({'best': 4}, 2)
    >>> learner, actor = {"w": np.ones(2)}, {"w": np.zeros(2)}  # or modules of torch
    >>> parley.PushPullModel(server, "actor").push(learner)  # its parameters, as the next version
    True
    >>> parley.PushPullModel(server, "actor").pull(actor), actor["w"]  # loads them if they are newer
    (True, array([1., 1.]))
    >>> server.close()

A value is bytes, a numpy array, a dict of numpy arrays, or anything that JSON can represent; nothing is pickled. With several daemons,
the key decides which daemon holds the value."""
from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from parley import wire
from parley.channel import Link
from parley.client import Server, connect
from parley.crc32c import crc32c
from parley.v1 import principal_pb2
from parley.v1 import store_pb2 as pb
from parley.wire import Error, Invalid

PART_BYTES = 1 << 20
BYTES, JSON, ARRAY, ARRAYS = "application/octet-stream", "application/json", "application/x-npy", "application/x-npz"


def link_of(server: Server, name: str) -> Link:
    """Returns the link to the daemon that holds the key or table of this name."""
    return server.links[zlib.crc32(name.encode()) % len(server.links)]


def encode(value: Any) -> tuple[str, bytes]:
    """Returns the value's content type and its bytes. Refuses what a pull would return as something else, by its place in the value."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BYTES, bytes(value)
    out = io.BytesIO()
    if isinstance(value, np.ndarray):
        _save(out, "value", value)
        return ARRAY, out.getvalue()
    if isinstance(value, Mapping) and value and all(isinstance(v, np.ndarray) for v in value.values()):
        with zipfile.ZipFile(out, "w") as archive:  # numpy.savez's, whose arguments take some names
            for name, array in value.items():
                if not isinstance(name, str):
                    raise Invalid("value", f"has an array with the name {name!r}, names must be texts")
                if "\0" in name:
                    raise Invalid("value", f"has an array with the name {name!r}, whose end behind the NUL would be lost")
                with archive.open(name + ".npy", "w", force_zip64=True) as f:
                    _save(f, name, array)
        return ARRAYS, out.getvalue()
    _check_json("value", value)
    return JSON, json.dumps(value, allow_nan=False).encode()


def _save(out: Any, name: str, array: npt.NDArray[Any]) -> None:
    file: Any = np.lib.format
    if array.dtype.hasobject or file.descr_to_dtype(file.dtype_to_descr(array.dtype)) != array.dtype:
        raise Invalid(name, f"has the type {array.dtype}, which numpy's files do not have: a pull would return another type")
    if type(array) not in (np.ndarray, np.memmap):
        raise Invalid(name, f"is a {type(array).__name__}, a pull would return a plain array: pass numpy.asarray(…) of what it is to be")
    np.save(out, array, allow_pickle=False)


def _check_json(place: str, value: Any) -> None:
    """Refuses what JSON would change: tuples, keys that are no texts, NaN and infinities, other types."""
    if type(value) is dict:
        for key, v in value.items():
            if type(key) is not str:
                raise Invalid(place, f"has the key {key!r}, JSON has only texts as keys")
            _check_json(f"{place}[{key!r}]", v)
    elif type(value) is list:
        for i, v in enumerate(value):
            _check_json(f"{place}[{i}]", v)
    elif type(value) is float:
        if not math.isfinite(value):
            raise Invalid(place, f"is {value}, which JSON does not have: pass a numpy array")
    elif value is not None and type(value) not in (str, int, bool):
        raise Invalid(place, f"is a {type(value).__name__}: a value is bytes, an array of numpy, a dict of such arrays, or of JSON's "
                             "types (dict, list, str, int, float, bool, None)")


def decode(content_type: str, data: bytes) -> Any:
    """Returns the value; for a content type of another program, the bytes themselves."""
    if content_type == JSON:
        return json.loads(data)
    if content_type == ARRAY:
        return np.load(io.BytesIO(data), allow_pickle=False)
    if content_type == ARRAYS:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False) for name in archive.namelist()}
    return data


class OrderedStore:
    """Keys with versioned values. A push is accepted only if it names the newest version as the version before its own."""

    def __init__(self, server: Server | str) -> None:
        self._server = connect(server) if isinstance(server, str) else server

    def _link(self, key: str) -> Link:
        return link_of(self._server, key)

    def configure(self, key: str, *, history: int | None = None, max_bytes: int | None = None, readers: tuple[str, ...] = (),
                  writers: tuple[str, ...] = ()) -> None:
        """Configures a key. history: how many versions are kept besides the newest (1 for a key that was not configured). readers and
        writers: names of other principals that may use the key; they call it "OWNER/KEY"."""
        request = pb.StoreConfigureRequest(key=key, history=history or 0, has_history=history is not None, max_bytes=max_bytes or 0,
                                           has_max_bytes=max_bytes is not None)
        if readers or writers:
            request.access.CopyFrom(principal_pb2.AccessList(readers=readers, writers=writers))
        self._link(key).call("Store/Configure", request, pb.StoreConfigureResponse)

    def push(self, key: str, value: Any, version: int, prev_version: int | None = None) -> bool:
        """Pushes a value and returns whether the daemon accepted it. prev_version must be the newest version, unless the key has no
        version yet."""
        content_type, data = encode(value)
        return self.push_bytes(key, data, version, prev_version, content_type)

    def push_bytes(self, key: str, data: bytes, version: int, prev_version: int | None = None, content_type: str = BYTES) -> bool:
        # No retry: if the answer is lost, it is unknown whether the daemon accepted the push.
        link = self._link(key)
        link.reach()
        header = pb.StorePushHeader(key=key, version=version, prev_version=prev_version or 0, has_prev_version=prev_version is not None,
                                    size_bytes=len(data), content_type=content_type, crc32c=crc32c(data), has_crc32c=True)

        def messages() -> Iterator[pb.StorePushRequest]:
            yield pb.StorePushRequest(header=header)
            for at in range(0, len(data), PART_BYTES):
                yield pb.StorePushRequest(data=data[at:at + PART_BYTES])

        return bool(link.upload("Store/Push", messages(), pb.StorePushRequest.SerializeToString, pb.StorePushResponse).accepted)

    def pull(self, key: str, version: int | None = None) -> tuple[Any, int] | None:
        """Returns the value of a version and the version's number; None if the version does not exist. version: None for the newest."""
        header, data = self.pull_bytes(key, version)
        return (decode(header.content_type, data), header.version) if header.found else None

    def pull_if_newer(self, key: str, than: int) -> tuple[Any, int] | None:
        """Like pull, but returns None if the newest version is not newer than `than`."""
        header, data = self.pull_bytes(key, if_newer_than=than)
        return (decode(header.content_type, data), header.version) if header.found and not header.not_modified else None

    def pull_bytes(self, key: str, version: int | None = None, if_newer_than: int | None = None) -> tuple[pb.StorePullHeader, bytes]:
        link = self._link(key)
        request = pb.StorePullRequest(key=key, version=version or 0, has_version=version is not None, if_newer_than=if_newer_than or 0,
                                      has_if_newer_than=if_newer_than is not None)
        def take(stream: Iterator[pb.StorePullResponse]) -> tuple[pb.StorePullHeader, bytes]:
            header = next(stream).header
            data = b"".join(part.data for part in stream)
            if len(data) != header.size_bytes or data and crc32c(data) != header.crc32c:
                raise Error("DATA_LOSS", f"the value of '{key}' arrived damaged: pull it again", "CHECKSUM_DIFFERS")
            return header, data

        return link.retried(lambda: link.read("Store/Pull", request, pb.StorePullResponse.FromString, take))

    def watch(self, key: str) -> Iterator[int]:
        """Yields the number of the newest version, then the number of each new version."""
        link = self._link(key)
        stream = link.stream("Store/Watch", pb.StoreWatchRequest(key=key), pb.StoreVersion)
        try:
            for version in stream:
                yield version.version
        except grpc.RpcError as e:
            raise link.error_of(e) from None
        finally:
            stream.cancel()

    def versions(self, key: str) -> list[int]:
        """Returns the numbers of the versions that are kept, the newest first."""
        answer = self._link(key).call("Store/List", pb.StoreListRequest(), pb.StoreListResponse)
        return next((list(k.versions) for k in answer.keys if k.key == key), [])

    def checkpoint(self, key: str) -> None:
        """Stores the key on the daemon's disk (--data), and returns when its versions would survive a restart."""
        self._link(key).call("Store/Checkpoint", pb.StoreCheckpointRequest(key=key), pb.StoreCheckpointResponse)

    def delete(self, key: str) -> None:
        self._link(key).call("Store/Delete", pb.StoreDeleteRequest(key=key), pb.StoreDeleteResponse)


Arrays = dict[str, npt.NDArray[Any]]


def arrays_of(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Returns the state of a torch module, or of a dict, as arrays. Refuses, by name, what the store cannot hold."""
    found = dict[str, npt.NDArray[Any]]()
    for name, value in (model if isinstance(model, Mapping) else model.state_dict()).items():
        if not isinstance(value, np.ndarray):
            try:
                value = value.detach().cpu().numpy()
            except (AttributeError, TypeError, RuntimeError):
                raise Invalid(str(name), f"is a {getattr(value, 'dtype', type(value).__name__)}, which numpy does not have: convert it before, as with "
                                         "module.float()") from None
        found[name] = value
    return found


def load_arrays(model: Any, arrays: Arrays, loaded: Callable[[], None] = lambda: None) -> None:
    """Loads all arrays and calls `loaded`, or refuses by name and does neither."""
    own = model if isinstance(model, Mapping) else model.state_dict()
    if own.keys() != arrays.keys():
        raise ValueError(f"the pulled model has other parameters than this one: it has {sorted(arrays)}, this one has {sorted(own)}")
    for name, value in arrays.items():
        if tuple(own[name].shape) != value.shape:
            raise Invalid(name, f"has the shape {value.shape} in the pulled model, in this model it has the shape {tuple(own[name].shape)}")
        if str(own[name].dtype).removeprefix("torch.") != str(value.dtype):
            raise Invalid(name, f"has the type {value.dtype} in the pulled model, in this model it has {own[name].dtype}")

    def load() -> None:
        for name, value in arrays.items():
            if isinstance(own[name], np.ndarray):
                own[name][...] = value
            else:
                import torch

                with torch.no_grad():
                    own[name].copy_(torch.from_numpy(np.array(value)))
        loaded()

    wire.wholly(load)


class PushPullModel:
    """A model stored under one key, with the interface of Machin's PushPullModelServer. Use one object for each copy of the model;
    `version` is the copy's version, 0 before the first push or pull. Gradients are neither sent nor changed."""

    def __init__(self, server: Server | str, key: str) -> None:
        self.store, self.key, self.version = OrderedStore(server), key, 0

    def push(self, model: Any, pull_on_fail: bool = True) -> bool:
        """Pushes the model as the version after `version` and returns whether the daemon accepted it. It is refused if another process
        pushed this version before; with pull_on_fail the newest version is then loaded into the model."""
        if self.store.push(self.key, arrays_of(model), self.version + 1, self.version):
            self.version += 1
            return True
        if pull_on_fail:
            self.pull(model)
        return False

    def pull(self, model: Any) -> bool:
        """Loads the newest version into the model if it differs from `version`. Returns False if no model was pushed yet."""
        header, data = self.store.pull_bytes(self.key, if_newer_than=self.version)
        if header.found and not header.not_modified:
            load_arrays(model, decode(header.content_type, data), lambda: setattr(self, "version", header.version))
        return bool(header.found)
