"""Flower's Fleet API: served to devices, and used by a device. Only this file imports private modules of Flower.

Flower's programs are not started, because another user of the machine could use them (Flower 1.42). The port of
`flower-superlink` also serves the Control API, which lets everyone start runs: accounts need Flower's enterprise
package. `flower-superexec` passes the token of a task on a command line, which every user can read. Here the port
serves the Fleet API alone, whose requests are signed with the key of a device; all other calls stay within the process
of the server, and a device opens no port. Tested with Flower 1.41 and 1.42, see `setup.py`.
"""

import contextlib
import functools
import logging
import os
import re
import socket
import threading
import time
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError, UserError
from hetero_tf.devices.messages import MESSAGE_TYPES, Message, from_records, to_records

ACTIONS = {message_type: action for action, message_type in MESSAGE_TYPES.items()}
# Path of the requests of devices, and the maximum size of their bodies: Flower sends values in chunks of 5 MiB.
FLEET_PATH, MAX_BODY_BYTES = "/v1/fleet/", 6 * 2**20


class Guard:
    """An ASGI application that passes only requests of devices on to Flower's."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Respond with status 403, 411 or 413, or pass the request on."""
        if scope["type"] != "http":
            return
        lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
        if not scope["path"].startswith(FLEET_PATH):
            code = 403
        # The server enforces the announced length of a body; without it the size is unlimited.
        elif len(lengths) != 1 or not lengths[0].isdigit():
            code = 411
        elif int(lengths[0]) > MAX_BODY_BYTES:
            code = 413
        else:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": code, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


# Id and name of Flower's account without authentication, and its federation of all nodes.
ACCOUNT, FEDERATION = ("<id:none>", "none"), "@none/default"
# Methods of Flower's client of the Runtime API that its grid calls.
RUNTIME_METHODS = ("GetNodes", "PushMessages", "PullMessages", "PushObject", "PullObject", "ConfirmMessageReceived")
# Seconds between two requests of a device for a message, and to wait for open requests at the end of the server.
POLL_INTERVAL, CLOSE_TIMEOUT = 1.0, 5.0


class Rejected(Exception):
    """The server does not know the key of a device, or counts the device as connected."""


@contextlib.contextmanager
def serve(
    host: str, port: int, certificate: Path, key: Path, public_keys: Mapping[int, bytes]
) -> Iterator[tuple[Any, dict[int, int]]]:
    """Serve the Fleet API with TLS; yield Flower's grid of the devices, and the id of each client's node.

    Args:
        public_keys: Different public keys of the devices in PEM, by client.

    Raises:
        InputError: The certificate or the address cannot be used.
    """
    _silence()
    import uvicorn
    from flwr.superlink.main import create_app

    app = create_app()
    # Otherwise each device could register a key itself.
    app.state.enable_supernode_auth = True
    state = app.state.linkstate_factory.state()
    nodes = {client: state.create_node(*ACCOUNT, pem, 0) for client, pem in sorted(public_keys.items())}
    # No proxy is trusted, so proxy headers are ignored.
    settings: dict[str, Any] = {"lifespan": "off", "proxy_headers": False, "log_config": None, "access_log": False}
    config = uvicorn.Config(Guard(app), ssl_certfile=certificate, ssl_keyfile=key, **settings)
    try:
        config.load()
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(f"could not serve {host}, port {port}, with {certificate}: {error}") from error
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="port for devices", daemon=True)
    thread.start()
    try:
        with _running_task(state) as grid:
            yield grid, nodes
    finally:
        server.should_exit = True
        thread.join(CLOSE_TIMEOUT)


def _silence():
    """Turn off Flower's telemetry and its log, whose errors are reported here."""
    # Flower reads the variable at its first import.
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    import flwr.app  # noqa: F401

    logging.getLogger("flwr").setLevel(logging.CRITICAL + 1)


@contextlib.contextmanager
def _running_task(state):
    """Start a run without an app, and yield the grid of its task; it calls the server without a network."""
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid
    from flwr.superlink.servicer.runtime import runtime_handlers

    run_id = state.create_run("", "", "", {}, FEDERATION, None, ACCOUNT[0], "flwr-serverapp")
    (run,) = state.get_run_info(run_ids=[run_id])
    task_id = run.primary_task_id
    grid: Any = HttpGrid(token=state.claim_task(task_id))
    state.activate_task(task_id)
    (task,) = state.get_tasks(task_ids=[task_id])
    # The names of the server's functions are those of the methods in lower case, with underscores.
    handlers = {
        name: getattr(runtime_handlers, re.sub("(?!^)([A-Z])", r"_\1", name).lower()) for name in RUNTIME_METHODS
    }
    calls = {name: functools.partial(handler, state=state, task=task) for name, handler in handlers.items()}
    grid._client = types.SimpleNamespace(**calls)
    grid.set_run(run)
    # Constructors of messages read these.
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = run_id, task_id, grid.node.node_id
    # Without them, Flower ends the run after a minute.
    heartbeat = HeartbeatSender(lambda: state.acknowledge_task_heartbeat(task_id))
    heartbeat.start()
    try:
        yield grid
    finally:
        heartbeat.stop()


def respond(server: str, authority: bytes, key: Any, answer: Callable[[str, Message], Message]) -> None:
    """Respond to the requests of a server until the connection is lost. Flower then ends the process.

    Args:
        authority: Certificate of the server's authority in PEM.
        answer: Returns the response to a request of an action.

    Raises:
        Rejected: The server does not accept the device now.
        UserError: TLS failed.
    """
    _silence()
    # Flower's thread of heartbeats ends with an exception when the server no longer knows the key.
    threading.excepthook = lambda _: None
    import httpx
    from flwr.supernode.fleet_http_connection import http_request_response

    try:
        with http_request_response(server, False, authority, (key, key.public_key())) as connection:
            _, receive, *_ = connection
            while True:
                if (request := receive()) is None:
                    time.sleep(POLL_INTERVAL)
                else:
                    _respond(request, answer, connection)
    except (SystemExit, KeyboardInterrupt) as end:
        if isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, httpx.HTTPStatusError):
            raise Rejected from end
        raise UserError(f"{server}: could not connect: {end.__context__}") from end


def _respond(request, answer, connection):
    """Receive the values of a request, and send the response."""
    import flwr.app
    from flwr.supercore.inflatable import inflatable_object, inflatable_utils

    _, _, send, _, _, pull, push, confirm = connection
    (message, tree), start = request, time.monotonic()
    pull, push, confirm = (functools.partial(each, message.metadata.run_id) for each in (pull, push, confirm))
    message = inflatable_utils.pull_and_inflate_object_from_tree(tree, pull, confirm)
    message.metadata.__dict__["_message_id"] = tree.object_id
    try:
        response = answer(ACTIONS[message.metadata.message_type], from_records(message.content))
        reply = flwr.app.Message(to_records(response), reply_to=message)
    except Exception as error:
        reply = flwr.app.Message(flwr.app.Error(0, f"{type(error).__name__}: {error}"), reply_to=message)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with inflatable_object.no_object_id_recompute():
        missing, session = send(reply, inflatable_object.get_object_tree(reply), time.monotonic() - start)
        objects = inflatable_object.get_all_nested_objects(reply)
        inflatable_utils.push_objects(objects, functools.partial(push, session), object_ids_to_push=missing)
