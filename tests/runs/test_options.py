"""What is declared of options: every one has a role, every number has bounds, and bounds hold."""

import ast
import dataclasses
import inspect
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import dvdrl
from dvdrl import diversity, es, off_policy
from dvdrl.errors import DvdrlError
from dvdrl.runs import fields, loop
from dvdrl.runs.fields import Facts, facts
from dvdrl.runs.options import ALGORITHMS, ES, ETD3, NSRES, TD3, DvDES, DvDTD3, OffPolicyTraining, with_role
from dvdrl.runs.presets import resolve
from dvdrl.runs.training import MOST_MEMBERS, Training

SOURCE = Path(dvdrl.__file__).parent
EVERY = [
    pytest.param(kind, name, each, id=f"{kind.algorithm}-{name}")
    for kind in ALGORITHMS.values()
    for name, each in facts(kind).items()
]
RESOLVED = {kind: resolve(kind(task="HalfCheetah-v5")) for kind in ALGORITHMS.values()}


def numbers(value: Any) -> tuple[Any, ...]:
    """The numbers of an option's value, if it is made of numbers."""
    items = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in items if isinstance(item, int | float) and not isinstance(item, bool))


def outside(each: Facts) -> dict[str, float]:
    """By the name of the bound, the number that is nearest to it and not allowed."""
    bounds = each.bounds
    wrong = {
        "at_least": bounds.at_least - 1 if bounds.at_least >= 1 else math.nextafter(bounds.at_least, -math.inf),
        "at_most": bounds.at_most + 1 if bounds.at_most > 1 else math.nextafter(bounds.at_most, math.inf),
        "above": bounds.above,
        "below": bounds.below,
    }
    return {name: number for name, number in wrong.items() if math.isfinite(getattr(bounds, name))}


def test_options_are_had_without_jax() -> None:
    # So that `dvdrl train --help` answers at once.
    code = "import sys, dvdrl, dvdrl.cli; dvdrl.DvDES; sys.exit('jax' in sys.modules or 'mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("kind", "name", "each"), EVERY)
def test_every_option_states_its_role_and_numbers_state_their_bounds(
    kind: type[Training], name: str, each: Facts
) -> None:
    assert each.role in get_args(fields.Role)
    has_numbers = bool(numbers(getattr(RESOLVED[kind], name))) or "int" in str(get_type_hints(kind)[name])
    if name != "task_options":  # of which the task knows the bounds
        assert bool(outside(each)) == has_numbers


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        pytest.param(kind, name, wrong, id=f"{kind.algorithm}-{name}-{bound}")
        for kind in ALGORITHMS.values()
        for name, each in facts(kind).items()
        for bound, wrong in outside(each).items()
    ],
)
def test_just_outside_of_a_bound_is_refused_by_name(kind: type[Training], name: str, wrong: float) -> None:
    several = isinstance(getattr(RESOLVED[kind], name), tuple)
    whole = "float" not in str(get_type_hints(kind)[name])
    value = math.floor(wrong) if whole else wrong
    with pytest.raises(DvdrlError, match=f"^{name}: expected .*, got {re.escape(str(value))}$"):
        resolve(kind(**{"task": "Point-v0", name: (value,) if several else value}))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_no_number_is_infinite(number: float) -> None:
    floats = [name for name, hint in get_type_hints(DvDTD3).items() if "float" in str(hint) and name != "task_options"]
    assert len(floats) == 11
    for name in floats:
        value = (number,) if name == "arms" else number
        with pytest.raises(DvdrlError, match=rf"^{name}: expected .*a finite number, got -?(inf|nan)$"):
            resolve(DvDTD3(**{"task": "Point-v0", name: value}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (DvDES(task="Point-v0", population=0), "population: expected a number from 1 to 2047, got 0"),
        (DvDES(task="Point-v0", sigma=-0.1), "sigma: expected more than 0, got -0.1"),
        (DvDES(task="Point-v0", arms=()), "arms: expected at least one number, got none"),
        (DvDTD3(task="Point-v0", arms=(0.5, 2.0)), "arms: expected each to be a number from 0 to 1, got 2.0"),
        (ES(task="Point-v0", hidden=(16, 0)), "hidden: expected each to be at least 1 and less than 2**20, got 0"),
        (ES(task="Point-v0", seed=-1), "seed: expected at least 0 and less than 2**32, got -1"),
        (TD3(task="Point-v0", steps=2**31), "steps: expected at least 1 and less than 2**31, got 2147483648"),
        (TD3(task="Point-v0", simulations="two"), "simulations: expected int, got 'two'"),  # type: ignore[arg-type]
        (TD3(task="Point-v0", hidden=None), "hidden: expected a tuple of int, got None"),  # type: ignore[arg-type]
        (TD3(task="Point-v0", population=2), "population: td3 has one member, got 2; e-td3 and dvd-td3 have more"),
        (ETD3(task="Point-v0", num_states=9, batch_size=8), "num_states: a batch has 8 states, got 9"),
        (NSRES(task="Point-v0", members="two"), "members: expected one of one, all, got 'two'"),  # type: ignore[arg-type]
        (
            ES(task="Point-v0", task_options={"a": [{"b": {1}}]}),
            "task_options: a: expected a number, a text, true, false, null, or a list or an object of them, got {1}",
        ),
        (ES(task="Point-v0", task_options={"a": [math.inf]}), "task_options: a: expected a finite number, got inf"),
        (ES(task="Point-v0", wrappers=("mine",)), "wrappers: expected texts such as 'module:callable', got 'mine'"),
        (
            ES(task="Point-v0", wrappers=("os:system",)),
            "wrappers: expected one from a module of your own or of a package, got os:system",
        ),
    ],
)
def test_what_no_run_can_have_is_said_in_one_line(options: ES, said: str) -> None:
    with pytest.raises(DvdrlError) as error:
        resolve(options)
    assert str(error.value) == said


