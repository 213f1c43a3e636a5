"""Studies: their numbers from runs that are made up, and all of them at their smallest."""

import csv
import dataclasses
import itertools
import json
import shutil
from types import SimpleNamespace
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from dvdrl.cli.studies import Reproduce
from dvdrl.errors import DvdrlError
from dvdrl.off_policy import make_policy
from dvdrl.off_policy.replay import empty
from dvdrl.runs.directory import Run
from dvdrl.runs.learners import make_learner
from dvdrl.runs.off_policy_options import OffPolicyTraining
from dvdrl.runs.options import ETD3
from dvdrl.runs.presets import resolve
from dvdrl.studies import cells, costs, figures, measures, study, tables
from dvdrl.studies.adaptation import ADAPTATION
from dvdrl.studies.experiments import EXPERIMENTS, MULTIMODAL, POINT, TD3_BASE
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import STANDARD, Measure, Outcome, both_ways, passes, solves
from dvdrl.studies.names import ExperimentName
from dvdrl.studies.off_policy import save_populations


def made_up(variant: str, finals: list[float], setting: str = "half width 2", **measures) -> list[Result]:
    """Runs of which the best return is 5 above the last."""
    return [
        Result(setting, variant, "local", seed, 1000, 1.0, {"best": final + 5, "final": final, **measures})
        for seed, final in enumerate(finals)
    ]


