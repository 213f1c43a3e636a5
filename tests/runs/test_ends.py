"""When runs end, and why."""

from dvdrl.runs import ends
from dvdrl.runs.options import ES
from dvdrl.runs.presets import resolve


def test_a_run_ends_after_its_iterations_or_its_steps() -> None:
    options = resolve(ES(task="Point-v0", iterations=3, steps=100))
    for iteration, env_steps, reason in (
        (2, 99, None),
        (3, 99, "it has done its 3 iterations"),
        (2, 100, "it has done its 100 environment steps"),
    ):
        assert ends.course([{"iteration": iteration, "env_steps": env_steps}], options).ended == reason
    unlimited = resolve(ES(task="Point-v0", iterations=3))
    assert ends.course([{"iteration": 2, "env_steps": 10**9}], unlimited).ended is None
    assert ends.begun(options).ended is None
