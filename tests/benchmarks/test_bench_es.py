from dvdrl.benchmarks import es, es_device


def test_an_iteration_is_measured_against_the_same_physics() -> None:
    # Three steps an episode: too short for the figures to mean anything, long enough for them to be there.
    result = es.against_bare_loop(turns=1, horizon=3)
    assert result["steps_per_second"] > 0
    assert abs(result["ratio"] - result["steps_per_second"] / result["bare_steps_per_second"]) < 1e-6  # one turn
    assert 0 < result["outside_simulation"] < 1


def test_seeds_at_once_are_measured_together() -> None:
    # On this machine's cores, of which the speed is not asked.
    result = es_device.measure(2, 1, executor="local", sensings=2, task_options={"horizon": 3})
    assert result["steps_per_second"] > 0
    assert 0 < result["outside_simulation"] < 1
