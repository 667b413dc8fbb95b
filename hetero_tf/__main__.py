"""`python -m hetero_tf`: the command line."""

import sys

from hetero_tf.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
