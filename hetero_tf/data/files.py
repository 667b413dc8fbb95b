"""Finding a person's own data file."""

import os
from pathlib import Path

from hetero_tf.data.dataset import NotAvailable


def find(data_dir: Path | None, name: str, argument: str) -> Path:
    """Returns the path of file `name`, looked for in `data_dir` (unless None) and then in the working folder.

    Args:
        data_dir: Data folder or None.
        name: Path from a recipe.
        argument: Option that the path was given for, for the sentence.

    Raises:
        NotAvailable: There is no such file.
    """
    candidates = [Path(name)] if data_dir is None else [Path(data_dir) / name, Path(name)]
    for candidate in candidates:
        # Unlike Path.exists, this is False for names that are too long.
        if os.path.exists(candidate):
            return candidate
    looked = " or ".join(str(candidate.absolute()) for candidate in dict.fromkeys(candidates))
    raise NotAvailable(f"`{argument}` must name an existing file. Received: {argument}={name!r}; there is no {looked}")
