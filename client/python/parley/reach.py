"""Addresses of daemons, and the causes for which a daemon is not reached, each in one sentence: those that libparley says
(client/lib/reach.c), which a test compares with these."""
from __future__ import annotations

import binascii
import re

PORT = 8001  # of gRPC at parleyd
SCHEMES = "unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"  # paths and lists of addresses, which gRPC reads by itself
FORMS = "give HOST:PORT, [IPV6]:PORT or unix:/PATH"
MAX_BYTES = 246

# A cause: its reason, its sentence, and whether it stays until the caller changes something.
Cause = tuple[str, str, bool]
NOTHING_LISTENS: Cause = "NOTHING_LISTENS", "nothing listens at {}: is parleyd running there?", False
HOST_UNKNOWN: Cause = "HOST_UNKNOWN", "the host of {} is not known: check its name", False
UNREACHABLE: Cause = "UNREACHABLE", "no way leads to {}: check the address and the network", False
NOTHING_BEHIND: Cause = "NOTHING_BEHIND", "the proxy at {} has no server behind it: is parleyd running there?", False
NOT_GRPC: Cause = ("NOT_GRPC", "a web server answers at {}, it is not the port of gRPC: parleyd prints that port when it starts, it is 8001 by default",
                   True)
TLS_WANTED: Cause = ("TLS_WANTED", "the server at {} closes the connection: it probably wants TLS; connect with TLS and the file of the authority "
                     "that signed its certificate", False)  # a server that stops may do the same
TLS_NOT_WANTED: Cause = "TLS_NOT_WANTED", "the server at {} does not use TLS: connect without TLS", True
AUTHORITIES_MISSING: Cause = ("AUTHORITIES_MISSING", "the certificate of {} cannot be checked, this system has no certificates of authorities: name the "
                              "authority's file", True)  # grpcio brings its own: with it this happens where an environment variable names none
AUTHORITY_UNKNOWN: Cause = ("AUTHORITY_UNKNOWN", "the certificate of {} is signed by an authority that is not known here: name the authority's file",
                            True)
NAME_DIFFERS: Cause = "NAME_DIFFERS", "the certificate of {} is for another name: connect by the name that the certificate has", True
CERTIFICATE_WANTED: Cause = ("CERTIFICATE_WANTED", "the server at {} ends the TLS handshake: it probably wants a client's certificate; name its file "
                             "and its key's", False)  # a server that stops may do the same
SILENT: Cause = "SILENT", "nobody answers at {}: check the address, and whether parleyd there is stopped or overloaded", False
LOST: Cause = "CONNECTION_LOST", "the connection to {} is lost: is parleyd still running?", False

# What gRPC's text contains; the cause; the cause on a channel with TLS. The first row that matches counts.
TEXTS = (
    ("http2 header with status: 50", NOTHING_BEHIND, NOTHING_BEHIND),  # 502, 503, 504
    ("http2 header with status", NOT_GRPC, NOT_GRPC),
    ("Trying to connect an http1.x server", NOT_GRPC, NOT_GRPC),
    ("CERTIFICATE_VERIFY_FAILED", AUTHORITY_UNKNOWN, AUTHORITY_UNKNOWN),
    ("is not in peer certificate", NAME_DIFFERS, NAME_DIFFERS),
    ("Hostname Verification Check failed", NAME_DIFFERS, NAME_DIFFERS),
    ("Failed to create secure client channel", AUTHORITIES_MISSING, AUTHORITIES_MISSING),
    ("WRONG_VERSION_NUMBER", TLS_NOT_WANTED, TLS_NOT_WANTED),
    ("CERTIFICATE_REQUIRED", CERTIFICATE_WANTED, CERTIFICATE_WANTED),
    ("Connection refused", NOTHING_LISTENS, NOTHING_LISTENS),
    ("No such file or directory", NOTHING_LISTENS, NOTHING_LISTENS),
    ("DNS", HOST_UNKNOWN, HOST_UNKNOWN),
    ("lookup failed", HOST_UNKNOWN, HOST_UNKNOWN),
    ("unreachable", UNREACHABLE, UNREACHABLE),
    ("No route to host", UNREACHABLE, UNREACHABLE),
    ("imed out", SILENT, SILENT),
    ("Timeout occurred", SILENT, SILENT),
    ("Connection reset by peer", TLS_WANTED, CERTIFICATE_WANTED),
    ("Socket closed", TLS_WANTED, CERTIFICATE_WANTED),
    ("ndpoint read failed", TLS_WANTED, CERTIFICATE_WANTED),
    ("Unwrap failed", CERTIFICATE_WANTED, CERTIFICATE_WANTED),
)
LOSSES = ("Socket closed", "Connection reset by peer", "Broken pipe", "ndpoint read failed", "GOAWAY", "Cancelling all calls", "imed out", "keepalive",
          "RST_STREAM", "Unwrap failed")  # what gRPC says where a connection was there and was lost
