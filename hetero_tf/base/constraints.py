"""What a value of a recipe may be, and how the signature of a plug-in says so.

A signature uses plain types (int, float, str, bool), `Literal["link", "branch"]` for choices,
`Annotated[float, Range(low=0.0, below=1.0)]` for bounds, `tuple[Share, ...]` for lists, `| None`, and names that stand
for one of these: the names below, and those of the module itself. `annotations` reads them from source text.
"""

from dataclasses import dataclass
from typing import Annotated

LARGEST_INT = 2**31 - 1
LARGEST_FLOAT = 1e9
# Products of smaller numbers vanish in float32.
SMALLEST_FLOAT = 1e-18
LARGEST_SIZE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Range:
    """Bounds of a number in an annotation.

    Attributes:
        low, high: The smallest and the largest number that are allowed.
        above, below: Bounds that are not allowed themselves.
        odd: Whether even numbers are refused.
        sizes: Whether `!w n` and `!classes` may stand for the number: a size that follows the level or the labels.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    odd: bool = False
    sizes: bool = False


Count = Annotated[int, Range(low=1, high=10_000_000)]
CountOrZero = Annotated[int, Range(low=0, high=10_000_000)]
Vocabulary = Annotated[int, Range(low=3, high=10_000_000)]
Pixels = Annotated[int, Range(low=1, high=4096)]
Positive = Annotated[float, Range(above=0.0)]
NotNegative = Annotated[float, Range(low=0.0)]
Share = Annotated[float, Range(low=0.0, below=1.0)]
TestShare = Annotated[float, Range(above=0.0, below=1.0)]
Probability = Annotated[float, Range(low=0.0, high=1.0)]
Epsilon = Annotated[float, Range(above=0.0, high=1.0)]
Size = Annotated[int, Range(low=1, high=LARGEST_SIZE, sizes=True)]
# Of a kernel, stride or patch: with another one at every level it would be another model, not a narrower one.
FixedSize = Annotated[int, Range(low=1, high=999)]
# TensorFlow's gradients of convolutions end the process at larger kernels.
OddSize = Annotated[int, Range(low=1, high=127, odd=True)]


@dataclass(frozen=True)
class Constraint:
    """What is allowed of one value.

    Attributes:
        type: int, float, str, bool, tuple, or pair, which is a whole number or a list of two.
        optional: Whether null is allowed.
        low, high, above, below, odd, sizes: As in `Range`.
        choices: The allowed texts or whole numbers; None: all that the rest allows.
        pattern: Regular expression that a text must match.
        item: What a list holds; None: any numbers.
    """

    type: str
    optional: bool = False
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    odd: bool = False
    sizes: bool = False
    choices: tuple | None = None
    pattern: str | None = None
    item: "Constraint | None" = None

    def allowed(self) -> str:
        """The sentence part that says it, e.g. "must be a whole number from 1 to 10"."""
        return "must be " + self.noun()

    def noun(self) -> str:
        """What the value is, e.g. "a whole number from 1 to 10 or null"."""
        if self.choices:
            text = "one of " + ", ".join(map(str, self.choices))
        elif self.type == "tuple":
            text = self._list()
        elif self.type in ("int", "float", "pair"):
            text = ("an odd whole number" if self.odd else _NOUNS[self.type]) + self._range()
        else:
            text = _NOUNS[self.type] if self.pattern is None else f"text like {self.pattern}"
        return text + (", `!w n` or `!classes`" if self.sizes else "") + (" or null" if self.optional else "")

    def bounds(self) -> tuple:
        """Inclusive bounds with the general limits filled in: nothing in a recipe is astronomical."""
        largest = LARGEST_FLOAT if self.type == "float" else LARGEST_INT
        unbounded = self.low is None and self.above is None
        return (-largest if unbounded else self.low), (largest if self.high is None else self.high)

    def _list(self):
        item = self.item or Constraint("float")
        plain = item == Constraint(item.type)
        return f"a list of {_PLURALS[item.type]}" if plain else f"a list, each of it {item.noun()}"

    def _range(self):
        low, high = self.bounds()
        if self.above is None and self.below is None:
            return f" from {low:.12g} to {high:.12g}"
        start = f"above {self.above:g}" if self.above is not None else f"of at least {low:.12g}"
        end = f"below {self.below:g}" if self.below is not None else f"at most {high:.12g}"
        return f" {start} and {end}"


_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "pair": "a whole number or two in a list, each",
    "bool": "true or false",
    "str": "text",
}
_PLURALS = {"int": "whole numbers", "float": "numbers", "str": "texts", "bool": "true and false"}
