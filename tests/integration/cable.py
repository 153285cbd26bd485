"""Connections that a test cuts. Any python3; no packages."""
import socket
import threading


class Cable:
    """A relay to a daemon, whose connections a test cuts. While it is deaf, what the daemon answers is lost."""

    def __init__(self, address):
        self.there, self.is_deaf, self.pairs = address.rsplit(":", 1), False, []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here, _ = self.listener.accept()
            try:
                there = socket.create_connection((self.there[0], int(self.there[1])))
            except OSError:  # the daemon has ended
                here.close()
                continue
            with self.lock:
                self.pairs.append((here, there))
            threading.Thread(target=self.carry, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self.carry, args=(there, here, True), daemon=True).start()

    def carry(self, of, to, is_answer):
        try:
            while data := of.recv(65536):
                if not (is_answer and self.is_deaf):
                    to.sendall(data)
        except OSError:
            pass  # it was cut
        self.end(of, to)

    def end(self, *pair):
        for one in pair:
            try:
                one.shutdown(socket.SHUT_RDWR)  # and the other thread's recv ends
            except OSError:
                pass  # it has ended before

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            self.end(*pair)
