"""How much of the time goes into simulating."""

import time
from collections.abc import Callable
from typing import Any


class Timed:
    """Something that steps simulations and says how long they have taken."""

    simulation_seconds = 0.0

    def _timed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        self.simulation_seconds += time.perf_counter() - begin
        return result
