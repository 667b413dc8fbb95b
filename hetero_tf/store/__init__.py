"""What a run leaves on disk, so that a kill, a full disk or a stranger's folder never costs more than one round.

| module | what it does |
|---|---|
| `files` | durable writes, guarded reads, one sentence per operating system error |
| `plain_json` | JSON without NaN, duplicate keys or deep nesting |
| `arrays` | named arrays as npz bytes and back, without pickle |
| `manifest` | the checksummed list of contents that seals a folder |
| `sealed` | save a round, load the newest good one |
| `run_folder` | the layout of a run folder and its lock |
| `metrics` | one JSON line per row |
| `environment` | what bit-equal results depend on |
"""
