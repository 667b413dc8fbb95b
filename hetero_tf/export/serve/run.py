"""Starts the server and runs it until a signal."""

import contextlib
import errno
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError, require_modules

NEEDS, EXTRA = ("prometheus_client", "starlette", "uvicorn"), "serve"
# Switch interval of Python's threads in seconds, by which a computation delays other requests.
SWITCH_SECONDS = 0.001
LOOPBACK, ALL_ADDRESSES = ("localhost", "127.0.0.1", "[::1]"), ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class ServerOptions:
    """Options of the server.

    Attributes:
        port: Port; 0 selects a free one.
        concurrency: Requests that are computed at the same time; others wait.
        versions: Version policy, see `VersionPolicy.parse`.
        allow_hosts: Additional hosts that clients may address.
        batch: Most examples of requests that share a call of the model.
    """

    host: str
    port: int
    concurrency: int
    versions: str = "latest:2"
    allow_hosts: tuple[str, ...] = ()
    batch: int = 256

    def trusted_hosts(self) -> list[str]:
        """Return the hosts that requests may name."""
        names = {*LOOPBACK, self.url_host, *self.allow_hosts}
        if self.host in ALL_ADDRESSES:
            with contextlib.suppress(OSError):
                # Probes of Kubernetes name the address of the pod.
                names |= {socket.gethostname(), *socket.gethostbyname_ex(socket.gethostname())[2]}
        return sorted(names)

    @property
    def url_host(self) -> str:
        """The address to listen on, as a part of a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


def run(folder: Path, options: ServerOptions, say: Callable[[str], None], export: str) -> None:
    """Serve the exports of a folder until a signal ends the program.

    Args:
        folder: FOLDER of FOLDER/<level>/<version>/.
        export: The command that makes exports, for the error message if there are none.
    """
    require_modules("serve", NEEDS, EXTRA)
    import uvicorn

    from hetero_tf.export.serve.app import MAX_SECONDS, App
    from hetero_tf.export.serve.loading import Serving, VersionPolicy

    serving = Serving(folder, VersionPolicy.parse(options.versions))
    app = App(serving, options.concurrency, options.trusted_hosts(), say, options.batch)
    for sentence in serving.refresh():
        say(sentence)
    if not serving.levels:
        selection = "" if serving.policy.numbers is None else f" of --versions={options.versions}"
        raise InputError(f"{folder}: contains no exports{selection} to serve; create some with: {export}")
    with _listen(options.host, options.port) as listener:
        address = f"http://{options.url_host}:{listener.getsockname()[1]}/"
        say(f"Serving at {address} (same REST API as TensorFlow Serving). Press Ctrl-C to stop.")
        sys.setswitchinterval(SWITCH_SECONDS)
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            # uvicorn's configuration of logging closes the handlers that the program has, and their streams.
            log_config=None,
            log_level="error",
            access_log=False,
            # Headers of proxies are not trusted, since any client can send them.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=512,
            timeout_keep_alive=20,
            timeout_graceful_shutdown=int(MAX_SECONDS),
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host, port):
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise InputError(f"--host {host} --port {port}: {reason}; choose another address") from error
    # Without it, each response waits 40 ms for an acknowledgement; accepted connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