def read(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def outcome(best: list[float], setting: str = "half width 2", lines=None) -> Outcome:
    """A run with these returns after 1000, 2000, ... rollouts."""
    lines = lines or [{"best_return": each} for each in best]
    return Outcome(setting, Run("nowhere"), 1000 * np.arange(1, len(lines) + 1), lines, episodes=5)


def test_what_a_run_measures_by_hand():
    measures = passes("solved", {"half width 2": -600.0})
    solved = outcome([-900.0, -599.0, -610.0])
    assert {name: each.of(solved) for name, each in (STANDARD | measures).items()} == {
        "best": -599.0, "final": -610.0, "solved": True, "solved_after": 2000,
    }  # fmt: skip
    failed = outcome([-900.0, -600.0])  # above is not at
    assert [each.of(failed) for each in measures.values()] == [False, None]
    elsewhere = outcome([0.0], setting="half width 3")  # a setting without a level
    assert [each.of(elsewhere) for each in measures.values()] == [None, None]


def test_modes_by_hand(monkeypatch):
    # Member 0 runs forward, 1 backward, 2 slides forward by 3 and backward by 3: neither; 3 is better at forward.
    last = {"mode_forward": [1500.0, -9.0, -3.0, 20.0], "mode_backward": [-1500.0, 7.0, -3.0, 10.0], "log_det": -0.5}
    run = outcome([], "HalfCheetah-FwdBwd-v0", [last])
    evaluated = {"mode_returns": {"forward": [1200.0, -1.0], "backward": [5.0, 900.0]}}
    monkeypatch.setattr("dvdrl.studies.measures.evaluate", lambda directory, episodes: evaluated)
    measures = both_ways({"HalfCheetah-FwdBwd-v0": 1000.0})
    assert {name: each.of(run) for name, each in measures.items()} == {
        "both_modes": False, "one_mode": True, "forward": 1200.0, "backward": 900.0,
        "forward_runners": 2, "backward_runners": 1, "log_det": -0.5,
    }  # fmt: skip


def test_a_task_is_solved_by_a_mean_at_its_level(monkeypatch):
    evaluated = {"member_returns": [474.9, 475.0, 500.0]}
    monkeypatch.setattr("dvdrl.studies.measures.evaluate", lambda directory, episodes: evaluated)

    def found(level):
        return {name: each.of(outcome([500.0])) for name, each in solves({"half width 2": level}).items()}

    assert found(475.0) == {"solved": True, "members_that_solve": 2}
    assert found(501.0) == {"solved": False, "members_that_solve": 0}


def test_members_are_evaluated_once_and_only_if_a_measure_asks(monkeypatch):
    calls = []
    monkeypatch.setattr("dvdrl.studies.measures.evaluate", lambda *given: calls.append(given) or {"best_return": 3.0})
    run = outcome([1.0])
    assert STANDARD["best"].of(run) == 1.0
    assert calls == []
    assert run.evaluated["best_return"] + run.evaluated["best_return"] == 6.0
    assert len(calls) == 1


def test_summary_by_hand():
    runs = [
        *(made_up("es", [final], solved=1, solved_after=after) for final, after in ((-530.0, 2000), (-550.0, 3000))),
        made_up("es", [-602.0], solved=1, solved_after=1000),
        made_up("es", [-770.0], solved=0),
    ]
    (row,) = tables.summarize([run for (run,) in runs], POINT)
    assert (row["solved"], row["seeds"], row["solved_share"]) == (3, 4, 0.75)
    assert (row["solved_after_first"], row["solved_after_last"]) == (1000, 3000)
    assert row["best"] == -571.0  # of -525, -545, -597 and -765
    assert row["final"] == -576.0
    assert "past_the_wall" not in row  # which none of these runs has


@pytest.mark.parametrize(
    ("summary", "columns", "shown"),
    [
        # Of three values a bootstrap draws one alone, three times, in 1 of 27 samples: 4 %, more than the 2.5 % that an
        # interval leaves out at each end. So it goes from the least to the greatest.
        (measures.MEDIAN, {"n": 2.0, "n_low": 1.0, "n_high": 6.0}, "2.00 [1.00, 6.00]"),
        (measures.INTERQUARTILE_MEAN, {"n_iqm": 3.0, "n_iqm_low": 1.0, "n_iqm_high": 6.0}, None),
        (measures.MEAN, {"n_mean": 3.0}, "3.00"),
        (measures.FIRST_AND_LAST, {"n_first": 1, "n_last": 6}, "1 to 6"),
        # Wilson's interval for 3 of 3: from 3 / (3 + 1.96^2) to 1.
        (measures.SHARE, {"n": 3, "n_share": 1.0, "n_share_low": 0.439, "n_share_high": 1.0}, "3"),
    ],
)
def test_summaries_by_hand(summary, columns, shown):
    assert summary.columns("n", [1, 2, 6]) == columns
    assert bool(summary.title) == (shown is not None)
    if shown:
        assert summary.show("n", columns) == shown


def test_an_experiment_declares_its_own_measure():
    experiment = dataclasses.replace(
        POINT, measures={"goals_found": Measure(lambda outcome: len(outcome.lines), (measures.MEAN,))}
    )
    results = [*made_up("es", [0.0], goals_found=2), *made_up("es", [0.0], goals_found=3), *made_up("dvd-es", [0.0])]
    rows = tables.summarize(results, experiment)
    assert [row.get("goals_found_mean") for row in rows] == [2.5, None]
    assert tables.readable(rows, experiment)["mean goals found"] == ["2.50", ""]


def test_the_subject_is_compared_with_all_others():
    results = [*made_up("dvd-es", [3.0, 4.0]), *made_up("es", [1.0, 2.0]), *made_up("nsr-es", [3.0, 4.0])]
    rows = tables.comparisons(results, POINT)
    assert [(row["variant"], row["against"]) for row in rows] == [("dvd-es", "es"), ("dvd-es", "nsr-es")]
    assert [row["best_improvement"] for row in rows] == [1.0, 0.5]


def test_best_and_last_returns_are_compared_apart():
    ahead = [*made_up("es", [1.0]), *made_up("es", [2.0]), *made_up("es", [5.0])]
    ahead = [dataclasses.replace(r, measures={**r.measures, "best": 100.0 + seed}) for seed, r in enumerate(ahead)]
    (row,) = tables.comparisons([*made_up("dvd-es", [3.0, 4.0, 6.0]), *ahead], POINT)
    assert row["best_welch_t"] < 0 < row["final_welch_t"]
    expected = scipy.stats.ttest_ind([3.0, 4.0, 6.0], [1.0, 2.0, 5.0], equal_var=False)
    assert (row["final_welch_t"], row["final_welch_p"]) == (round(expected.statistic, 3), round(expected.pvalue, 3))


def test_shares_are_compared_where_there_are_any():
    # Solved: four of four and none of four. Of the 70 ways to deal four successes to eight runs two are so uneven, so
    # p = 2 / 70.
    results = [*made_up("dvd-es", [-530.0] * 4, solved=1), *made_up("es", [-700.0] * 4, solved=0)]
    (row,) = tables.comparisons(results, POINT)
    assert row["solved_fisher_p"] == round(2 / 70, 3)
    assert "past_the_wall_fisher_p" not in row


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_cell_follows_the_default_preset(name):
    # The default may change; the paper's numbers may not. So every experiment names its preset where there is one.
    experiment = EXPERIMENTS[name]
    for setting, variant in itertools.product(experiment.settings, experiment.variants):
        kind, options = experiment.variants[variant]
        if "preset" in {each.name for each in dataclasses.fields(kind)}:
            assert "preset" in {**experiment.settings[setting], **options}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_of_every_scale_can_be_trained_and_none_has_more_rollouts(name):
    experiment = EXPERIMENTS[name]
    assert experiment.subject in experiment.variants
    for scale, size in experiment.scales.items():
        for setting in size.length:
            configs = [resolve(experiment.config(setting, variant, scale)) for variant in experiment.variants]
            spent = {
                config.steps if isinstance(config, OffPolicyTraining)
                else config.iterations * 2 * config.sensings * (config.algorithm == "nsr-es" or config.population)
                for config in configs
            }  # fmt: skip
            # For their gradients; NSR-ES looks at its unperturbed members more often. Figure 10 varies M.
            assert len(spent) == (2 if name == "population" else 1)
            assert len({config.task for config in configs}) == 1


def test_the_command_line_names_every_experiment():
    by_other_means = {"tabular", "theory", "modes-qd"}
    assert {*get_args(ExperimentName)} == EXPERIMENTS.keys() | by_other_means


def test_every_variant_has_a_line_of_its_own():
    assert max(len(experiment.variants) for experiment in EXPERIMENTS.values()) <= len(set(figures._LINES))


def test_costs_by_hand():
    # Point at smoke scale: two seeds, M = 2, two sensings, 50 steps. Seven variants make 2 iterations of 2 + 8
    # rollouts; NSR-ES 4 of 2 + 4.
    assert costs.env_steps(POINT, "smoke") == {"Point-v0": 2 * 50 * (7 * 2 * 10 + 4 * 6)}
    # TD3 alone at smoke scale: two seeds of 40 steps in two iterations, each of which ends with an episode of 1,000.
    assert costs.env_steps(TD3_BASE, "smoke") == {"HalfCheetah-v5": 2 * (40 + 2 * 1000)}
    # Runs that stop at ten million steps: five seeds of four variants with five members, in whose iterations there are
    # 55 episodes of 1,000 steps, and of a single agent with 51.
    assert set(costs.env_steps(ADAPTATION, "medium").values()) == {5 * (4 * 182 * 55_000 + 197 * 51_000)}


@pytest.mark.parametrize("shapes", [(348, 17), (17, 6)])
def test_the_work_of_an_update_is_what_the_compiler_counts(shapes):
    # Two members with a simulation each: a call is one period of two updates, of which the compiler counts everything,
    # an addition and a multiplication apart.
    config = resolve(ETD3(task="Humanoid-v5", population=2, buffer_size=1000))
    learner = make_learner(config, make_policy(*shapes, config.hidden))
    state = jax.vmap(learner.init)(jax.random.split(jax.random.key(0), 1))
    step = jnp.zeros((1, 2, learner.row_size + 1 + shapes[0]))
    memory = empty((1, learner.capacity), learner.row_size)
    given = state, memory, learner.no_statistics(1), [step], jnp.zeros((1, 2))
    counted = learner.update.lower(*given).cost_analysis()["flops"] / 4
    assert counted == pytest.approx(config.multiply_adds(*shapes) / config.steps, rel=0.2)


def test_a_scale_that_an_experiment_does_not_have_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DvdrlError, match="scale: point has smoke, small, paper; got medium"):
        study.reproduce("point", tmp_path / "out", scale="medium", seeds=None, executor="local")
    assert not (tmp_path / "out").exists()


