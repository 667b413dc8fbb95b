"""Tables, figures and pages from run folders, without data and TensorFlow.

The package `runs` reads folders and groups seeds. `summaries` computes the results of one run, `comparison` the rows of
a table, and `table_formats` writes them. `curves` computes the numbers of figures, `figures` draws them, and `page`
writes a complete report.

Modules:

    breakdowns     Breakdowns of results and time: by level, by client, by round, and by part of the work
    comparison     Comparison of runs: one row for each recipe, with mean and spread over its seeds
    curves         Data of figures: learning curves with a band over seeds
    events         Writes the metrics of runs as TensorBoard event files
    figures        Draws learning curves, and metrics over model size
    fleet_times    Device time of finished runs on a fleet, without training
    page           Builds one self-contained HTML page about runs, with embedded figures and no external requests
    sections       Builds the sections of a report from the data of the runs
    style          Style of all figures: colour-blind safe colours, legends below the axes, and output files
    summaries      Metric summary and costs of one run; mean and spread over several values
    table_formats  Writes the rows of a comparison as Markdown, LaTeX, HTML, CSV or JSON
    text_tables    Writes a comparison as aligned text
    timelines      Timeline of the first rounds of a run: download, computation, upload and waiting of each client
"""
