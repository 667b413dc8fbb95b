"""What the deployed process asks of whatever connects it with its devices."""

from collections.abc import Mapping
from typing import Protocol

from hetero_tf.flower.messages import Member, Message, Refused

# What a device can be asked for; the first is asked of every device that connects.
ACTIONS = ("introduction", "training", "statistics")


class Fleet(Protocol):
    """The devices that are connected."""

    def members(self, least: int) -> dict[int, Member]:
        """Returns the devices that are ready by client; with 0 at once, else see `waiting.WaitingFleet.members`."""

    def ask(self, action: str, questions: Mapping[int, Message]) -> dict[int, Message | Refused]:
        """Asks devices and waits for their answers.

        Args:
            action: One of `ACTIONS`.
            questions: By client.

        Returns:
            By client what came back, its arrays as bytes; a device that did not answer in time or left is left out.
        """

    def say(self, sentence: str) -> None:
        """Tells a person."""
