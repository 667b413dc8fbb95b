"""A run that `sweep` has started: the ordinary program, which ends when the sweep does, however that ends.

Its standard input is a pipe to which the sweep writes nothing. It can be read once the other end is gone, after a
SIGKILL too; then the run ends at once, as by a signal: what is on disk is whole at any moment.
"""

import os
import sys

if __name__ == "__main__":
    # Started by the path of this file, so that no module is looked for in the working folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

    from hetero_tf.base.children import end_with
    from hetero_tf.cli.main import main

    end_with(0)
    sys.exit(main())