def test_seeds_that_are_none_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DvdrlError, match="seeds: expected the first and the last"):
        study.reproduce("point", tmp_path / "out", scale="smoke", seeds="3..", executor="local")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="the device engine may work here")
def test_an_executor_that_is_not_there_is_said_once_and_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DvdrlError, match=r"^the device engine needs"):
        study.reproduce("point", tmp_path / "out", scale="smoke", seeds=None, executor="device")
    assert not list(tmp_path.iterdir())


def test_measures_with_curves_have_panels_of_their_own(tmp_path, monkeypatch):
    (setting,) = MULTIMODAL.scales["small"].length
    (result,) = made_up("es", [3.0], setting)
    curves = {name: np.asarray([1.0, 2.0, 3.0]) for name in ("x", "best", "lambda", "forward", "backward")}
    drawn = {}
    monkeypatch.setattr(figures, "curves", lambda panels, *, x_label, marks: drawn.update(panels=panels, marks=marks))
    monkeypatch.setattr(figures, "save", lambda figure, path: None)
    figures.save_study(tmp_path, "multimodal", [dataclasses.replace(result, curves=curves)], MULTIMODAL)
    panels = [f"{setting}, forward", f"{setting}, backward"]
    assert list(drawn["panels"]) == panels
    assert [drawn["marks"][panel] for panel in panels] == [[1000.0], [1000.0]]  # above it a mode counts as learned


