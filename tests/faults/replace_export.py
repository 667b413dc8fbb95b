"""Child of the fault tests: puts a new export in the place of an earlier one, as `export --overwrite` does at its end.

Arguments: import path, run folder. Started like `save_rounds.py`.
"""

import os
import sys
from pathlib import Path


def main():
    sys.path[:0] = sys.argv[1].split(os.pathsep)
    from hetero_tf.base import files, folders
    from hetero_tf.store.run_folder import EXPORTED, RunFolder, is_export

    run = RunFolder(Path(sys.argv[2]))
    os.write(1, b"begin\n")
    draft = files.draft_of(run.export)
    os.mkdir(draft)
    files.write_new(draft / "model", b"new")
    files.write_new(draft / EXPORTED, b"new")
    files.sync_folder(draft)
    folders.replace(draft, run.export, is_export)
    os.write(1, b"end\n")
    os._exit(0)


if __name__ == "__main__":
    main()