WORDS_BYTES = 160  # shown of what gRPC says, where the cause is not known
FINAL = frozenset(cause[0] for row in TEXTS for cause in row[1:] if cause[2])


def _split(address: str) -> tuple[str, str | None] | None:
    """Returns the host, with brackets if it is IPv6, and the port, None if there is none."""
    ipv6 = "[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]*)?"
    if address.count(":") > 1 and not address.startswith("["):
        return (f"[{address}]", None) if re.fullmatch(ipv6, address) else None
    found = re.fullmatch(rf"(\[{ipv6}\]|[0-9A-Za-z._-]+)(?::(.*))?", address)
    return None if found is None else (found[1], found[2])


def _is_certificate(base64: bytes) -> bool:
    """Returns whether these can be a certificate's bytes: a sequence, as long as it says, that begins with another one."""
    try:
        der = binascii.a2b_base64(base64)
    except binascii.Error:
        return False
    if len(der) < 2 or der[0] != 0x30:
        return False
    at = 2 + max(0, der[1] - 0x80)
    told = der[1] if at == 2 else int.from_bytes(der[2:at], "big")
    return at + told <= len(der) and der[at:at + 1] == b"\x30"


def pem_fault(text: bytes) -> str:
    """Returns what is wrong with a text that should have certificates in PEM, or ""."""
    found = re.search(rb"-----BEGIN [^-]*CERTIFICATE-----([A-Za-z0-9+/= \t\r\n]*)(-----END )?", text)
    if found is None:
        return "has no certificate in PEM: no line '-----BEGIN CERTIFICATE-----'"
    return "" if found[2] and _is_certificate(found[1]) else "has a certificate in PEM that is cut off or damaged"


def fault_of(address: str) -> str:
    """Returns what is wrong with an address, or ""."""
    if len(address.encode()) > MAX_BYTES:
        return "it is too long"
    if address in SCHEMES:
        return FORMS
    if address.startswith(SCHEMES):
        return ""
    if "://" in address:
        return "it is a URL; give HOST:PORT, with the port of gRPC"
    parts = _split(address)
    if parts is None:
        return FORMS
    if parts[1] is not None and not (re.fullmatch("[0-9]{1,19}", parts[1]) and 0 < int(parts[1]) < 65536):
        return "its port must be a number from 1 to 65535"
    return ""


def address_of(address: str) -> str:
    """Returns a well-formed address as gRPC takes it: with a port, and with brackets around IPv6."""
    parts = None if address.startswith(SCHEMES) else _split(address)
    return address if parts is None else f"{parts[0]}:{PORT if parts[1] is None else int(parts[1])}"


def cause_of(text: str, is_tls: bool) -> Cause:
    """Returns the cause that gRPC's text names. A connection that was there and was lost is LOST: nothing is wrong with how the caller
    connects."""
    if not any(word in text for word in ("connect", "DNS", "resolving", "http2 header", "client channel")):
        return LOST
    return next((with_tls if is_tls else without for part, without, with_tls in TEXTS if part in text), LOST)


def sentence_of(cause: Cause, text: str, address: str) -> str:
    """Returns the cause's sentence. Words that are not known, as a proxy's, stand behind it, in one line."""
    sentence = cause[1].format(address)
    if cause is not LOST or not text or any(part in text for part in LOSSES):
        return sentence
    words = re.sub(r"[\x00-\x1f\x7f]", " ", text.encode()[:WORDS_BYTES].decode(errors="ignore"))
    return f"{sentence} (gRPC: {words})"
