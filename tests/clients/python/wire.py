"""The few requests that the golden tests send by hand, so that the bytes on the wire are the bytes of the files.

Versions before the flexible ones, which every 4.x broker still takes: CreateTopics 4, Produce 8, Fetch 11, ListOffsets 5.
"""

import socket
import struct

EARLIEST, LATEST = -2, -1


def text(s):
    b = s.encode()
    return struct.pack(">h", len(b)) + b


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return values[0] if len(values) == 1 else values

    def text(self):
        n = self.take("h")
        return None if n < 0 else self.raw(n).decode()

    def bytes(self):
        n = self.take("i")
        return b"" if n < 0 else self.raw(n)

    def raw(self, n):
        self.at += n
        return self.data[self.at - n : self.at]


class Connection:
    def __init__(self, bootstrap):
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.correlation = 0

    def close(self):
        self.socket.close()

    def ask(self, key, version, body):
        self.correlation += 1
        frame = struct.pack(">hhi", key, version, self.correlation) + text("golden") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        answer = Cursor(self._read(size))
        got = answer.take("i")
        assert got == self.correlation, f"answer {got} to request {self.correlation}"
        return answer

    def _read(self, n):
        out = bytearray()
        while len(out) < n:
            some = self.socket.recv(n - len(out))
            if not some:
                raise AssertionError("the broker closed the connection")
            out += some
        return bytes(out)

    def create_topic(self, name, configs):
        body = struct.pack(">i", 1) + text(name) + struct.pack(">ihi", 1, 1, 0) + struct.pack(">i", len(configs))
        for k, v in configs.items():
            body += text(k) + text(v)
        answer = self.ask(19, 4, body + struct.pack(">ib", 15_000, 0))
        answer.take("ii")
        answer.text()
        error, message = answer.take("h"), answer.text()
        assert error == 0, f"creating {name}: error {error}, {message}"

    def produce(self, topic, batch):
        """Error code and base offset."""
        body = struct.pack(">hhi", -1, -1, 15_000) + struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
        answer = self.ask(0, 8, body)
        answer.take("i")
        answer.text()
        _, _, error, base_offset = answer.take("iihq")
        return error, base_offset

    def fetch(self, topic, partition, offset, max_bytes=1 << 20):
        """Error code, high watermark, log start offset and the raw batches."""
        body = struct.pack(">iiiibii", -1, 500, 1, max_bytes, 0, 0, -1) + struct.pack(">i", 1) + text(topic)
        body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes) + struct.pack(">i", 0) + text("")
        answer = self.ask(1, 11, body)
        _throttle, error, _session, topics = answer.take("ihii")
        assert error == 0 and topics == 1, f"fetch of {topic}: error {error}, {topics} topics"
        answer.text()
        _, _, error, high_watermark, _stable, log_start = answer.take("iihqqq")
        for _ in range(max(answer.take("i"), 0)):
            answer.take("qq")
        answer.take("i")
        return error, high_watermark, log_start, answer.bytes()

    def list_offset(self, topic, partition, time_ms):
        body = struct.pack(">ib", -1, 0) + struct.pack(">i", 1) + text(topic) + struct.pack(">iiiq", 1, partition, -1, time_ms)
        answer = self.ask(2, 5, body)
        answer.take("ii")
        answer.text()
        _, _, error, timestamp, offset = answer.take("iihqq")
        return error, timestamp, offset


def batches(data):
    """Splits a log into (base offset, last offset, batch); what is cut off at the end is left out, as consumers do."""
    at = 0
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        (last_delta,) = struct.unpack_from(">i", data, at + 23)
        yield base, base + last_delta, data[at : at + 12 + length]
        at += 12 + length
