"""A run that `sweep` or `launch` has started: the ordinary program, which ends when they do, however they end.

Its standard input is a pipe to which they write nothing. It can be read once the other end is gone, after a
SIGKILL too; then the run ends at once, as by a signal: what is on disk is whole at any moment.
"""

import os
import signal
import sys
import threading

if __name__ == "__main__":
    # Started by the path of this file, so that no module is looked for in the working folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def end_with(pipe: int) -> None:
    """Ends this process when nobody holds the other end of a pipe any more."""

    def wait():
        while os.read(pipe, 1):
            pass
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="end with the starter", daemon=True).start()


if __name__ == "__main__":
    from hetero_tf.cli.main import main

    end_with(0)
    sys.exit(main())
