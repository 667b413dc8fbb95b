"""One of Flower's programs, which ends when the process that started it does, however that ends.

    child.py superlink|supernode|flwr|register WORDS...

Its standard input is a pipe to which nobody writes: once the other end is gone, it can be read.
"""

import os
import sys

if __name__ == "__main__":
    # Started by the path of this file, so that no module is looked for in the working folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def superlink() -> None:
    """Runs Flower's server behind `guard.Guard`."""
    import uvicorn
    from flwr.superlink.cli import flower_superlink

    from hetero_tf.flower.guard import Guard

    run = uvicorn.run
    # The one place where Flower hands its application over. `launch` asks the port whether the guard stands there.
    uvicorn.run = lambda app, **settings: run(Guard(app), **settings)
    flower_superlink()


def supernode() -> None:
    """Runs Flower's program of a device."""
    from flwr.supernode.cli import flower_supernode

    flower_supernode()


def flwr() -> None:
    """Runs Flower's command line."""
    from flwr.cli.app import app

    app()


def register() -> None:
    """Runs Flower's command line for each of several public keys, as it takes a second to start."""
    from flwr.cli.app import app

    for key in sys.argv[1:]:
        app(["supernode", "register", key, "--format", "json"], standalone_mode=False)


PROGRAMS = {"superlink": superlink, "supernode": supernode, "flwr": flwr, "register": register}

if __name__ == "__main__":
    from hetero_tf.base.children import end_with

    end_with(0)
    name = sys.argv.pop(1)
    PROGRAMS[name]()
