"""Prometheus metrics of one pod, served over HTTP."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from meshwright_trainer.sinks.base import Record

_GAUGES = {
    "loss": ("meshwright_trainer_loss", "Loss of the last logged step."),
    "gradient_norm": ("meshwright_trainer_gradient_norm", "Gradient norm before clipping."),
    "learning_rate": ("meshwright_trainer_learning_rate", "Learning rate of the last logged step."),
    "tokens_per_second": ("meshwright_trainer_tokens_per_second", "Tokens per second over all ranks."),
    "mfu": ("meshwright_trainer_mfu_ratio", "Model FLOPs utilisation, 0 to 1."),
    "memory_bytes": ("meshwright_trainer_memory_bytes", "Peak memory of this process."),
}
_STEP = ("meshwright_trainer_step", "Steps done.")
_SECONDS = ("meshwright_trainer_phase_seconds_total", "Seconds spent by phase of the loop.")
_BYTES = ("meshwright_trainer_communication_bytes_total", "Bytes sent by this rank, by mesh axis.")


class Prometheus:
    """Keeps the last figures for whoever scrapes."""

    def __init__(self, port: int, address: str = "0.0.0.0", registry: CollectorRegistry | None = None) -> None:
        """Serves on the port; 0 serves nothing, for programs that have a server of their own.

        Raises:
            OSError: the port is taken.
        """
        self.registry = registry or CollectorRegistry()
        self._gauges = {key: Gauge(*about, registry=self.registry) for key, about in _GAUGES.items()}
        self._step = Gauge(*_STEP, registry=self.registry)
        self._seconds = Counter(*_SECONDS, ["phase"], registry=self.registry)
        self._bytes = Counter(*_BYTES, ["axis"], registry=self.registry)
        self._server = start_http_server(port, addr=address, registry=self.registry) if port else None

    def write(self, record: Record) -> None:
        """Takes the figures of one record."""
        self._step.set(record.step)
        if record.event != "step":
            return
        for name, value in record.figures().items():
            group, _, label = name.partition("/")
            if name in self._gauges:
                self._gauges[name].set(value)
            elif group == "seconds":
                self._seconds.labels(label).inc(value)
            elif group == "bytes":
                self._bytes.labels(label).inc(value)

    def close(self) -> None:
        """Stops serving."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
