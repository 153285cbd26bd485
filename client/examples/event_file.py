"""Writes the event files that TensorBoard reads, scalars only: records of TFRecord (length, masked CRC-32C, data, masked CRC-32C), each of
which is a tensorflow.Event. The few fields are written by hand: TensorBoard's own writer brings a web server along."""
import os
import socket
import struct
import time

from parley.crc32c import crc32c
from parley.transfer import varint

WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = b"\x09", b"\x10", b"\x1a", b"\x2a", b"\x3a"  # the tags of tensorflow.Event's fields
START = b"\x08\x01"  # a SessionLog
VALUE, TAG, SIMPLE_VALUE = b"\x0a", b"\x0a", b"\x15"  # of Summary, and of Summary.Value


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def sized(tag, data):
    return tag + varint(len(data)) + data


class EventFile:
    """A file of events in a folder, which is made. Each write is one record, flushed; a killed program leaves whole ones, or a last one that
    readers skip. If other files are there, a program that was killed goes on: what they have from its first step on, readers forget."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.file = open(os.path.join(folder, f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"), "xb")
        self.record(sized(FILE_VERSION, b"brain.Event:2"))
        self.has_begun = False

    def record(self, event):
        event = WALL_TIME + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(event))
        self.file.write(length + masked(length) + event + masked(event))
        self.file.flush()

    def add(self, step, **scalars):
        """Writes the values of some scalars at a step."""
        values = b"".join(sized(VALUE, sized(TAG, name.encode()) + SIMPLE_VALUE + struct.pack("<f", value)) for name, value in scalars.items())
        if not self.has_begun:
            self.record(STEP + varint(step) + sized(SESSION_LOG, START))
            self.has_begun = True
        self.record(STEP + varint(step) + sized(SUMMARY, values))

    def close(self):
        self.file.close()
