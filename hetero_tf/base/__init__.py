"""Shared by all packages: errors, seeds, the plug-in registry, the console, threads and files.

Modules:

    children          Child processes: start, fork, read output, stop, and describe the exit code
    console           Console output: one progress line on a terminal, plain lines when piped, and a log file
    constraints       Allowed values of recipe keys, options of plug-ins and arguments of layers, as annotations
    errors            Errors that the command line prints as one sentence, each with its exit code
    escaping          Escapes names of users and files for a terminal line, a shell, Markdown, HTML and LaTeX
    exits             Actions that run before a signal ends the process without running `finally` or `atexit`
    files             Durable file access: files are written completely and synced, and errors become one sentence
    folders           Folders: check the length of a path, and remove leftovers of killed programs
    graph_random      Random numbers inside a graph
    hardware          Prepares TensorFlow for this machine: start-up noise, threads, devices
    metrics           Table of all metrics of a run: meaning, better direction, unit, and visibility
    npz_reader        Reads untrusted .npz files
    patience          Patience of early stopping: counts the evaluations since the last improvement of a metric
    picture_decoding  Decodes picture files inside a graph, resized to the input size of a model
    picture_files     Formats and limits of picture files, and the reason why a file cannot be used
    plugin_packages   Plug-in modules that installed packages offer by entry points; reading them imports nothing
    registry          Closed registry of plug-ins
    replicas          Replicas that share one round
    seeds             Random numbers as pure functions of (seed
    sound_decoding    Decodes WAV files in a graph, like `sound_files.read_clip` in Python
    sound_files       Reads WAV files, also damaged and hostile ones: sizes and rates in a header are only claims
    units             Numbers with three digits and a prefix, from one parameter to a billion operations
    version           The version of the package, which every package may import
    written_gradient  Decorator for tensor functions with a custom gradient
"""
