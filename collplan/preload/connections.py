"""Connections of the helper process of a node with the ranks of the node.

Ranks wait for an answer only as long as the helper gives signs of life, which a thread sends while
the main thread imports modules or makes a plan, and gets on. The helper ends when the last rank has
disconnected. This module imports only the standard library, so that the signs begin at once.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

SIGN_S: Final = 0.25
"""Time between two signs of life, in seconds. Ranks do without the helper after 2 s without one."""
WORKING: Final = 2
"""Status of a sign of life, in place of that of an answer."""
_PROGRESS_S: Final = 1e-3
"""Processor time that this process uses between two signs if the main thread gets on."""
_HEAD: Final = struct.Struct("<qq")
_PATIENCE_S: Final = 120.0
"""Time limit for the first rank to connect, in seconds."""

Answer = Callable[[int, bytes], tuple[int, bytes]]


class Connections:
    """Connected ranks; this process ends when the last of them disconnects.

    Parameters
    ----------
    listener : socket
        Listening socket, to which ranks connect.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.sockets: dict[socket.socket, int] = {}
        """Process descriptor of the rank by socket; -1 if there is no descriptor."""
        self._listener = listener
        self._has_begun = False
        # They wake the thread that watches the ranks, and the main thread.
        self._changed, self._arrived = os.eventfd(0), os.eventfd(0)
        self._working = threading.Condition()
        self._is_working = True
        """True while the main thread is at work, at first on its imports."""
        self._asking: socket.socket | None = None
        """Socket of the rank whose request is answered."""

    def start(self, parent: int) -> None:
        """Start the threads that accept and watch ranks, and send signs of life.

        Parameters
        ----------
        parent : int
            Id of the process that started the helper.
        """
        for target, arguments in ((self.watch, (parent,)), (self.send_signs, ())):
            threading.Thread(target=target, args=arguments, daemon=True).start()

    def serve(self, answer: Answer) -> NoReturn:
        """Answer requests of ranks.

        Parameters
        ----------
        answer : callable
            Function from the number of a request and its content to a status and an answer.
        """
        self._set_working(None)
        while True:
            awaited: list[Any] = [self._arrived, *self.sockets]
            ready, _, _ = select.select(awaited, [], [])
            if self._arrived in ready:
                os.eventfd_read(self._arrived)
            for one in (one for one in ready if isinstance(one, socket.socket)):
                try:
                    request, n_bytes = _HEAD.unpack(_receive(one, _HEAD.size))
                    message = _receive(one, n_bytes)
                    self._set_working(one)
                    status, text = answer(request, message)
                    self._set_working(None)
                    one.sendall(_HEAD.pack(status, len(text)) + text)
                except OSError:
                    self.drop(one)

    def _set_working(self, asking: socket.socket | None) -> None:
        with self._working:
            self._asking, self._is_working = asking, asking is not None
            self._working.notify()

    def send_signs(self) -> NoReturn:
        """Tell ranks that wait that the main thread is at work, as long as it gets on."""
        while True:
            with self._working:
                while not self._is_working:
                    self._working.wait()
                before_s = time.process_time()
                self._working.wait(SIGN_S)
                if self._is_working and time.process_time() - before_s >= _PROGRESS_S:
                    for one in self._waiting():
                        with suppress(OSError):
                            one.send(_HEAD.pack(WORKING, 0), socket.MSG_DONTWAIT)

    def _waiting(self) -> list[socket.socket]:
        """Return the sockets of the ranks that wait for an answer."""
        poll, sockets = select.poll(), {one.fileno(): one for one in [*self.sockets]}
        for number in sockets:
            if number >= 0:
                poll.register(number, select.POLLIN)
        asking = [] if self._asking is None else [self._asking]
        return [*asking, *(sockets[number] for number, _ in poll.poll(0))]

    def _accept(self) -> None:
        """Accept the next connection, if it comes from a process of the same user."""
        one, _ = self._listener.accept()
        where = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, user, _ = struct.unpack("3i", where)
        if user != os.geteuid():
            one.close()
            return
        self.sockets[one] = _descriptor_of(pid)
        self._has_begun = True
        os.eventfd_write(self._arrived, 1)

    def drop(self, one: socket.socket) -> None:
        """Remove a rank that has ended; end this process if it was the last one."""
        descriptor = self.sockets.pop(one)
        os.eventfd_write(self._changed, 1)
        one.close()
        if descriptor >= 0:
            os.close(descriptor)
        if not self.sockets:
            os._exit(0)

    def watch(self, parent: int) -> None:
        """Accept ranks, and end this process when all of them have ended.

        It ends also while the main thread is at work. If no rank has connected yet, it ends when
        `parent` has ended, or after `_PATIENCE_S` seconds. The thread sleeps until a process ends
        or connects.

        Parameters
        ----------
        parent : int
            Id of the process that started the helper.
        """
        starter, begin = _descriptor_of(parent), time.monotonic()
        ended: set[socket.socket] = set()
        while True:
            with suppress(OSError, ValueError):  # the main thread may have closed descriptors
                ranks = {
                    one.fileno() if descriptor < 0 else descriptor: one
                    for one, descriptor in list(self.sockets.items())
                }
                left_s = begin + _PATIENCE_S - time.monotonic()
                is_late = not self._has_begun and left_s <= 0
                if is_late or (ranks and ended.issuperset(ranks.values())):
                    os._exit(0)
                poll = select.poll()
                poll.register(self._changed, select.POLLIN)
                poll.register(self._listener.fileno(), select.POLLIN)
                if not self._has_begun and starter >= 0:
                    poll.register(starter, select.POLLIN)
                for number, one in ranks.items():
                    if one not in ended:
                        # A process that the rank has forked may keep the socket open after its end.
                        has_descriptor = self.sockets.get(one, -1) >= 0
                        poll.register(number, select.POLLIN if has_descriptor else select.POLLHUP)
                found = poll.poll(None if self._has_begun else 1000 * left_s)
                ready = {number for number, _ in found}
                if self._listener.fileno() in ready:
                    self._accept()
                    continue
                if starter in ready and not self._has_begun:
                    os._exit(0)
                if self._changed in ready:
                    os.eventfd_read(self._changed)
                ended.update(one for number, one in ranks.items() if number in ready)


def _descriptor_of(pid: int) -> int:
    """Return a descriptor that is ready when a process ends; -1 if there is none."""
    with suppress(OSError):
        return os.pidfd_open(pid)
    return -1


def _receive(one: socket.socket, n_bytes: int) -> bytes:
    """Return the next `n_bytes` bytes of a socket; raise `OSError` if the rank has ended."""
    parts: list[bytes] = []
    while n_bytes > 0:
        part = one.recv(min(n_bytes, 1 << 20))
        if not part:
            raise ConnectionError("the rank has ended")
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)
