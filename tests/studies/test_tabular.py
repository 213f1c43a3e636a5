"""The four-state MDP: what section 3.3 of the paper says of it, by enumeration."""

import csv
import json
import math

from dvdrl.studies.tabular import COUNTEREXAMPLE, OPTIMAL, reproduce, score_populations
from dvdrl.tasks.tabular import policies, rollout


def test_the_mdp_has_the_papers_optimal_behaviours():
    episodes = [rollout(policy) for policy in policies()]
    assert len(episodes) == 3**4
    assert {e.behavior for e in episodes if e.reward == 1.0} == set(OPTIMAL)
    # Three actions lead from each of s1, s2, s3 to three of the terminals: nine behaviours.
    assert len({e.behavior for e in episodes}) == 9


def test_the_state_that_is_reached_decides_the_second_action():
    # Each state's action is its own: only that of the state reached may show up.
    assert rollout((-1, 1, 0, -1)).behavior == (-1, 1)  # left, to s1
    assert rollout((0, 1, 0, -1)).behavior == (0, 0)  # down, to s2
    assert rollout((1, 1, 0, -1)).behavior == (1, -1)  # right, to s3


def test_the_determinant_is_positive_for_the_optimal_population_alone():
    populations = score_populations()
    assert len(populations) == math.comb(5 + 5 - 1, 5)  # multisets of five out of five behaviours
    assert [p.behaviors for p in populations if p.determinant > 0] == [OPTIMAL]


def test_the_mean_distance_prefers_the_counterexample():
    populations = {p.behaviors: p for p in score_populations()}
    # d = (1/5) * sum over pairs. Corners of the square: four sides of 2, two diagonals of sqrt(8). The centre adds
    # four half diagonals of sqrt(2); a corner repeated adds 2 + 2 + sqrt(8) + 0 instead.
    corners = 4 * 2 + 2 * math.sqrt(8)
    assert math.isclose(populations[OPTIMAL].distance, (corners + 4 * math.sqrt(2)) / 5, rel_tol=1e-12)
    assert math.isclose(populations[COUNTEREXAMPLE].distance, (corners + 4 + math.sqrt(8)) / 5, rel_tol=1e-12)
    assert populations[COUNTEREXAMPLE].distance > populations[OPTIMAL].distance
    assert populations[COUNTEREXAMPLE].distance >= max(p.distance for p in populations.values()) - 1e-12


def test_reproduce_saves_what_it_prints(tmp_path, capsys):
    reproduce(tmp_path / "out")
    printed = capsys.readouterr().out
    assert "1 of 126 populations" in printed
    assert "4 of 126, each with a repeated member" in printed  # one for each corner that can be repeated
    rows = list(csv.DictReader((tmp_path / "out" / "populations.csv").read_text().splitlines()))
    assert len(rows) == 126
    assert sum(float(row["determinant"]) > 0 for row in rows) == 1
    assert json.loads((tmp_path / "out" / "record.json").read_text())["versions"]["dvdrl"]
    assert (tmp_path / "out" / "tabular.png").read_bytes()[:4] == b"\x89PNG"
