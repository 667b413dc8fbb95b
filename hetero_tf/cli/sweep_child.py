"""Entry point of the runs that `sweep` starts: the normal program, which exits together with the sweep.

Its standard input is a pipe. The pipe closes when the sweep ends, even by SIGKILL; then the run exits as after a
signal. Files on disk are complete at any moment.
"""

import os
import sys

if __name__ == "__main__":
    # The file is started by its path, so that Python does not search the working folder for modules.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from hetero_tf.base.processes import exit_with_parent
    from hetero_tf.cli.main import main

    exit_with_parent(0)
    sys.exit(main())
