"""config.json: what is written is read again, of older formats too, and anything else is refused with a reason."""

import json
from pathlib import Path

import pytest

from dvdrl.errors import DvdrlError
from dvdrl.runs import file
from dvdrl.runs.options import ALGORITHMS, DvDES, DvDTD3
from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_a_file_repeats_the_config(kind: type[Training], tmp_path: Path) -> None:
    resolved = resolve(kind(task="Point-v0", task_options={"wall_half_width": 4.0, "horizon": 9}, seed=3))
    (tmp_path / "config.json").write_text(file.to_json(resolved))
    assert file.from_json(tmp_path / "config.json") == resolved
    assert isinstance(file.from_json(tmp_path / "config.json").task_options["horizon"], int)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"algorithm": "es"}', '{"algorithm": "es", "task": "x", "nothing": 1}', "[]"]
)
def test_a_file_that_is_no_config_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DvdrlError, match=r"config\.json"):
        file.from_json(tmp_path / "config.json")


# As the versions of those formats wrote them.
FORMAT_1 = """{"algorithm": "dvd-es", "task": "Point-v0", "task_options": {}, "preset": "paper", "population": 5,
"seed": 0, "iterations": 50, "steps": null, "keep_checkpoints": 3, "executor": "local", "ray_address": "10.0.0.1:6379",
"wandb": false, "sensings": 100, "sigma": 0.1, "learning_rate": 0.05, "hidden": [16, 16], "step_rule": "plain",
"orthogonal": false, "state_filter": true, "starts": "same", "num_states": 20, "state_pool": 100,
"state_rule": "uniform", "state_interval": 20, "kernel": "squared-exponential", "length_scale": 0.7071067811865476,
"normalization": "across-members", "controller": "thompson", "arms": [0.0, 0.5], "objective": "det"}"""
FORMAT_2 = """{"format": 2, "algorithm": "dvd-td3", "task": "Hopper-v5", "task_options": {}, "population": 5, "seed": 0,
"iterations": 200, "steps": 1000000, "keep_checkpoints": 3, "wandb": false, "hidden": [256, 256],
"learning_rate": 0.0003, "num_states": null, "kernel": "squared-exponential", "length_scale": 0.7071067811865476,
"normalization": "none", "iteration_steps": 5000, "evaluation_episodes": 3, "batch_size": 256, "buffer_size": 1000000,
"random_steps": 25000, "discount": 0.99, "target_rate": 0.005, "target_noise": 0.2, "target_noise_clip": 0.5,
"policy_delay": 2, "exploration_noise": 0.1, "bootstrapping": "collector", "shrinkage": 0.01, "controller": "thompson",
"exploration_rounds": 30, "arms": [0.0, 0.5]}"""
FORMAT_3 = """{"format": 3, "algorithm": "dvd-es", "task": "Point-v0", "task_options": {}, "population": 5, "seed": 0,
"iterations": 50, "steps": null, "keep_checkpoints": 3, "wandb": false, "hidden": [16, 16], "learning_rate": 0.05,
"num_states": 20, "kernel": "squared-exponential", "length_scale": 0.7071067811865476, "normalization": "none",
"preset": "paper", "executor": "local", "ray_time_limit": 1800.0, "sensings": 100, "sigma": 0.1, "step_rule": "plain",
"orthogonal": false, "state_filter": true, "starts": "same", "state_pool": 100, "state_rule": "uniform",
"state_interval": 20, "behaviour": "actions", "measures": [], "controller": "thompson", "patience": 4,
"arms": [0.0, 0.5], "objective": "det", "members": "all"}"""


@pytest.mark.parametrize(
    ("text", "options"),
    [  # the preset paper is as it was then, but for behaviours in the first format: standardised
        (FORMAT_1, DvDES(task="Point-v0", preset="paper", normalization="across-members")),
        (FORMAT_2, DvDTD3(task="Hopper-v5")),
        (FORMAT_3, DvDES(task="Point-v0", preset="paper")),
    ],
)
def test_a_file_of_each_format_loads(text: str, options: Training, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    assert file.from_json(tmp_path / "config.json") == resolve(options)


# The options that have been added to this format since. A file without them has their defaults.
LATER = """{"wrappers": [], "perturb": [], "until": null, "until_stalled": null, "from_members": [],
"from_digest": null, "keep_every": null, "wandb_project": "dvdrl", "choices": "greedy", "evaluation_interval": 10,
"evaluation_episodes": 5}"""


def test_the_keys_are_those_of_the_format() -> None:
    written = json.loads(file.to_json(resolve(DvDES(task="Point-v0", preset="paper"))))
    later = json.loads(LATER)
    assert {name: written[name] for name in later} == later
    assert {name: value for name, value in written.items() if name not in later} == json.loads(FORMAT_3)
