"""Connections that a test cuts. Any python3; no packages."""
import socket
import threading


class Cable:
    """A relay to a daemon, whose connections a test cuts. While it is deaf, what the daemon answers is lost."""

    def __init__(self, address):
        self.there, self.is_deaf, self.is_held, self.left, self.pairs = address.rsplit(":", 1), False, False, None, []
        self.lock, self.flow = threading.Lock(), threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here, _ = self.listener.accept()
            if self.is_held:
                here.close()
                continue
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
                if is_answer:
                    self.pass_on(data, to)
                else:
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

    def pass_on(self, data, to):
        while data and not self.is_deaf:
            with self.flow:
                self.flow.wait_for(lambda: self.left is None or self.left > 0)
                n = len(data) if self.left is None else min(self.left, len(data))
                self.left = None if self.left is None else self.left - n
            to.sendall(data[:n])
            data = data[n:]

    def allow(self, n_bytes):
        """From now on only so many more bytes of answers come through, and then those that are allowed next."""
        with self.flow:
            self.left = n_bytes
            self.flow.notify_all()

    def hold(self):
        """Cuts all connections, and each new one until let_go."""
        self.is_held = True
        self.cut()
        with self.flow:
            self.left = None
            self.flow.notify_all()

    def let_go(self):
        self.is_held = False

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            self.end(*pair)
