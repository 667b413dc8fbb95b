"""What runs left in their folders, read again: tables, figures and pages that need neither the data nor TensorFlow.

`runs` reads folders and gathers seeds, `summaries` says what one run reached, `comparison` makes the rows of a table
and `tables` writes them; `curves` has the numbers of figures, `figures` draws them, `page` makes one report of it all.
"""
