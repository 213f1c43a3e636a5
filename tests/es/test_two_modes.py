"""Two modes, of which reward alone finds one: the share of 20 seeds in which a population finds both.

With real numbers as actions: the first action has an optimum at 0.8 that pays much; the second has two, at 0.6 and at
-0.85, both worth 0, that pay little. Members start around 0, and the slope leads to 0.6 from everywhere above -0.6.
While the first action is being learned the second hardly shows in the returns: that is when diversity can carry a
member past -0.6.

With choices: of four alternatives two pay, both the same. By symmetry, a member that follows its own reward is equally
likely to end at either, so two such members end at different ones in half of all seeds.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dvdrl import bandits
from dvdrl.diversity import KERNELS
from dvdrl.es import determinants, evolution_strategy
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import MLP, Categorical, Policy
from probes import OBSERVATION, Probe

RIGHT, LEFT, BARRIER = 0.6, -0.85, -0.6
STEEPNESS = ((RIGHT - BARRIER) / (BARRIER - LEFT)) ** 2  # both parabolas meet at the barrier
KERNEL = KERNELS["squared-exponential"](0.5**0.5)
POPULATION = 3


def reward(actions: Float[Array, "n 2"]) -> Float[Array, "n"]:
    first, second = actions[:, 0], actions[:, 1]
    modes = jnp.minimum(jnp.square(second - RIGHT), STEEPNESS * jnp.square(second - LEFT))
    return -4 * jnp.square(first - 0.8) - 0.1 * modes


class TwoModes(Probe):
    """Behaviour is compared where it is rewarded, on the one observation that there is."""

    def _episodes(self, rollouts: Rollouts) -> Episodes:
        episodes = super()._episodes(rollouts)
        return episodes._replace(states=jnp.broadcast_to(jnp.asarray([OBSERVATION]), episodes.states.shape))


def share_with_both_modes(controller: bandits.Controller) -> float:
    probe = TwoModes(reward, num_actions=2)
    algorithm = evolution_strategy(
        probe.policy,
        population=POPULATION,
        sensings=20,
        sigma=0.1,
        learning_rate=0.02,
        kernel=KERNEL,
        controller=controller,
        diversity=determinants(KERNEL),
        num_states=2,
    )

    def train(key: Array) -> tuple[Float[Array, "M"], Float[Array, "M"]]:
        def iteration(state, _):  # type: ignore[no-untyped-def]
            return algorithm.tell(state, probe(algorithm.ask(state)))[0], None

        state, _ = jax.lax.scan(iteration, algorithm.init(key), length=100)
        rollouts = jax.tree.map(lambda field: field[:POPULATION], algorithm.ask(state))
        return probe.actions(rollouts)[:, 1], probe(rollouts).returns

    second, returns = jax.jit(jax.vmap(train))(jax.vmap(jax.random.key)(jnp.arange(20)))
    good = np.asarray(returns) > -0.05  # the barrier is at -0.144
    right, left = (np.any(good & (np.sign(np.asarray(second) - BARRIER) == side), axis=1) for side in (1, -1))
    return float(np.mean(right & left))


def test_dvd_es_finds_both_modes_where_es_finds_one() -> None:
    shares = {
        "es": share_with_both_modes(bandits.fixed(0.0)),
        "bandit": share_with_both_modes(bandits.thompson()),
        "half": share_with_both_modes(bandits.fixed(0.5)),
        "plateau": share_with_both_modes(bandits.plateau(POPULATION)),
    }
    print(shares)
    # On seeds 100 to 119, on which the problem was chosen: 0.15, 0.45 and 0.85; the plateau controller was chosen on
    # another problem. With 20 seeds a share has a deviation of up to 0.11.
    assert shares["es"] <= 0.3
    assert shares["es"] < shares["bandit"]
    assert shares["half"] >= 0.7
    assert shares["plateau"] >= 0.7


PAID = jnp.asarray([0.0, 1.0, 0.0, 1.0])


def share_with_both_choices(controller: bandits.Controller) -> float:
    probe = TwoModes(lambda actions: PAID[actions])
    head = Categorical((4,), (0,), single=True)
    probe.policy = Policy(MLP((2, 8, 4), output_activation=head.output_activation), head)
    algorithm = evolution_strategy(
        probe.policy,
        population=2,
        sensings=10,
        sigma=0.1,
        learning_rate=0.05,
        kernel=KERNEL,
        controller=controller,
        diversity=determinants(KERNEL),
        num_states=2,
    )

    def train(key: Array) -> Array:
        def iteration(state, _):  # type: ignore[no-untyped-def]
            return algorithm.tell(state, probe(algorithm.ask(state)))[0], None

        state, _ = jax.lax.scan(iteration, algorithm.init(key), length=60)
        return probe.actions(jax.tree.map(lambda field: field[:2], algorithm.ask(state)))

    chosen = np.asarray(jax.jit(jax.vmap(train))(jax.vmap(jax.random.key)(jnp.arange(20))))
    return float(np.mean([{1, 3} == set(pair) for pair in chosen.tolist()]))


def test_dvd_es_finds_both_choices_where_es_finds_one() -> None:
    alone, together = share_with_both_choices(bandits.fixed(0.0)), share_with_both_choices(bandits.thompson())
    print(alone, together)
    # A half, with a deviation of sqrt(1 / 80) = 0.11; on seeds 100 to 139: 0.73 and 0.88.
    assert 0.2 <= alone <= 0.8
    assert together >= 0.75
