"""One of Flower's programs. It ends when its parent process ends for any reason.

    flower_child.py superlink|supernode|flwr|register|serverapp|clientapp WORDS...

Its standard input is a pipe that is never written: end of file means that the parent ended. Programs of one machine
connect through the Unix socket of their job (`endpoints`).
"""

import os
import sys
import time

if __name__ == "__main__":
    # Started by the path of this file, so modules are not searched in the working folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# Seconds between two requests for a task.
POLL = 1.0


def superlink() -> None:
    """Run Flower's server."""
    import functools

    import uvicorn
    from flwr.superlink.cli import flower_superlink

    from hetero_tf.devices import endpoints, job

    # Flower passes its application only to this function.
    uvicorn.run = functools.partial(endpoints.serve_superlink, path=job.current().socket)
    flower_superlink()


def supernode() -> None:
    """Run Flower's program of a device. Its API listens at the socket instead of a port; its transfers are timed."""
    from flwr.supernode.cli import flower_supernode

    from hetero_tf.devices import endpoints, job, transfers

    transfers.record(job.current().transfers)
    listener = endpoints.bind(job.current().socket)
    _serve_at(listener)
    flower_supernode()


def _serve_at(listener):
    """Make every uvicorn server of this process use a socket instead of its host and port."""
    import functools

    import uvicorn

    uvicorn.Config = functools.partial(uvicorn.Config, fd=listener.fileno())  # type: ignore[misc, assignment]


def flwr() -> None:
    """Run Flower's command line."""
    from flwr.cli.app import app

    app()


def register() -> None:
    """Run Flower's command line for several public keys in one process, as it takes a second to start."""
    from flwr.cli.app import app

    for key in sys.argv[1:]:
        app(["supernode", "register", key, "--format", "json"], standalone_mode=False)


def serverapp() -> None:
    """Run the task of the run: trains."""
    from flwr.superlink.cli import flwr_serverapp

    _run_task("flwr-serverapp", flwr_serverapp)


def clientapp() -> None:
    """Respond to one message of the server."""
    from flwr.supernode.cli import flwr_clientapp

    _run_task("flwr-clientapp", flwr_clientapp)


def _run_task(task_type, run):
    """Wait for a task and run it in this process. Unlike in Flower, its token never appears on a command line."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    from hetero_tf.devices.endpoints import ADDRESS

    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    retry = make_simple_http_retry_invoker()
    request = AcquireTaskRequest(supported_task_types=[task_type])
    with RuntimeHttpClient(f"http://{ADDRESS}", interceptors=interceptors, retry_invoker=retry) as client:
        while not (token := client.AcquireTask(request).token):
            time.sleep(POLL)
    sys.argv[1:] = ["--runtime-api-address", ADDRESS, "--insecure", "--token", token]
    run()


SERVERS = {"superlink": superlink, "supernode": supernode}
CLIENTS = {"flwr": flwr, "register": register, "serverapp": serverapp, "clientapp": clientapp}


if __name__ == "__main__":
    from hetero_tf.base.children import exit_with_parent

    exit_with_parent(0)
    name = sys.argv.pop(1)
    if name in CLIENTS:
        from hetero_tf.devices import endpoints, job

        endpoints.send_through(job.current().socket)
    {**SERVERS, **CLIENTS}[name]()
