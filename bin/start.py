"""Runs the program by the path of this file: `python -m` would look for every module in the working folder first."""

import os
import sys

# Python looks first in the folder of this file; the checkout takes its place.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from hetero_tf.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