def test_the_legend_names_lines_that_only_some_panels_have():
    runs = [(np.asarray([1.0, 2.0]), np.asarray([3.0, 4.0]))]
    figure = figures.curves(
        {"one": {"es": runs, "dvd-es": runs}, "another": {"es": runs}}, x_label="rollouts", marks={}
    )
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["es", "dvd-es"]
    figures.pyplot().close(figure)


def test_the_details_have_a_row_for_every_setting():
    values = {"Hopper-v5": {"td3": [1.0, 2.0], "e-td3": [3.0]}, "HalfCheetah-v5": {"td3": [4.0]}}
    x = np.asarray([10, 20])
    lambdas = {setting: dict.fromkeys(row, (x, x / 40)) for setting, row in values.items()}
    figure = figures.details(values, values, lambdas, x_label="environment steps")
    best = [axis for axis in figure.axes if axis.get_title().endswith("best return")]
    assert [[label.get_text() for label in axis.get_yticklabels()] for axis in best] == [["td3", "e-td3"], ["td3"]]
    figures.pyplot().close(figure)


def test_independent_agents_of_three_seeds_in_a_row_are_one_population(tmp_path):
    # By seed, forward and backward; a mode is found above 1,000. The last seed has no others beside it.
    returns = [(2000.0, 0.0), (10.0, 20.0), (30.0, 1500.0), (999.0, 1.0), (5.0, 1001.0), (0.0, 0.0), (5000.0, 5000.0)]
    (result,) = made_up("xqc", [3.0], "two-mode HalfCheetah")
    results = [
        dataclasses.replace(result, seed=seed, measures={"forward": forward, "backward": backward})
        for seed, (forward, backward) in enumerate(returns)
    ]
    save_populations(tmp_path, "off-policy-modes-alone", results[::-1])
    rows = read(tmp_path / "populations.csv")
    assert [(row["first_seed"], row["forward"], row["backward"], row["modes_found"]) for row in rows] == [
        ("0", "2000.0", "1500.0", "2"),
        ("3", "999.0", "1001.0", "1"),
    ]


