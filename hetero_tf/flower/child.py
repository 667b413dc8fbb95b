"""One of Flower's programs, which ends when the process that started it does, however that ends.

    child.py superlink|supernode|flwr|register|serverapp|clientapp WORDS...

Its standard input is a pipe without writes: once the other end is closed, it can be read. Programs of one machine
reach each other through the Unix socket of their job (`endpoints`).
"""

import os
import sys
import time

if __name__ == "__main__":
    # Started by the path of this file, so that no module is looked for in the working folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Seconds between two requests for a task.
POLL = 1.0


def superlink() -> None:
    """Runs Flower's server."""
    import functools

    import uvicorn
    from flwr.superlink.cli import flower_superlink

    from hetero_tf.flower import endpoints, job

    # The one place where Flower hands its application over.
    uvicorn.run = functools.partial(endpoints.serve_superlink, path=job.current().socket)
    flower_superlink()


def supernode() -> None:
    """Runs Flower's program of a device; its own API listens at the socket instead of a port."""
    from flwr.supernode.cli import flower_supernode

    from hetero_tf.flower import endpoints, job

    listener = endpoints.bind(job.current().socket)
    _serve_at(listener)
    flower_supernode()


def _serve_at(listener):
    """Makes every server of this process that Flower configures use a socket in place of its host and port."""
    import functools

    import uvicorn

    uvicorn.Config = functools.partial(uvicorn.Config, fd=listener.fileno())


def flwr() -> None:
    """Runs Flower's command line."""
    from flwr.cli.app import app

    app()


def register() -> None:
    """Runs Flower's command line for each of several public keys, as it takes a second to start."""
    from flwr.cli.app import app

    for key in sys.argv[1:]:
        app(["supernode", "register", key, "--format", "json"], standalone_mode=False)


def serverapp() -> None:
    """Takes the task of the run and trains."""
    from flwr.superlink.cli import flwr_serverapp

    _run_task("flwr-serverapp", flwr_serverapp)


def clientapp() -> None:
    """Takes one message of the server and answers it."""
    from flwr.supernode.cli import flwr_clientapp

    _run_task("flwr-clientapp", flwr_clientapp)


def _run_task(task_type, run):
    """Waits for a task, and runs it in this process: its token never appears on a command line, as of Flower's own."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    from hetero_tf.flower.endpoints import ADDRESS

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
    from hetero_tf.base.children import end_with

    end_with(0)
    name = sys.argv.pop(1)
    if name in CLIENTS:
        from hetero_tf.flower import endpoints, job

        endpoints.send_through(job.current().socket)
    {**SERVERS, **CLIENTS}[name]()
