from dvdrl.benchmarks import es


def test_an_iteration_is_measured_against_the_same_physics() -> None:
    # Three steps an episode: too short for the figures to mean anything, long enough for them to be there.
    result = es.against_bare_loop(turns=1, horizon=3)
    assert result["steps_per_second"] > 0
    assert abs(result["ratio"] - result["steps_per_second"] / result["bare_steps_per_second"]) < 1e-6  # one turn
    assert 0 < result["outside_simulation"] < 1
