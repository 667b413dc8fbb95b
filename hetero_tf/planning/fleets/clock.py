"""Time and energy of the work of clients."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.planning.fleets.devices import Devices


@dataclass(frozen=True)
class ClientTimes:
    """Simulated seconds and energy of n clients in a round.

    Attributes:
        download, compute, upload: float64 [n], seconds.
        energy: float64 [n], joules.
    """

    download: np.ndarray
    compute: np.ndarray
    upload: np.ndarray
    energy: np.ndarray

    @classmethod
    def of(cls, devices: Devices, download: np.ndarray, compute: np.ndarray, upload: np.ndarray) -> "ClientTimes":
        """Return the times with the energy that the devices use in them."""
        energy = compute * devices.train_watts + (download + upload) * devices.radio_watts
        return cls(download, compute, upload, energy)

    @property
    def total(self) -> np.ndarray:
        """Seconds from the start of the download to the end of the upload: float64 [n]."""
        return self.download + self.compute + self.upload


def local_steps(examples: np.ndarray, batch_size: int, passes: int | np.ndarray, starts: int) -> np.ndarray:
    """Return the local steps of passes over the `examples`, int [n], of clients; `starts`: steps of each batch."""
    return passes * -(-examples // batch_size) * starts


def client_times(
    devices: Devices, steps: np.ndarray, flops: np.ndarray, bytes_down: np.ndarray, bytes_up: np.ndarray
) -> ClientTimes:
    """Return the seconds and the energy of clients that start together.

    A client takes `bytes_down / down + steps * seconds_per_step + flops / speed + bytes_up / up` seconds, and uses
    `train_watts` during the computation and `radio_watts` during the transfers. On a shared link all clients of the
    call transfer at once and each gets an equal part of the rate, so the last of them ends when the link has
    transferred all their bytes; the slower of the shared link and the client's own link counts.

    Args:
        devices: The devices of the n clients.
        steps: int [n], local steps.
        flops: float [n], floating-point operations of all local steps, counted as `train_flops`.
        bytes_down, bytes_up: float [n].
    """
    compute = np.asarray(steps) * devices.seconds_per_step + np.asarray(flops) / devices.speed
    download = _transfer(np.asarray(bytes_down, float), devices.down, devices.shared_down)
    upload = _transfer(np.asarray(bytes_up, float), devices.up, devices.shared_up)
    return ClientTimes.of(devices, download, compute, upload)


def _transfer(sizes, rate, shared_rate):
    """Return the seconds of transfers of `sizes` bytes: float64 [n]."""
    order = np.argsort(sizes)
    ascending = sizes[order]
    # When a client has received its bytes, smaller ones have theirs, and larger ones have received as much as it has.
    larger = np.arange(len(sizes))[::-1]
    seconds = np.empty_like(sizes)
    seconds[order] = (np.cumsum(ascending) + larger * ascending) / shared_rate
    return np.maximum(seconds, sizes / rate)
