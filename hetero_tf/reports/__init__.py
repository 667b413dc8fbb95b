"""Tables, figures and pages from run folders, without data and TensorFlow.

The package `runs` reads folders and groups seeds. `summaries` computes the rows of a table, and `tables` writes them.
`figures` and `breakdowns` compute and draw figures, and `page` writes a complete report.
"""
