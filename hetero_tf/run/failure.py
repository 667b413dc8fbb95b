"""Failures of a round: a failed round leaves the state unchanged and is repeated with another cohort."""

from dataclasses import dataclass

from hetero_tf.base.errors import NotFinite, UserError

# Key of the metrics of a failed round; such rows are not written.
FAILURE = "failure"


@dataclass(frozen=True)
class RoundFailure:
    """The failure of a round.

    Attributes:
        reason: The cause, a part of a sentence: "round 3: REASON, also with a second cohort".
        error: Raised if the second cohort fails as well.
        remedy: Advice, the last sentence; by default, to lower the learning rate.
    """

    reason: str
    error: type[UserError]
    remedy: str | None = None


OVERFLOW = RoundFailure("the merge of the clients' finite weights overflowed to NaN or infinity", NotFinite)
