"""Whole episodes of JAX environments, compared with the library's own rollout: `dvdrl bench tasks --engine jax`.

Both run the same number of episodes with the same policies, one for each episode, as one compiled program each. The
libraries' rollouts are gymnax's `RolloutWrapper`, and for Playground Brax's wrappers for whole episodes, stepped by
`lax.scan`. They sum rewards; ours also filters observations, collects their moments and keeps one. Cases whose library
is not installed are left out.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.engines import jax_environment
from dvdrl.engines.jax import first_episode
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, Policy, policy_for
from dvdrl.record import provenance
from dvdrl.rollouts import Compiled

CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("gymnax:CartPole-v1", 1000, {}),
    ("gymnax:Pendulum-v1", 1000, {}),
    ("playground:CartpoleBalance", 200, {"episode_length": 100}),
    ("playground:CheetahRun", 64, {"episode_length": 50}),
]
MODULES = {"gymnax": "gymnax", "playground": "mujoco_playground"}
TURNS = 9

Rollout = Callable[[Agents, UInt32[Array, "n"]], Float[Array, "n"]]
"""Agents and seeds of episodes -> their returns."""


@dataclass(frozen=True)
class Row:
    """Environment steps per second of ours and of the library's rollout, resting ones included, and their ratio."""

    task: str
    num_envs: int
    steps_per_second: float
    library_steps_per_second: float
    ratio: float
    """The median over the turns."""


def of_gymnax(env: Any, policy: Policy, task: str) -> Rollout:
    """gymnax's own rollout. It begins an episode with the same key as ours."""
    from gymnax.experimental import RolloutWrapper

    def act(agent: Agents, obs: Any, _: Any) -> Any:
        return policy.act(agent, jnp.ravel(obs)[None])[0]

    rollouts = RolloutWrapper(act, task.partition(":")[2])
    rollouts.env, rollouts.env_params = env.env, env.params

    def run(agents: Agents, seeds: UInt32[Array, "n"]) -> Float[Array, "n"]:
        keys = jax.vmap(first_episode)(seeds)[1]
        returns: Float[Array, "n 1"] = jax.vmap(rollouts.single_rollout)(keys, agents)[-1]
        return returns[:, 0]

    return run


def of_playground(env: Any, policy: Policy, task: str) -> Rollout:  # noqa: ARG001 - the same arguments as above
    """Playground's environments in Brax's wrappers. An episode begins with the same key as ours."""
    from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper

    envs = EpisodeWrapper(VmapWrapper(env.env), env.horizon * env.action_repeat, env.action_repeat)

    def run(agents: Agents, seeds: UInt32[Array, "n"]) -> Float[Array, "n"]:
        keys = jax.vmap(first_episode)(seeds)[1]
        state, n = envs.reset(jax.vmap(jax.random.split)(keys)[:, 0]), len(seeds)

        def step(carry: Any, _: None) -> Any:
            state, returns, left = carry
            state = envs.step(state, policy.act(agents, state.obs[:, None])[:, 0])
            return (state, returns + left * state.reward, left * (1 - state.done)), None

        (_, returns, _), _ = jax.lax.scan(step, (state, jnp.zeros(n), jnp.ones(n)), length=env.horizon)
        return returns

    return run


LIBRARIES = {"gymnax": of_gymnax, "playground": of_playground}


def rollouts_of(policy: Policy, n: int) -> Rollouts:
    """n episodes, each with random parameters and a start of its own."""
    keys = jax.random.split(jax.random.key(0), n)
    ones = jnp.ones((n, policy.num_observed))
    agents = Agents(jax.vmap(policy.network.init)(keys), jnp.zeros_like(ones), ones)
    return Rollouts(jnp.zeros(n, jnp.int32), agents, jnp.arange(n, dtype=jnp.uint32), jax.random.key_data(keys))


def measure(task: str, num_envs: int, options: dict[str, Any], turns: int = TURNS) -> Row:
    """Whole episodes of one task."""
    env = jax_environment(task, **options)
    assert env is not None
    policy = policy_for(env.observation_space, env.action_space, (32, 32))
    rollouts, ours = rollouts_of(policy, num_envs), Compiled(env, policy)
    theirs = jax.jit(LIBRARIES[task.partition(":")[0]](env, policy, task))
    contenders: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours.run(rollouts),
        "theirs": lambda: theirs(rollouts.agents, rollouts.start),
    }
    seconds = take_turns(contenders, turns=turns)
    steps = num_envs * env.horizon
    return Row(
        task,
        num_envs,
        steps / median(seconds["ours"]),
        steps / median(seconds["theirs"]),
        median_ratio(seconds["theirs"], seconds["ours"]),
    )


def bench(*, as_json: bool) -> None:
    """Measure every case, and print steps per second and ratios."""
    cases = [case for case in CASES if find_spec(MODULES[case[0].partition(":")[0]])]
    rows = [measure(*case) for case in cases]
    device = jax.devices()[0].device_kind
    if as_json:
        print(json.dumps({**provenance("jax", "jaxlib"), "device": device, "rows": list(map(asdict, rows))}, indent=2))
        return
    print(f"whole episodes, each with its own policy, on {device}")
    for row in rows:
        print(
            f"{row.task:22} {row.num_envs:5} episodes {row.steps_per_second:12,.0f} steps/s, {row.ratio:.2f} of the"
            f" library's rollout ({row.library_steps_per_second:,.0f})"
        )
