"""A TCP proxy that misbehaves on demand, between a client and its server."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Passes everything on to a port, but for what it is told to lose."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._lock = threading.Lock()
        self._drops: dict[bytes, int] = {}
        self._every = 0
        self._answers = 0
        self._is_cut = False
        self._connections: set[socket.socket] = set()
        self.dropped = 0
        """How many answers were lost."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def drop_answers_to(self, path: str, times: int = 1) -> None:
        """Loses the next answers to calls whose request line contains ``path``: they are done, and nobody knows."""
        with self._lock:
            self._drops[path.encode()] = times

    def drop_every(self, nth: int) -> None:
        """Loses every nth answer, whatever it is to; 0 for none."""
        with self._lock:
            self._every = nth

    def cut(self) -> None:
        """Hangs up on everybody, and on all that come."""
        with self._lock:
            self._is_cut = True
            for connection in self._connections:
                _close(connection)

    def heal(self) -> None:
        """Passes on again."""
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                _close(client)
                continue
            with self._lock:
                if self._is_cut:
                    _close(client)
                    _close(server)
                    continue
                self._connections |= {client, server}
            # One request at a time is on a connection: what was asked last is what is answered.
            asked = [b""]
            threading.Thread(target=self._carry, args=(client, server, asked, True), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, asked, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, asked: list[bytes], is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_request:
                    if data.startswith((b"GET ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ")):
                        asked[0] = data.split(b"\r\n", 1)[0]
                elif self._loses(asked[0]):
                    break
                target.sendall(data)
        with self._lock:
            self._connections -= {source, target}
        _close(source)
        _close(target)

    def _loses(self, request_line: bytes) -> bool:
        with self._lock:
            self._answers += 1
            path = next((path for path, times in self._drops.items() if times and path in request_line), None)
            if path is not None:
                self._drops[path] -= 1
            elif not self._every or self._answers % self._every:
                return False
            self.dropped += 1
            return True


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
