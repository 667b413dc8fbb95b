"""Metrics of a server in the text format of Prometheus.

Reference: Prometheus, "Exposition formats", text format 0.0.4.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper bounds of the buckets, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(eq=False)
class RequestMetrics:
    """Counts of requests, and durations of predict requests.

    Attributes:
        requests: `{(endpoint, level, status): count}`.
        durations: `{level: [count for each of BUCKETS]}` of predict requests, not cumulative.
        seconds: `{level: sum}` of the durations of predict requests.
        counts: `{level: count}` of predict requests.
        in_progress: Requests without a complete response.
    """

    requests: Counter = field(default_factory=Counter)
    durations: dict[str, Counter] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)
    in_progress: int = 0

    def observe(self, endpoint: str, level: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            endpoint: Name of the route; "other" for unknown paths.
            level: Name of a served level; "" if the request names none.
            status: HTTP status.
            seconds: Time from the head of the request to the end of the response.
        """
        self.requests[endpoint, level, status] += 1
        if endpoint == "predict" and level:
            bounds = self.durations.setdefault(level, Counter())
            bounds[next((bound for bound in BUCKETS if seconds <= bound), None)] += 1
            self.seconds[level] = self.seconds.get(level, 0.0) + seconds
            self.counts[level] += 1

    def render(self, versions: Iterable[tuple[str, int]], body_bytes: int, uptime: float) -> str:
        """Return all metrics as text.

        Args:
            versions: The served (level, version) pairs.
            body_bytes: Bytes of request and response bodies in memory.
            uptime: Seconds since the start.
        """
        return "".join(f"{line}\n" for line in self._lines(versions, body_bytes, uptime))

    def _lines(self, versions, body_bytes, uptime) -> Iterator[str]:
        yield from _head("hetero_tf_requests_total", "counter", "HTTP requests.")
        for (endpoint, level, status), count in sorted(self.requests.items()):
            yield _sample("hetero_tf_requests_total", count, endpoint=endpoint, level=level, status=status)
        name = "hetero_tf_predict_seconds"
        yield from _head(name, "histogram", "Time of predict requests in seconds.")
        for level in sorted(self.durations):
            total = 0
            for bound in BUCKETS:
                total += self.durations[level][bound]
                yield _sample(f"{name}_bucket", total, level=level, le=bound)
            yield _sample(f"{name}_bucket", self.counts[level], level=level, le="+Inf")
            yield _sample(f"{name}_sum", self.seconds[level], level=level)
            yield _sample(f"{name}_count", self.counts[level], level=level)
        yield from _head("hetero_tf_version_available", "gauge", "1 for each served version of a level.")
        for level, version in sorted(versions):
            yield _sample("hetero_tf_version_available", 1, level=level, version=version)
        yield from _head("hetero_tf_requests_in_progress", "gauge", "Requests without a complete response.")
        yield _sample("hetero_tf_requests_in_progress", self.in_progress)
        yield from _head("hetero_tf_body_bytes", "gauge", "Bytes of request and response bodies in memory.")
        yield _sample("hetero_tf_body_bytes", body_bytes)
        yield from _head("hetero_tf_uptime_seconds", "gauge", "Seconds since the start of the server.")
        yield _sample("hetero_tf_uptime_seconds", uptime)


def _head(name, kind, meaning):
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _sample(name, value, **labels):
    pairs = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"


def _escaped(label):
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