def test_an_integer_that_no_floating_point_number_holds_is_out_of_bounds_too() -> None:
    with pytest.raises(DvdrlError, match=r"^population: expected a number from 1 to 2047, got 10+\.\.\.0+$"):
        resolve(ES(task="Point-v0", population=10**400))


def test_populations_are_refused_where_their_determinant_would_be() -> None:
    assert diversity.least_shrinkage(MOST_MEMBERS) <= 1 < diversity.least_shrinkage(MOST_MEMBERS + 1)


def test_an_option_that_is_declared_again_keeps_the_facts_of_its_base_class() -> None:
    # E-TD3 changes the default of the population only, TD3 the role of the hidden layers only: critics have them too.
    assert facts(ETD3)["population"] == facts(Training)["population"]
    assert facts(TD3)["hidden"] == dataclasses.replace(facts(Training)["hidden"], role="algorithm")
    assert facts(Training)["hidden"].role == "part"


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_an_algorithm_is_given_what_its_factory_takes(kind: type[Training]) -> None:
    learns_off_policy = issubclass(kind, OffPolicyTraining)
    factory = getattr(off_policy, kind.learner) if learns_off_policy else es.evolution_strategy
    assert fields.values(RESOLVED[kind], "algorithm").keys() <= inspect.signature(factory).parameters.keys()


def test_runs_that_are_the_same_but_for_chance_may_differ_in_these() -> None:
    assert with_role("incidental") == {
        "seed",
        "executor",
        "ray_time_limit",
        "keep_checkpoints",
        "keep_every",
        "wandb",
        "wandb_project",
    }
    assert with_role("outside") == {"out", "seeds", "for_", "from_", "ray_address"}


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_nothing_is_open_once_it_is_resolved(kind: type[Training]) -> None:
    hints = get_type_hints(kind)
    left = {name for name, value in vars(RESOLVED[kind]).items() if value is None}
    assert all("None" in str(hints[name]) for name in left)  # of type `... | None`, not `... | Open`
    ends = {"steps", "until", "until_stalled", "for_"}
    assert left <= {
        *ends,
        "out",
        "from_",
        "from_digest",
        "seeds",
        "ray_address",
        "num_states",
        "least_return",
        "keep_every",
    }


