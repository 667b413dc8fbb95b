"""The objects of a recipe and their training in a run folder: the learning process, its loop, and its resumption."""
