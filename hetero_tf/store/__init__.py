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
"""
