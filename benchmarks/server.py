"""What benchmarks of the service share."""

import http.client
import socket
import time

__all__ = ["free_port", "wait_until_ready"]


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_until_ready(port: int) -> http.client.HTTPConnection:
    """A connection to a server whose models are loaded; raises `TimeoutError` after half a minute."""
    for _ in range(300):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                return connection
        except ConnectionError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the server did not become ready")
