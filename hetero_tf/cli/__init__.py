"""The command line.

Modules:

    commands/    Commands, one module each, selected by the first word of the command line
    flag_table   Table of all flags, which `flags` defines and `help` prints
    flags        Flags of the command line, and the command word
    help         Help texts: the list of commands, or the flags of one command with their defaults
    interrupts   Handles Ctrl-C and signals of batch systems immediately
    main         The command line: dispatch flags to a command; print errors as one sentence and set the exit code
    open_run     Shared by commands: the settings of a run, and the state of a run folder
    sweep_child  Entry point of the runs that `sweep` starts: the normal program, which exits together with the sweep
"""
