"""Starts the server and keeps it running."""

import socket
from collections.abc import Callable
from pathlib import Path

from hetero_tf.base.errors import BadInput, require

NEEDS, EXTRA = ("starlette", "uvicorn"), "serve"


def run(folder: Path, host: str, port: int, at_once: int, say: Callable[[str], None], export: str) -> None:
    """Serves the exports below a folder until a signal ends the program.

    Args:
        folder: FOLDER of FOLDER/<level>/<version>/.
        host: Address to listen at.
        port: Port; 0 takes a free one.
        at_once: Requests that are computed at the same time.
        say: Gets sentences for a person.
        export: The command that makes exports, for the message where there are none.

    Raises:
        BadInput: What it needs is not installed, there is nothing to serve, or the address is not to be had.
    """
    require("serve", NEEDS, EXTRA)
    import uvicorn

    from hetero_tf.serve.app import Limits, build_app
    from hetero_tf.serve.serving import Serving

    serving = Serving(folder)
    for sentence in serving.refresh():
        say(sentence)
    if not serving.levels:
        raise BadInput(f"{folder}: holds no exports to serve; make some first: {export}")
    listener = _listening(host, port)
    taken = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    say(f"serving at http://{name}:{taken}/, in the shape of TensorFlow Serving too; Ctrl-C ends it")
    app = build_app(serving, Limits(at_once=at_once), say)
    # The program's own handlers end it at once; nothing is half-written here.
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    server.run(sockets=[listener])


def _listening(host, port):
    """A socket that listens; one sentence where the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as problem:
        listener.close()
        raise BadInput(
            f"--host {host} --port {port}: cannot be listened at: {problem.strerror or problem}; choose another"
        ) from problem
    return listener
