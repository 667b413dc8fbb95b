"""Tables, figures and pages from run folders, without data and TensorFlow.

The package `runs` reads folders and groups seeds. `summaries` computes the results of one run, `comparison` the rows of
a table, and `tables` and `text_tables` write them. `curves` computes the numbers of figures, `figures` draws them, and
`page` writes a complete report.
"""
