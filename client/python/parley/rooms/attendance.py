"""The code that the blocking client and the asyncio client of rooms share: a person in a room, across all its connections. Nothing here
blocks."""
from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Sequence

from parley.v1 import rooms_pb2 as pb
from parley.wire import Error, Invalid

METHOD = "Rooms/Attach"
QUEUE_MAX = 256  # messages that wait for the program; what comes then stays in the room, and is asked for again
LEAVE_S = 5.0  # how long leave() waits until the daemon has said that the person has left


@dataclasses.dataclass(frozen=True)
class Message:
    """An entry of a room's log. `kind` is "joined", "said" or "left"; the `text` of "left" says why: "left", or "gone" after a lost
    connection. `missed` is how many entries before it the room had dropped before they were read: it keeps its last 1,000."""

    seq: int
    kind: str
    name: str
    text: str
    participant: str  # who it is of: names may be alike, this differs
    time: float  # in seconds since 1970, by the daemon's clock
    is_mine: bool = False
    reply_to: int = 0  # the entry that it answers; 0: none
    quick_replies: tuple[str, ...] = ()
    missed: int = 0

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.kind == "said" else f"{self.name} {self.text or self.kind}"


@dataclasses.dataclass(frozen=True)
class Member:
    """Somebody in a room. is_here: false while the person has no connection."""

    participant: str
    name: str
    is_here: bool = True
    is_typing: bool = False


def word_of(kind: int) -> str:
    """Of an entry's kind; of one that a newer daemon has, its number."""
    if kind not in pb.RoomEntryKind.values():
        return str(kind)
    name: str = pb.RoomEntryKind.Name(kind)
    return name.removeprefix("ROOM_ENTRY_KIND_").lower()


