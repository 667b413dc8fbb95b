"""Report of `describe`: costs of a recipe at every level, split of its data, and units that each level trains."""

from hetero_tf.reports.describe.output import Description, describe, to_json, to_text

__all__ = ["Description", "describe", "to_json", "to_text"]
