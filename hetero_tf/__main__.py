"""`python -m hetero_tf`: the command line."""

import os
import sys

# Python searches the working folder first; files there must not replace libraries.
sys.path[:] = [entry for entry in sys.path if os.path.exists(entry) and not os.path.samefile(entry, ".")]

from hetero_tf.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