class Attendance:
    """A person in a room. It makes the requests of each connection, and takes what the daemon sends, each entry once."""

    def __init__(self, room: str, name: str, token: str, after: int, from_now: bool) -> None:
        if not 0 <= after <= 0xffffffff:
            raise Invalid("after", f"is {after}, it must be the seq of an entry, or 0")
        if after and from_now:
            raise Invalid("from_now", "excludes after")
        self.room, self.name, self.token, self.participant = room, name, token, ""
        self.queue: deque[Message] = deque()
        self.members: dict[str, Member] = {}
        self.ended: str | None = None  # why the person is not in the room any more
        self.is_in = False  # on the present connection
        self._last, self._from_now, self._has_last = after, from_now, after > 0  # the last entry that was taken
        self._is_skipping = self._is_rejoining = False  # entries are not taken, as the queue is full; they were asked for again
        self._rejoin_at = 0.0
        self._next_client_seq = 1
        self._said: pb.RoomSay | None = None  # what is being said
        self._answer: int | Error | None = None  # its entry's seq (0: it is in no log any more), or why there is none
        self._was_said = False  # so the daemon has counted it

    # --- a connection ---

    def begin(self) -> list[pb.RoomsAttachRequest]:
        """Returns what a new connection sends first."""
        self.is_in = self._is_skipping = self._is_rejoining = False
        hello = pb.RoomHello(token=self.token) if self.token else pb.RoomHello(name=self.name)
        return [pb.RoomsAttachRequest(hello=hello), self._join()]

    def _join(self) -> pb.RoomsAttachRequest:
        return pb.RoomsAttachRequest(join=pb.RoomJoin(room=self.room, after_seq=self._last, from_now=self._from_now))

    def take(self, response: pb.RoomsAttachResponse) -> list[pb.RoomsAttachRequest]:
        """Takes what the daemon sends. Returns what is to be sent. Raises Error if the connection is of no use. A frame that a newer
        daemon has is nothing."""
        what = response.WhichOneof("frame")
        if what == "welcome":
            self.participant, self.token, self.name = response.welcome.participant, response.welcome.token, response.welcome.name
        elif what == "snapshot":
            return self._take_snapshot(response.snapshot)
        elif what == "entry":
            self._take_entry(response.entry)
        elif what == "member":
            self._take_member(response.member)
        elif what == "ack":
            self._settle(response.ack.client_seq, response.ack.seq)
        elif what == "left":
            self.ended = response.left.why
        elif what == "error":
            self._take_error(response.error)
        return []

    def _take_snapshot(self, snapshot: pb.RoomSnapshot) -> list[pb.RoomsAttachRequest]:
        is_first, self.is_in = not self.is_in, True
        self.members.clear()
        for member in snapshot.members:
            self._take_member(member)
        self._is_skipping = self._is_rejoining = False
        if self._from_now:
            self._last, self._has_last, self._from_now = snapshot.next_seq - 1, True, False
        if self._said is None:
            self._next_client_seq = snapshot.next_client_seq
        elif is_first and self._answer is None:
            self._was_said = snapshot.next_client_seq > self._said.client_seq
            return [pb.RoomsAttachRequest(say=self._said)]  # it may have been said: the number tells
        return []

    def _take_member(self, member: pb.RoomMember) -> None:
        is_here = member.presence != pb.ROOM_PRESENCE_AWAY
        self.members[member.participant] = Member(member.participant, member.name, is_here, member.typing)

    def _take_entry(self, entry: pb.RoomEntry) -> None:
        if entry.seq <= self._last:
            return
        kind = word_of(entry.kind)
        if kind == "left":
            self.members.pop(entry.participant, None)
        elif entry.participant not in self.members:
            self.members[entry.participant] = Member(entry.participant, entry.name)
        elif kind == "said":
            self.members[entry.participant] = dataclasses.replace(self.members[entry.participant], is_typing=False)
        if entry.participant == self.participant and entry.client_seq:
            self._settle(entry.client_seq, entry.seq)
        if len(self.queue) >= QUEUE_MAX:
            self._is_skipping = True
        if self._is_skipping:
            return
        missed = entry.seq - self._last - 1 if self._has_last else 0
        self._last, self._has_last = entry.seq, True
        self.queue.append(Message(entry.seq, kind, entry.name, entry.text, entry.participant, entry.unix_ms / 1000,
                                  entry.participant == self.participant, entry.reply_to, tuple(entry.quick_replies), missed))

    def _take_error(self, from_daemon: pb.RoomError) -> None:
        error = Error(from_daemon.code, from_daemon.message, "", from_daemon.field, from_daemon.retry_ms / 1000)
        if from_daemon.client_seq:
            self._settle(from_daemon.client_seq, error)
        elif not self.is_in:
            raise error
        elif self._is_rejoining:
            self._is_rejoining, self._rejoin_at = False, time.monotonic() + max(error.retry_after, 0.01)

    # --- what the program reads ---

    @property
    def is_behind(self) -> bool:
        """Messages were left in the room, and were not asked for again."""
        return self._is_skipping and not self._is_rejoining and self.is_in

    def catch_up(self) -> tuple[list[pb.RoomsAttachRequest], float | None]:
        """The program waits for a message, and there is none. Returns what is to be sent now, and when this is to be called again, by
        time.monotonic (None: when something has come)."""
        if not self.is_behind:
            return [], None
        if time.monotonic() < self._rejoin_at:
            return [], self._rejoin_at
        self._is_rejoining = True
        return [self._join()], None

    # --- what the program says ---

    def _settle(self, client_seq: int, answer: int | Error) -> None:
        if self._said is None or self._said.client_seq != client_seq or isinstance(self._answer, int):
            return
        if self._was_said and isinstance(answer, Error) and answer.code == "FAILED_PRECONDITION":
            answer = 0
        self._answer = answer
        if isinstance(answer, int):
            self._next_client_seq = client_seq + 1

    def _says(self, text: str, reply_to: int, quick_replies: Sequence[str]) -> bool:
        said = self._said
        return said is not None and (said.text, said.reply_to, list(said.quick_replies)) == (text, reply_to, list(quick_replies))

    def may_say(self, text: str, reply_to: int, quick_replies: Sequence[str]) -> bool:
        """Whether this may be said now: nothing else is under way, since an interruption."""
        return self._said is None or self._answer is not None or self._says(text, reply_to, quick_replies)

    def say(self, text: str, reply_to: int, quick_replies: Sequence[str]) -> list[pb.RoomsAttachRequest]:
        """Begins to say it. The same words as those that were interrupted are those. Returns what is to be sent."""
        if self._says(text, reply_to, quick_replies) and not isinstance(self._answer, Error):
            return []
        said = pb.RoomSay(room=self.room, client_seq=self._next_client_seq, text=text, reply_to=reply_to, quick_replies=quick_replies)
        self._said, self._answer, self._was_said = said, None, False
        return self.say_again()

    def say_again(self) -> list[pb.RoomsAttachRequest]:
        """Returns what is to be sent to say it, once more after it was refused for a while."""
        assert self._said is not None
        self._answer = None
        return [pb.RoomsAttachRequest(say=self._said)] if self.is_in else []  # else a connection's first snapshot has it sent

    @property
    def is_settled(self) -> bool:
        return self._answer is not None

    def settled(self) -> int | Error:
        """The answer to what was said last."""
        assert self._answer is not None
        return self._answer

    def forget(self) -> None:
        """The answer has reached the program: the same words again are new ones."""
        self._said = self._answer = None

    def gone(self) -> Error:
        return Error("FAILED_PRECONDITION", f"the person is not in the room '{self.room[:80]}' any more: {self.ended}")


class Present:
    """What both clients' Room has: what it says of the person."""

    def __init__(self, state: Attendance) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """The person's name, which the daemon makes up if none is given."""
        return self._state.name

    @property
    def participant(self) -> str:
        """The person's public id."""
        return self._state.participant

    @property
    def token(self) -> str:
        """Proves that one is this person. Keep it secret: join(…, token=…, after=message.seq) goes on as the same person, in another
        program, too, while the person is away for less than two minutes."""
        return self._state.token

    @property
    def ended(self) -> str | None:
        """Why the person is not in the room any more; None: the person is in the room."""
        return self._state.ended

    def _has_news(self) -> bool:
        return bool(self._state.queue) or self._state.ended is not None

    def _may_be_due(self) -> bool:
        return self._has_news() or self._state.is_behind
