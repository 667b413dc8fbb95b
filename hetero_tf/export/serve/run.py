"""Starts the server and runs it until a signal."""

import errno
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hetero_tf.base.errors import InputError, require_modules

NEEDS, EXTRA = ("starlette", "uvicorn"), "serve"
# Switch interval of Python's threads in seconds, by which parsing a request delays other requests.
SWITCH_SECONDS = 0.001
# uvicorn counts requests and connections together; connections have a separate limit.
SPARE_REQUESTS = 64


@dataclass(frozen=True)
class ServerOptions:
    """Options of the server.

    Attributes:
        host: Address to listen on.
        port: Port; 0 selects a free one.
        concurrency: Requests that are computed at the same time.
        versions: Version policy, see `VersionPolicy.parse`.
        allow_hosts: Additional hosts that clients may address, `host` or `host:port`.
    """

    host: str
    port: int
    concurrency: int
    versions: str = "latest:2"
    allow_hosts: tuple[str, ...] = ()


def run(folder: Path, options: ServerOptions, say: Callable[[str], None], export: str) -> None:
    """Serve the exports of a folder until a signal ends the program.

    Args:
        folder: FOLDER of FOLDER/<level>/<version>/.
        options: Options of the server.
        say: Receives messages for the user.
        export: The command that makes exports, for the error message if there are none.

    Raises:
        InputError: A required package is not installed, the folder has no exports, an option is malformed, or the
            address cannot be used.
    """
    require_modules("serve", NEEDS, EXTRA)
    import uvicorn

    from hetero_tf.export.serve.app import App, Limits
    from hetero_tf.export.serve.connections import ACCEPTED_AT_ONCE, ConnectionLimits, LimitedConnection, LimitedServer
    from hetero_tf.export.serve.hosts import HostPolicy, parse_allowed_hosts
    from hetero_tf.export.serve.serving import Serving, VersionPolicy

    hosts = HostPolicy(options.host, parse_allowed_hosts(list(options.allow_hosts)))
    serving = Serving(folder, VersionPolicy.parse(options.versions))
    for sentence in serving.refresh():
        say(sentence)
    if not serving.levels:
        selection = "" if serving.policy.numbers is None else f" of --versions={options.versions}"
        raise InputError(f"{folder}: contains no exports{selection} to serve; create some with: {export}")
    listener = _listening(options.host, options.port)
    port = listener.getsockname()[1]
    name = f"[{options.host}]" if ":" in options.host else options.host
    say(f"Serving at http://{name}:{port}/ (same REST API as TensorFlow Serving). Press Ctrl-C to stop.")
    sys.setswitchinterval(SWITCH_SECONDS)
    limits = ConnectionLimits().within_file_limit()
    config = uvicorn.Config(
        App(serving, Limits(concurrency=options.concurrency), hosts, say),
        http=partial(LimitedConnection, limits=limits),  # type: ignore[arg-type]
        loop="asyncio",
        ws="none",
        # uvicorn's configuration of logging closes the handlers that the program has, and their streams.
        log_config=None,
        log_level="error",
        access_log=False,
        # Headers of proxies are not trusted, since any client can send them.
        proxy_headers=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        limit_concurrency=limits.count + SPARE_REQUESTS,
        timeout_keep_alive=int(limits.head_seconds),
    )
    LimitedServer(config).run(sockets=[listener])


def _listening(host, port):
    """Return a listening socket.

    Raises:
        InputError: The address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol, asyncio does not set TCP_NODELAY, and each response waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as problem:
        listener.close()
        if problem.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use on {host}; choose another with --port") from problem
        raise InputError(
            f"cannot listen on --host {host} --port {port}: {problem.strerror or problem}; choose another address"
        ) from problem
    return listener
