"""What a run leaves on disk. A kill, a full disk or a damaged file never costs more than one round.

| module | what it does |
|---|---|
| `plain_json` | JSON without NaN, duplicate keys or deep nesting |
| `arrays` | named arrays as npz bytes and back, without pickle |
| `manifest` | the checksummed list of contents that seals a folder |
| `sealed` | save a round, load the newest good one |
| `run_folder` | the layout of a run folder and its lock |
| `states` | the names of a state's parts, and the weights that a run offers to others |
| `metrics` | one JSON line per row |
| `environment` | what bit-equal results depend on |
"""
