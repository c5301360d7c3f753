"""A proxy that counts the requests and the bytes of the tools behind it.

The proxy sets the client of each request (`X-Forwarded-For`), which the server trusts. So each analysis can be a
separate client without earlier downloads.
"""

import http.client
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 1 << 20
TIMEOUT_S = 10
HOP_BY_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "host", "x-forwarded-for"}


@dataclass
class Request:
    """A request and its response, which ends when the last byte is sent."""

    method: str
    range: str
    status: int = 0
    size: int = 0
    over: bool = False


@dataclass
class Counts:
    """The requests of one client."""

    requests: list[Request] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Returns the number of bytes in all bodies."""
        return sum(request.size for request in self.requests)


class Proxy:
    """A proxy for a server on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._lock = threading.Lock()
        self._client = 0
        self._counts = Counts()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Parts of responses must not wait for each other.
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                self._server = http.client.HTTPConnection("127.0.0.1", port)

            def finish(self) -> None:
                self._server.close()
                super().finish()

            def do_GET(self) -> None:
                proxy._forward(self, self._server)

            do_HEAD = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._listener.daemon_threads = True
        self.port = self._listener.server_address[1]
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()

    def begin(self) -> None:
        """Starts counting for a new client."""
        with self._lock:
            self._client += 1
            self._counts = Counts()

    def counts(self) -> Counts:
        """Waits until all requests have ended, and returns the counts since `begin`."""
        deadline = time.monotonic() + TIMEOUT_S
        while not all(request.over for request in list(self._counts.requests)) and time.monotonic() < deadline:
            time.sleep(0.005)
        with self._lock:
            return Counts(list(self._counts.requests))

    def stop(self) -> None:
        """Stops accepting connections."""
        self._listener.shutdown()

    def _forward(self, client: BaseHTTPRequestHandler, server: http.client.HTTPConnection) -> None:
        request = Request(client.command, client.headers.get("range", ""))
        with self._lock:
            self._counts.requests.append(request)
            number = self._client
        try:
            self._relay(client, server, number, request)
        finally:
            request.over = True

    def _relay(
        self, client: BaseHTTPRequestHandler, server: http.client.HTTPConnection, number: int, request: Request
    ) -> None:
        headers = {name: value for name, value in client.headers.items() if name.lower() not in HOP_BY_HOP_HEADERS}
        headers["X-Forwarded-For"] = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        try:
            server.request(client.command, client.path, headers=headers)
            answer = server.getresponse()
        except ConnectionError:
            # The server has closed this connection, because the tool left it idle for too long.
            server.close()
            server.request(client.command, client.path, headers=headers)
            answer = server.getresponse()
        request.status = answer.status
        client.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP_HEADERS:
                client.send_header(name, value)
        has_body = client.command != "HEAD" and answer.status not in (204, 304)
        chunked = has_body and answer.getheader("content-length") is None
        if chunked:
            client.send_header("Transfer-Encoding", "chunked")
        client.end_headers()
        try:
            while block := answer.read1(BLOCK):
                request.size += len(block)
                client.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
            if chunked:
                client.wfile.write(b"0\r\n\r\n")
            # The body has been read to its end, which the library does not notice.
            answer.close()
        except (BrokenPipeError, ConnectionResetError):
            # The tool has stopped reading.
            client.close_connection = True
            server.close()