def test_nobody_asks_again_whether_an_option_is_there_or_what_the_algorithm_is() -> None:
    declaring = {"options.py", "es_options.py", "off_policy_options.py", "training.py", "fields.py", "presets.py"}
    for path in (path for path in SOURCE.rglob("*.py") if path.name not in declaring):
        for node in ast.walk(ast.parse(path.read_text())):
            said = ast.unparse(node)
            where = f"{path}:{getattr(node, 'lineno', 0)}: {said}"
            if isinstance(node, ast.Call) and said.startswith(("isinstance(", "issubclass(")):
                assert not re.search(r"\b(ES|NSRES|DvDES|NicheES|TD3|ETD3|DvDTD3|XQC|DvDXQC)\b", said), where
            if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
                assert not re.match(r"(self\._)?(options|config)\.(?!(steps|out|num_states)\b)\w+ or \S+$", said), where
            if isinstance(node, ast.Assert):
                assert not re.search(r"\b(options|config)\.", said), where


# Length and x-axis, by hand: five members, 2 x 20 rollouts for the gradient of each.
def test_the_length_of_a_study_is_that_of_iterations_in_which_all_members_are_updated() -> None:
    whole, one = ES(task="HalfCheetah-v5").of_length(7), NSRES(task="HalfCheetah-v5").of_length(7)
    assert (whole.iterations, one.iterations) == (7, 35)
    assert NSRES(task="HalfCheetah-v5", members="all").of_length(7).iterations == 7
    assert DvDES(task="HalfCheetah-v5", members="one").of_length(7).iterations == 35
    for options in (whole, one):
        resolved = resolve(options)
        assert resolved.x(resolved.iterations, 0) == 7 * 5 * 40
    assert resolve(one).x(9, 0) == 200  # the second round of updates is not complete
    learner = resolve(DvDTD3(task="Hopper-v5").of_length(9000))
    assert (learner.steps, learner.iterations, learner.x(1, 5000)) == (9000, 2, 5000)


def test_a_new_end_replaces_the_old_one() -> None:
    run = resolve(ES(task="Point-v0", population=5, sensings=20, iterations=3))
    assert run.with_end(None, None) == run
    assert run.with_end(7, None).iterations == 7
    # An iteration has 5 + 5 x 2 x 20 = 205 episodes of at least one step: 411 steps take at most three of them.
    longer = run.with_end(None, 411)
    assert (longer.iterations, longer.steps) == (3, 411)
    assert longer.with_end(9, None).steps is None
    one = resolve(NSRES(task="Point-v0", population=5, sensings=20, iterations=3))
    assert one.with_end(None, 46).iterations == 2  # 5 + 2 x 20 = 45
    # TD3's iterations have 5,000 steps; it always has a number of steps.
    learner = resolve(TD3(task="Hopper-v5", steps=10_000))
    assert (learner.iterations, learner.with_end(4, None).steps, learner.with_end(4, None).iterations) == (2, 20_000, 4)
    assert (learner.with_end(None, 15_001).steps, learner.with_end(None, 15_001).iterations) == (15_001, 4)
    early = resolve(TD3(task="Hopper-v5", steps=100_000, iterations=2))
    assert early.with_end(4, None) == resolve(TD3(task="Hopper-v5", steps=100_000, iterations=4))


def test_what_a_run_depends_on_is_that_of_its_executor() -> None:
    packages = {
        executor: ES(task="Point-v0", executor=executor).packages() for executor in fields.choices(ES, "executor")
    }
    assert packages == {
        "local": ("mujoco", "gymnasium"),
        "ray": ("mujoco", "gymnasium", "ray"),
        "device": ("mujoco", "gymnasium", "mujoco-warp", "warp-lang"),
    }
    assert fields.choices(TD3, "executor") == ("local", "ray")
    assert TD3(task="Point-v0", executor="ray").packages() == packages["ray"]


def test_the_trainer_of_an_algorithm_is_found_by_name() -> None:
    for options in (ES(task="Point-v0", population=1, sensings=1), TD3(task="Pendulum-v1", buffer_size=10)):
        trainer = loop.make_trainer(resolve(options), 1)
        assert trainer.replay_capacity == (10 if isinstance(options, TD3) else 0)
        trainer.close()


def test_a_cluster_is_no_part_of_a_description() -> None:
    assert ES(task="Point-v0").with_cluster("here:1").ray_address == "here:1"
    assert TD3(task="Point-v0").with_cluster("here:1").ray_address == "here:1"