# Other tests run `point`, and train the learners of the last three, which take 30 seconds to compile.
@pytest.mark.parametrize(
    "name", sorted(EXPERIMENTS.keys() - {"point", "off-policy-base", "off-policy-modes", "off-policy-modes-alone"})
)
def test_every_experiment_runs_at_its_smallest(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = EXPERIMENTS[name]
    # The subject shows that it runs; every variant is resolved in another test.
    variants = {experiment.subject: experiment.variants[experiment.subject]}
    monkeypatch.setitem(EXPERIMENTS, name, dataclasses.replace(experiment, variants=variants))
    Reproduce(experiment=name, scale="smoke", seeds="0..0")()
    out = tmp_path / "results" / name
    rows = read(out / "summary.csv")
    assert {row["variant"] for row in rows} == set(variants)
    assert all(np.isfinite(float(row["best"])) for row in rows)
    assert (out / f"{name}.png").stat().st_size > 1000
    kind, _ = variants[experiment.subject]
    assert (out / f"{name}-details.png").exists() == issubclass(kind, OffPolicyTraining)  # figure 7's other panels
    assert json.loads((out / "record.json").read_text())["trained_with"][0]["mujoco"]

    if "reward_survive" in rows[0]:  # one seed, so medians are its values: the parts make up the return
        parts = sum(float(rows[0][f"reward_{part}"]) for part in ("survive", "forward", "ctrl", "contact"))
        assert parts == pytest.approx(float(rows[0]["gymnasium_return"]), abs=0.01)
        upright = (
            float(rows[0]["gymnasium_steps"]) - 1
        )  # these members fall, and the step in which they do pays nothing
        assert float(rows[0]["reward_survive"]) == pytest.approx(5 * upright, abs=0.01)

    # Modes, TD3's details, whatever an experiment shows: without the runs, from what was kept, it is the same.
    made = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".csv", ".png")}
    shutil.rmtree("runs")
    Reproduce(experiment=name, scale="smoke", seeds="0..0")()
    assert {name: (out / name).read_bytes() for name in made} == made
    assert not (tmp_path / "runs").exists()  # nothing was trained


def test_a_study_goes_on_where_it_was_and_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    two = dataclasses.replace(POINT, variants={name: POINT.variants[name] for name in ("nsr-es", "dvd-es")})
    monkeypatch.setitem(EXPERIMENTS, "point", two)
    options = {"scale": "smoke", "seeds": "0..1", "executor": "local"}
    study.reproduce("point", tmp_path / "out", **options)
    rows = read(tmp_path / "out" / "runs.csv")
    assert [(row["variant"], row["seed"]) for row in rows] == [
        ("nsr-es", "0"), ("nsr-es", "1"), ("dvd-es", "0"), ("dvd-es", "1"),
    ]  # fmt: skip
    # Two members, two sensings, both signs: NSR-ES 2 + 4 rollouts of 50 steps in each of 2 x 2 iterations; DvD-ES
    # 2 + 8 in each of 2.
    assert [int(row["env_steps"]) for row in rows] == [1200, 1200, 1000, 1000]

    def saved():
        return [read(tmp_path / "out" / f"{name}.csv") for name in ("summary", "comparisons")]

    first = saved()
    capsys.readouterr()
    study.reproduce("point", tmp_path / "out", **options)  # all runs are finished
    assert saved() == first
    assert "1/2" not in capsys.readouterr().err  # nothing was trained again

    cell = tmp_path / "runs" / "point" / "smoke-0..1-local" / "half-width-2" / "dvd-es"
    shutil.rmtree(cell / "seed-1")  # as if killed before this seed had begun
    study.reproduce("point", tmp_path / "out", **options)
    assert saved() == first

    smoke = two.scales["smoke"]
    larger = dataclasses.replace(smoke, overrides={**smoke.overrides, "sigma": 0.2})
    monkeypatch.setitem(EXPERIMENTS, "point", dataclasses.replace(two, scales={"smoke": larger}))
    with pytest.raises(DvdrlError, match=r"seed-0 was trained with other options: sigma 0\.1, now 0\.2; move it away"):
        study.reproduce("point", tmp_path / "out", **options)
    monkeypatch.setitem(EXPERIMENTS, "point", two)

    (cell / "seed-0" / "config.json").write_text("{")
    with pytest.raises(DvdrlError, match=r"not in these results: half width 2, dvd-es: .*config\.json"):
        study.reproduce("point", tmp_path / "out", **options)
    assert {row["variant"] for row in read(tmp_path / "out" / "runs.csv")} == {"nsr-es"}
    assert len(json.loads((tmp_path / "out" / "record.json").read_text())["missing"]) == 1


