"""Storage of a run. A kill, a full disk or a damaged file never costs more than one round.

| module | purpose |
|---|---|
| `plain_json` | JSON without NaN, duplicate keys or deep nesting |
| `npz_bytes` | named arrays as npz bytes and back, without pickle |
| `manifest` | the checksummed table of contents of a checkpoint |
| `checkpoints` | save a round, load the newest valid one |
| `run_folder` | the layout of a run folder and its lock |
| `states` | names of the arrays of a checkpoint, and the global weights of a run |
| `metrics_file` | one JSON line per row |
| `environment` | versions, processor and settings that bit-equal results depend on |
| `versions` | version folders of exports |

Modules:

    checkpoints   Checkpoints: a round is on disk complete and checksummed under its final name, or it does not exist
    environment   The environment that bit-equal results depend on: versions, processor, threads
    manifest      The manifest of a checkpoint: size and sha256 of each file; name, shape and dtype of each array
    metrics_file  The metrics file of a run: one strict JSON object per line, each with its "round"
    npz_bytes     Encodes named arrays as the bytes of one npz file and decodes them
    plain_json    Strict JSON: no NaN, no infinity, no duplicate keys, bounded size and depth
    run_folder    The folder of one run: its layout, its lock, and its start
    states        Names of the arrays of a checkpoint, and the global weights of a run folder
    versions      Version folders of exports: FOLDER/<level>/<version>/, the layout that model servers read
"""
