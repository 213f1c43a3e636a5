"""The option --behaviour of runs: what each kind needs, what is refused, and that runs of each are resumed."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs import checkpoint, evolution, file, loop
from dvdrl.runs.options import Compared
from dvdrl.runs.presets import resolve
from dvdrl.tasks.landmarks import Landmarks
from dvdrl.tasks.registry import TASKS, register
from dvdrl.tasks.task import Reward
from stopped_runs import assert_same_run, numbers

TINY: dict[str, Any] = {
    "task": "Landmarks-v0",
    "task_options": {"horizon": 5},
    "population": 3,
    "sensings": 2,
    "hidden": (4,),
    "num_states": 4,
    "iterations": 3,
}
# Of nobody's own module: numpy's functions of observations are functions of observations.
KINDS: list[Compared] = [
    dvdrl.NSRES(behaviour="visits", **TINY),
    dvdrl.NSRES(behaviour="measures", measures=("reward_mode_0", "last:reward_mode_1"), **TINY),
    dvdrl.DvDES(behaviour="visits", **TINY),
    dvdrl.DvDES(behaviour="measures", measures=("last:numpy:positive",), **TINY),
    dvdrl.NicheES(behaviour="actions", **TINY),
    dvdrl.NicheES(behaviour="measures", measures=("numpy:tanh", "last:reward_mode_1"), **TINY),
]


def directory_of(trained: Any) -> Path:
    assert isinstance(trained, dvdrl.Run)
    return trained.directory


@pytest.mark.parametrize("options", KINDS, ids=lambda options: f"{options.algorithm}-{options.behaviour}")
def test_each_behaviour_trains_in_its_own_way_and_is_resumed_to_the_bit(options: Compared, tmp_path: Path) -> None:
    whole = directory_of(loop.train(replace(options, out=tmp_path / "whole")))
    stopped = directory_of(loop.train(replace(options, iterations=1, out=tmp_path / "stopped")))
    config = stopped / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"iterations": 3}))
    loop.resume(stopped)
    assert_same_run(stopped, whole)
    default = replace(options, behaviour=type(options)(task="x").behaviour, measures=(), out=tmp_path / "default")
    usual = directory_of(loop.train(default))
    if isinstance(options, dvdrl.NicheES):  # by then members only follow their returns; what is known of them differs
        like = evolution.make_trainer(resolve(options), 1).like()
        coordinates = checkpoint.load(whole / "checkpoints", like, 3)[0].niches.coordinates.noise
        assert coordinates.shape == ({"actions": 4 * 2, "measures": 4 + 1}[options.behaviour],)
        assert np.all(coordinates > 0)
    else:
        assert numbers(usual)[0]["member_returns"] == numbers(whole)[0]["member_returns"]
        assert numbers(usual)[0]["distances"] != numbers(whole)[0]["distances"]
        assert numbers(usual)[2]["member_returns"] != numbers(whole)[2]["member_returns"]


@dataclass(frozen=True, kw_only=True)
class Reported(Landmarks):
    """Landmarks whose parts of the reward are what was observed before the step, by which it says to compare."""

    id: ClassVar[str] = "Reported-v0"

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(f"seen_{i}" for i in range(4))

    def begin(self, draws: Any, data: Any) -> Any:  # noqa: ARG002
        return self.observe(data)

    def reward(self, carry: Any, action: Any, data: Any) -> Reward:
        total, parts, _ = super().reward(carry, action, data)
        return Reward(total, {**parts, **{f"seen_{i}": carry[:, i] for i in range(4)}}, self.observe(data))


def test_measuring_what_is_observed_is_comparing_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvdrl.tasks.registry.TASKS", dict(TASKS))
    register(Reported)
    options = dvdrl.NicheES(**{**TINY, "task": "Reported-v0", "sensings": 4, "iterations": 20})
    visits = directory_of(loop.train(replace(options, out=tmp_path / "visits")))
    # No measures are named: the task's own count.
    measured = directory_of(loop.train(replace(options, behaviour="measures", out=tmp_path / "measures")))
    for one, other in zip(numbers(visits), numbers(measured), strict=True):
        # Members follow their returns so far. The means are sums in another order: shares are equal but for rounding.
        assert one["member_returns"] == other["member_returns"]
        np.testing.assert_allclose(one["shares"], other["shares"], rtol=1e-3, atol=1e-3)
        assert one["renewed"] == other["renewed"]
    assert 0 < min(numbers(visits)[-1]["shares"]) < 1  # so there is something to compare


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"task": "Pusher-v5", "task_options": {}},
            "measures: Pusher-v5 has none of its own; --measures names those to compare by",
        ),
        ({"task": "Pendulum-v1", "task_options": {}}, "measures: Pendulum-v1 has none of its own; "),
        ({"measures": ("speed",)}, "measures: expected speed in the info of every step, which has reward_mode_0, "),
        (
            {"task": "Pendulum-v1", "task_options": {}, "measures": ("speed",)},
            "measures: expected speed in the info of every step, which has nothing",
        ),
        ({"measures": ("no_such_module:f",)}, "no_such_module:f: No module named 'no_such_module'; the part before"),
        ({"measures": ("numpy:nothing",)}, "measures: numpy has no function nothing"),
        ({"measures": ("numpy:pi",)}, "measures: numpy has no function pi"),
        ({"measures": ("numpy:sum",)}, "measures: numpy:sum: expected a row for each of 2 observations"),
        ({"measures": ("numpy:log",)}, "measures: numpy:log"),
        ({"measures": ("a b:c",)}, "measures: expected NAME, last:NAME, module:function or last:module:function, got"),
        ({"measures": ("last:",)}, "measures: expected NAME, last:NAME, module:function or .*, got 'last:'"),
        ({"measures": (":f",)}, "measures: expected NAME, last:NAME, module:function or .*, got ':f'"),
        ({"measures": ("os:abort",)}, "measures: expected a function of your own, got 'os:abort' of Python's library"),
        (
            {"measures": ("last:os.path:exists",)},
            "measures: expected a function of your own, got 'last:os.path:exists'",
        ),
        ({"measures": "speed"}, "measures: expected a tuple of str, got 'speed'"),
        (
            {"behaviour": "visits", "measures": ("x",)},
            "measures: only for --behaviour measures, and behaviour is visits",
        ),
        ({"behaviour": "looks"}, "behaviour: expected one of actions, visits, measures, got 'looks'"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*encountered in log:RuntimeWarning")
def test_what_cannot_be_measured_is_one_line_before_anything_is_written(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    given = {**TINY, "behaviour": "measures", "out": tmp_path / "run", **options}
    with pytest.raises(DvdrlError, match=f"^{said}"):
        loop.train(dvdrl.DvDES(**given))
    assert not (tmp_path / "run").exists()


def test_a_measure_that_is_not_finite_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 0 in the first step, which is looked at before the run, and not a number in the first episodes.
    (tmp_path / "somebodys_measures.py").write_text(
        "import numpy as np\n"
        "calls = []\n"
        "def later(obs):\n"
        "    calls.append(1)\n"
        "    return np.full((len(obs), 2), 0.0 if len(calls) < 7 else np.nan)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = dvdrl.NicheES(behaviour="measures", measures=("somebodys_measures:later",), **TINY)
    said = "measure somebodys_measures:later of member 0 not finite in iteration 2, seed 0; the last good checkpoint"
    with pytest.raises(DvdrlError, match=said):  # one call to look, then five steps each
        loop.train(replace(options, out=tmp_path / "run"))
    assert len(dvdrl.Run(tmp_path / "run").metrics) == 1


def test_a_file_cannot_have_a_module_of_a_measure_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_measures.py").write_text("raise SystemExit('its code ran')")
    monkeypatch.syspath_prepend(tmp_path)
    run = directory_of(loop.train(dvdrl.DvDES(**{**TINY, "iterations": 1}, out=tmp_path / "run")))
    values = json.loads((run / "config.json").read_text())
    of_measures = {"behaviour": "measures", "measures": ["last:evil_measures:f"], "iterations": 2}
    (run / "config.json").write_text(json.dumps(values | of_measures))
    # Somebody who wants to have code run would change the record too.
    record = json.loads((run / "record.json").read_text())
    (run / "record.json").write_text(json.dumps(record | {"options": record["options"] | of_measures}))
    said = "last:evil_measures:f: the file names the module evil_measures, whose code would run; if you trust it,"
    for reads in (dvdrl.resume, dvdrl.evaluate):
        with pytest.raises(DvdrlError, match=said):
            reads(run)
    # Modules of Python are imported already, and are refused for what they can do.
    (run / "config.json").write_text(json.dumps(values | of_measures | {"measures": ["os:abort"]}))
    with pytest.raises(DvdrlError, match=r"config\.json: measures: expected a function of your own, got 'os:abort'"):
        dvdrl.resume(run)


def test_a_module_of_a_measure_is_imported_when_the_user_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trusted_measures.py").write_text("def place(obs):\n    return obs[:, :2]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    from dvdrl import cli

    def command(text: str) -> None:
        monkeypatch.setattr("sys.argv", ["dvdrl", *text.split()])
        cli.main()

    tiny = "--task Landmarks-v0 --task-options horizon 5 --population 2 --sensings 2 --hidden 4 --num-states 3"
    command(
        f"train niche-es {tiny} --iterations 1 --behaviour measures --measures last:trusted_measures:place --out run"
    )
    options = file.from_json(tmp_path / "run" / "config.json")
    assert options.modules() == {"last:trusted_measures:place": "trusted_measures"}
    monkeypatch.delitem(sys.modules, "trusted_measures")
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"iterations": 2}))
    with pytest.raises(SystemExit) as refused:
        command("resume run")
    assert refused.value.code == 2
    command("resume run --module trusted_measures")
    assert len(dvdrl.Run(tmp_path / "run").metrics) == 2
