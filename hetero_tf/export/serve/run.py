"""Starts the server and keeps it running."""

import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hetero_tf.base.errors import InputError, require

NEEDS, EXTRA = ("starlette", "uvicorn"), "serve"
# Seconds between two turns of Python's threads: a request that is parsed delays other ones by so much.
SWITCH_SECONDS = 0.001
# uvicorn counts requests and connections together; connections have a limit of their own.
SPARE_REQUESTS = 64


@dataclass(frozen=True)
class ServerOptions:
    """How exports are served.

    Attributes:
        host: Address to listen at.
        port: Port; 0 takes a free one.
        at_once: Requests that are computed at the same time.
        versions: Policy of versions, as `VersionPolicy.parse` takes it.
        allow_hosts: Further hosts that clients may address, `host` or `host:port`.
    """

    host: str
    port: int
    at_once: int
    versions: str = "latest:2"
    allow_hosts: tuple[str, ...] = ()


def run(folder: Path, options: ServerOptions, say: Callable[[str], None], export: str) -> None:
    """Serves the exports below a folder until a signal ends the program.

    Args:
        folder: FOLDER of FOLDER/<level>/<version>/.
        options: How they are served.
        say: Gets sentences for the user.
        export: The command that makes exports, for the message where there are none.

    Raises:
        InputError: A needed package is not installed, there is nothing to serve, an option is malformed, or the address
            cannot be used.
    """
    require("serve", NEEDS, EXTRA)
    import uvicorn

    from hetero_tf.export.serve.app import Limits, build_app
    from hetero_tf.export.serve.connections import ACCEPTED_AT_ONCE, ConnectionLimits, LimitedConnection, LimitedServer
    from hetero_tf.export.serve.hosts import HostPolicy, parse_allowed_hosts
    from hetero_tf.export.serve.serving import Serving, VersionPolicy

    hosts = HostPolicy(options.host, parse_allowed_hosts(list(options.allow_hosts)))
    serving = Serving(folder, VersionPolicy.parse(options.versions))
    for sentence in serving.refresh():
        say(sentence)
    if not serving.levels:
        chosen = "" if serving.policy.numbers is None else f" of --versions={options.versions}"
        raise InputError(f"{folder}: holds no exports{chosen} to serve; make some first: {export}")
    listener = _listening(options.host, options.port)
    port = listener.getsockname()[1]
    name = f"[{options.host}]" if ":" in options.host else options.host
    say(f"serving at http://{name}:{port}/, with the REST API of TensorFlow Serving; press Ctrl-C to stop")
    sys.setswitchinterval(SWITCH_SECONDS)
    limits = ConnectionLimits().within_file_limit()
    config = uvicorn.Config(
        build_app(serving, Limits(at_once=options.at_once), hosts, say),
        http=partial(LimitedConnection, limits=limits),  # type: ignore[arg-type]
        loop="asyncio",
        ws="none",
        log_level="error",
        access_log=False,
        # Headers of proxies are not trusted: a client can send them too.
        proxy_headers=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        limit_concurrency=limits.count + SPARE_REQUESTS,
        timeout_keep_alive=int(limits.head_seconds),
    )
    LimitedServer(config).run(sockets=[listener])


def _listening(host, port):
    """A socket that listens; one sentence where the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol asyncio does not set TCP_NODELAY, and each response waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as problem:
        listener.close()
        raise InputError(
            f"--host {host} --port {port}: cannot be listened at: {problem.strerror or problem}; choose another"
        ) from problem
    return listener
