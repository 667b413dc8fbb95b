"""`python -m hetero_tf`: the command line."""

import os
import sys

# Python itself looks in the working folder first, whose files must not take the place of libraries.
sys.path[:] = [entry for entry in sys.path if os.path.exists(entry) and not os.path.samefile(entry, ".")]

from hetero_tf.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
