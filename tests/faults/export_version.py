"""Child of the fault tests: writes the next version to the folder of a level, as the last part of `export`.

Arguments: import path, folder. The tests start it like `save_rounds.py`.
"""

import os
import sys
from pathlib import Path


def main():
    sys.path[:0] = sys.argv[1].split(os.pathsep)
    from hetero_tf.base import files
    from hetero_tf.runs.versions import EXPORTED, create_draft, publish

    os.write(1, b"begin\n")
    with create_draft(Path(sys.argv[2])) as draft:
        files.write_new(draft / "model", b"new")
        files.write_new(draft / EXPORTED, b"new")
        files.sync_folder(draft)
        publish(draft, None)
    os.write(1, b"end\n")
    os._exit(0)


if __name__ == "__main__":
    main()
