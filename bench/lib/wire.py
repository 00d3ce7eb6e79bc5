"""The least of a PostgreSQL client: simple queries and prepared statements over one socket.

Enough for `SHOW …`, for the probe of visibility, for sampled reads and for idle clients; everything
that is timed against PgBouncer runs pgbench.
"""

import socket
import ssl
import struct

PROTOCOL = 196608  # 3.0
SSL_REQUEST = 80877103
SECONDS_MAX = 60  # for any answer


class ServerError(Exception):
    """The server's own words."""


class Connection:
    """One connection as user postgres, without password; over TLS if there is a context for that."""

    def __init__(self, port, database="postgres", tls=None):
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket.sendall(struct.pack("!II", 8, SSL_REQUEST))
            if self.socket.recv(1) != b"S":
                raise ServerError("the server has no TLS")
            self.socket = tls.wrap_socket(self.socket)
        self.buffer = b""
        body = struct.pack("!I", PROTOCOL) + b"user\0postgres\0database\0"
        body += database.encode() + b"\0\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self._answer()

    def query(self, text):
        """The rows of one query, as tuples of strings and None."""
        self.socket.sendall(_framed(b"Q", text.encode() + b"\0"))
        return self._answer()

    def prepare(self, name, text):
        """A statement with parameters $1 and on, of types that the server infers."""
        body = name.encode() + b"\0" + text.encode() + b"\0\0\0"
        self.socket.sendall(_framed(b"P", body) + _framed(b"S", b""))
        self._answer()

    def run(self, name, values):
        """The rows of a prepared statement; values go as text."""
        bind = b"\0" + name.encode() + b"\0\0\0" + struct.pack("!H", len(values))
        for value in map(str, values):
            bind += struct.pack("!I", len(value)) + value.encode()
        messages = _framed(b"B", bind + b"\0\0") + _framed(b"D", b"P\0")
        self.socket.sendall(messages + _framed(b"E", b"\0" * 5) + _framed(b"S", b""))
        return self._answer()

    def close(self):
        self.socket.close()

    def _answer(self):
        rows, error = [], None
        while True:
            tag, body = self._message()
            if tag == b"D":
                rows.append(_values(body))
            elif tag == b"E":
                error = _words(body)
            elif tag == b"Z":
                if error:
                    raise ServerError(error)
                return rows

    def _message(self):
        while True:
            if len(self.buffer) >= 5:
                end = 1 + struct.unpack_from("!I", self.buffer, 1)[0]
                if len(self.buffer) >= end:
                    message, self.buffer = self.buffer[:end], self.buffer[end:]
                    return message[:1], message[5:]
            received = self.socket.recv(65536)
            if not received:
                raise ServerError("the server closed the connection")
            self.buffer += received


def any_certificate():
    """A context for TLS that checks no certificate, as `sslmode=require`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _framed(tag, body):
    return tag + struct.pack("!I", len(body) + 4) + body


def _values(body):
    values, at = [], 2
    for _ in range(struct.unpack_from("!H", body)[0]):
        length = struct.unpack_from("!i", body, at)[0]
        at += 4
        values.append(None if length < 0 else body[at : at + length].decode())
        at += max(length, 0)
    return tuple(values)


def _words(body):
    fields = {field[:1]: field[1:].decode() for field in body.split(b"\0") if field}
    return f"{fields.get(b'C')}: {fields.get(b'M')}"
