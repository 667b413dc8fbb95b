"""Storage of a run. A kill, a full disk or a damaged file never costs more than one round.

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
