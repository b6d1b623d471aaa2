"""The workers of a running Dask cluster, given by the address of its scheduler."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from exporter.scan.engines.scan_engine import Unusable
from exporter.scan.work import Done, Item, Recipe, read_batch

CONNECT_SECONDS = 10.0
WORKERS_SECONDS = 60.0  # without a worker, after which none is waited for any longer
CHECK_SECONDS = 5.0
AHEAD = 4  # batches a thread of a worker


class Dask:
    """An executor of the cluster. Dask itself retries the work of a dead worker on others, three times."""

    span_bytes = 256 << 20
    batch_bytes = 256 << 20
    batch_seconds = 10.0  # long beside the milliseconds that a task costs the scheduler, short beside a worker's life
    remote = True

    def __init__(self, address: str, *, task_bytes: int | None = None) -> None:
        """Raises Unusable."""
        try:
            import distributed
        except ImportError:
            from exporter.process.extras import how_to_install

            raise Unusable(f"--engine dask needs the extra dask; {how_to_install('dask')}") from None
        for name in ("distributed", "distributed.client", "tornado.application"):  # each writes to stderr by itself
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # what matters of it is said by `check`
        if task_bytes:
            self.batch_bytes, self.batch_seconds = task_bytes, 0.0
        self._address = address
        client: Any = distributed.Client  # which has no types
        try:
            self._client = client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise Unusable(
                f"no Dask scheduler answers at {address} ({error}); give --dask.address as it says it, tcp://HOST:PORT",
            ) from None
        self._killed: type[Exception] = distributed.scheduler.KilledWorker
        self._seen = self._checked = time.monotonic()
        while not (threads := self._threads()):
            self._waited()
            time.sleep(0.2)
        self.width = threads * AHEAD
        self._executor = self._client.get_executor(pure=False)

    def submit(self, recipe: Callable[[], Recipe], items: Sequence[Item]) -> Future[Done]:
        future: Future[Done] = self._executor.submit(read_batch, recipe(), items)
        return future

    def loss(self, error: BaseException) -> str:
        if isinstance(error, self._killed):
            return "each Dask worker that read it died; did they run out of memory?"
        if isinstance(error, CancelledError):
            self._connected()
            return "Dask gave it up"
        if isinstance(error, ModuleNotFoundError) or isinstance(error.__cause__, ModuleNotFoundError):
            raise Unusable(f"a Dask worker cannot run it ({error.__cause__ or error}); install gpufault there too")
        return ""

    def check(self) -> None:
        self._connected()
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        if self._threads():
            self._seen = now
        self._waited()

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self._executor.shutdown(wait=False)  # cancels what runs
        self._client.close(timeout=1.0 if at_once else CONNECT_SECONDS)

    def _connected(self) -> None:
        if self._client.status != "running":
            raise Unusable(f"the Dask scheduler at {self._address} went away")

    def _waited(self) -> None:
        if time.monotonic() - self._seen > WORKERS_SECONDS:
            raise Unusable(
                f"the Dask scheduler at {self._address} has had no worker for {WORKERS_SECONDS:g} s; start some"
            )

    def _threads(self) -> int:
        try:
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        except OSError:
            raise Unusable(f"the Dask scheduler at {self._address} went away") from None
        return sum(worker["nthreads"] for worker in workers)