def test_interrupted_a_study_reports_what_is_finished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    three = {name: POINT.variants[name] for name in ("es", "dvd-es", "dvd-es-authors")}
    monkeypatch.setitem(EXPERIMENTS, "point", dataclasses.replace(POINT, variants=three))
    options = {"scale": "smoke", "seeds": "0..0", "executor": "local"}
    cells.Cell("point", "half width 2", "dvd-es", *options.values()).run()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "train", interrupted)
    monkeypatch.setattr(cells, "_run_apart", interrupted)
    for processes in (1, 2):
        with pytest.raises(DvdrlError, match=r"not in these results: half width 2, es: interrupted .*authors: interr"):
            study.reproduce("point", tmp_path / "out", **options, processes=processes)
        assert [row["variant"] for row in read(tmp_path / "out" / "runs.csv")] == ["dvd-es"]


def test_cells_run_in_processes_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "point", dataclasses.replace(POINT, variants={"dvd-es": POINT.variants["dvd-es"]}))
    setting = "half width 2"
    study.reproduce("point", tmp_path, scale="smoke", seeds="0..0", executor="local", setting=setting, processes=2)
    (row,) = read(tmp_path / "runs.csv")
    assert int(row["env_steps"]) == 1000
    (log,) = tmp_path.glob("runs/point/*/*/*.log")
    assert "2/2" in log.read_text()  # what the training showed


def test_processes_share_the_memory_of_a_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = []
    done = SimpleNamespace(wait=lambda: 0)
    monkeypatch.setattr(cells.subprocess, "Popen", lambda *_, env, **__: given.append(env) or done)
    cell = cells.Cell("point", "half width 2", "es", "smoke", "0..0", "local")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    cells._run_apart(cell, [])
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")  # what a user has said counts
    cells._run_apart(cell, [])
    assert [env["XLA_PYTHON_CLIENT_PREALLOCATE"] for env in given] == ["false", "true"]


def test_a_setting_that_the_scale_does_not_have_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DvdrlError, match=r"setting: point has half width 2 at the scale smoke; got 'half width 9'"):
        Reproduce(experiment="point", scale="smoke", setting="half width 9")()
    with pytest.raises(DvdrlError, match=r"setting: theory has none; got 'half width 2'"):
        Reproduce(experiment="theory", setting="half width 2")()
    assert not list(tmp_path.iterdir())


def test_a_cell_that_fails_in_its_process_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = cells._run_apart(cells.Cell("point", "half width 2", "es", "smoke", "9..0", "local"), [])
    assert "seeds: expected the first and the last" in str(error)


def test_errors_come_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options in ({}, {"experiment": "point", "processes": 0}, {"experiment": "humanoid", "executor": "device"}):
        with pytest.raises(DvdrlError):
            Reproduce(**options)()
    assert not list(tmp_path.iterdir())
