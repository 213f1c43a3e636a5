"""Measuring the time spent on simulation."""

import time
from collections.abc import Callable
from typing import Any


class Timed:
    """A base class for what steps simulations and measures how long they take."""

    simulation_seconds = 0.0

    def _timed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        self.simulation_seconds += time.perf_counter() - begin
        return result
