"""Membership in a group of parley.v1.Registry. It lasts as long as the call of Join."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

from parley import wire
from parley.client import Link
from parley.interrupts import Condition
from parley.parallel.tasks import milliseconds
from parley.v1 import registry_pb2 as pb
from parley.wire import Error

VALUE, SERVICE = pb.REGISTRY_KIND_VALUE, pb.REGISTRY_KIND_SERVICE


class MemberLost(Error):
    """The operation failed because a member of the group is gone. `member` is its name."""

    def __init__(self, member: str, message: str) -> None:
        super().__init__("ABORTED", message, "MEMBER_LOST")
        self.member = member

    def __reduce__(self) -> Any:
        return MemberLost, (self.member, self.message)


class Membership:
    """The state of the group, kept up to date by the daemon's events. `changed` guards this state and is notified of each event."""

    def __init__(self, link: Link, group: str, member: str, lease: float, gone: Callable[[str], None] | None = None) -> None:
        """lease: after how many seconds without running this process is lost; 0: it is lost when its call ends. gone: called with the name
        of each member that leaves or is lost, and at the end with this member's name, on a thread of its own."""
        self.link, self.group, self.member, self._gone = link, group, member, gone
        self.changed = Condition()
        self.members = set[str]()
        self.values = dict[str, bytes]()  # the entries of the kind VALUE
        # Until `is_begun`: all members that have joined, and their entries "@…", even if they have left since. A process that waits for
        # all members counts these, too.
        self.came = set[str]()
        self.said = dict[str, tuple[str, bytes]]()
        self.is_begun = False
        self.lost = set[str]()  # members whose last membership ended with a loss
        self.error: Error | None = None  # set when this process is not a member any more
        self._cause: Error | None = None  # why this process dropped its membership
        self.lease = 0
        link.reach()
        request = pb.RegistryJoinRequest(group=group, member=member, lease_ms=milliseconds(lease, "lease"))
        self._call = link.stream("Registry/Join", request, pb.RegistryEvent)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            with self.changed:
                self.changed.wait_for(lambda: self.lease or self.error)
                if self.error is not None:
                    raise self.error
        except BaseException:
            self._call.cancel()  # else the name would stay taken
            raise
        if lease > 0:
            threading.Thread(target=self._renew, args=(lease / 4,), daemon=True).start()

    def _renew(self, seconds: float) -> None:
        while True:
            with self.changed:
                if self.changed.wait_for(lambda: self.error, seconds):
                    return
            try:
                self.link.once("Registry/Renew", pb.RegistryRenewRequest(lease=self.lease), pb.RegistryRenewResponse)
            except (Error, ValueError):
                pass  # the call of Join reports the end of the membership; ValueError: the channel is closed

    def _read(self) -> None:
        error = Error("FAILED_PRECONDITION", f"'{self.member}' has left the group '{self.group}'")
        try:
            for event in self._call:
                with self.changed:
                    self._take(event)
                    self.changed.notify_all()
                if self._gone is not None and event.kind in (pb.REGISTRY_EVENT_KIND_LEFT, pb.REGISTRY_EVENT_KIND_LOST):
                    self._gone(event.member)
        except grpc.RpcError as e:
            error = wire.error_of(e)
        with self.changed:
            if error.code == "CANCELLED" and self._cause is not None:
                error = self._cause
            self.error = error
            self.changed.notify_all()
        if self._gone is not None:
            self._gone(self.member)

    def _take(self, event: pb.RegistryEvent) -> None:
        if event.kind == pb.REGISTRY_EVENT_KIND_JOINED:
            self.members.add(event.member)
            if not self.is_begun:
                self.came.add(event.member)
        elif event.kind in (pb.REGISTRY_EVENT_KIND_LEFT, pb.REGISTRY_EVENT_KIND_LOST):
            self.members.discard(event.member)
            (self.lost.add if event.kind == pb.REGISTRY_EVENT_KIND_LOST else self.lost.discard)(event.member)
            if event.kind == pb.REGISTRY_EVENT_KIND_LOST and not self.is_begun:
                self.came.discard(event.member)
                self.said = {k: s for k, s in self.said.items() if s[0] != event.member}
        elif event.kind == pb.REGISTRY_EVENT_KIND_SYNCED:
            self.lease = event.lease
        elif event.entry.kind == VALUE and event.kind == pb.REGISTRY_EVENT_KIND_PUT:
            self.values[event.entry.key] = event.entry.value
            if not self.is_begun and event.entry.key.startswith("@"):
                self.said[event.entry.key] = event.entry.member, event.entry.value
        elif event.entry.kind == VALUE and event.kind == pb.REGISTRY_EVENT_KIND_DELETED:
            self.values.pop(event.entry.key, None)

    def put(self, kind: Any, key: str, value: bytes = b"") -> None:
        """Puts an entry. If another member has it, fails with ALREADY_EXISTS; the message names that member."""
        self.link.once("Registry/Put", pb.RegistryPutRequest(lease=self.lease, kind=kind, key=key, value=value), pb.RegistryPutResponse)

    def delete(self, kind: Any, key: str) -> None:
        self.link.once("Registry/Delete", pb.RegistryDeleteRequest(lease=self.lease, kind=kind, key=key), pb.RegistryDeleteResponse)

    def holder(self, kind: Any, key: str) -> str | None:
        """Returns the member that holds an entry, or None. Asks the daemon, which may know more than the events received so far."""
        try:
            answer = self.link.call("Registry/Get", pb.RegistryGetRequest(group=self.group, kind=kind, key=key), pb.RegistryGetResponse)
            return answer.entry.member
        except Error as e:
            if e.code != "NOT_FOUND" or e.field != "key":
                raise
            return None

    def barrier(self, name: str, epoch: int, n: int) -> Any:
        """Starts a call of Barrier and returns it; `changed` is notified when the call ends."""
        method = self.link.channel.unary_unary("/parley.v1.Registry/Barrier", pb.RegistryBarrierRequest.SerializeToString,
                                               pb.RegistryBarrierResponse.FromString)
        call = method.future(pb.RegistryBarrierRequest(lease=self.lease, name=name, epoch=epoch, n=n), metadata=self.link.metadata)

        def tell(_: Any) -> None:
            with self.changed:
                self.changed.notify_all()

        call.add_done_callback(tell)
        return call

    def leave(self) -> None:
        """Leaves the group in order, which ends the call of Join."""
        try:
            self.link.once("Registry/Leave", pb.RegistryLeaveRequest(lease=self.lease), pb.RegistryLeaveResponse)
        except Error:
            self.drop()
        with self.changed:
            self.changed.wait_for(lambda: self.error is not None)

    def drop(self, cause: Error | None = None) -> None:
        """Ends the call of Join; the other members then see this one as lost. cause: what later calls of this process raise."""
        with self.changed:
            self._cause = self._cause or cause
        self._call.cancel()
