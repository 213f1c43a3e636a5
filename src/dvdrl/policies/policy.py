"""The one type of policy, from training to export, and the arrays that differ between its members."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from gymnasium.spaces import Box, Space
from jaxtyping import Array, Float, PRNGKeyArray

from dvdrl.errors import DvdrlError
from dvdrl.policies.heads import Categorical, Head, head_for
from dvdrl.policies.network import MLP, Activation


class Agents(NamedTuple):
    """The arrays that differ between members, or perturbations of them, that share one policy; NumPy or JAX arrays."""

    params: Float[Any, "... d"]
    shift: Float[Any, "... obs"]
    scale: Float[Any, "... obs"]
    """The network sees (obs - shift) * scale."""


@dataclass(frozen=True)
class Policy:
    """A filter of observations, a network and an action head. The parameters are kept apart, in `Agents`."""

    network: MLP
    head: Head
    sampled: bool = False
    """Whether executors draw choices from pi(.|s). If not, as everywhere else, the most likely ones are taken."""

    @property
    def num_observed(self) -> int:
        """Length of an observation."""
        return self.network.sizes[0]

    def init(self, key: PRNGKeyArray) -> Float[Array, "d"]:
        """The parameters of a new agent.

        Choices need outputs that depend on the observation from the start. With the small ones of the authors' code,
        half of all new agents take the same action everywhere. If their perturbations do too, all returns are equal,
        and an evolution strategy has no gradient.
        """
        return self.network.init_uniform(key) if isinstance(self.head, Categorical) else self.network.init(key)

    def outputs(self, agents: Agents, obs: Float[Any, "... n obs"]) -> Float[Any, "... n out"]:
        """The network's outputs for n observations. Leading axes of agents and observations match one to one."""
        inputs = (obs - agents.shift[..., None, :]) * agents.scale[..., None, :]
        return self.network.apply(agents.params, inputs.astype(agents.params.dtype))

    def act(self, agents: Agents, obs: Float[Any, "... n obs"]) -> Any:
        """The actions for n observations, in the form that the environment expects."""
        return self.head.actions(self.outputs(agents, obs))

    def behaviour(self, agents: Agents, states: Float[Any, "... n obs"]) -> Float[Any, "... n b"]:
        """The numbers by which agents are compared, for each of n states."""
        return self.head.behaviour(self.outputs(agents, states))

    def refuse_other_spaces(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Refuse an environment that this policy was not made for.

        Raises:
            DvdrlError: its observations or its actions differ from the policy's.
        """
        expected = policy_for(observation_space, action_space, ())
        if (expected.num_observed, expected.head) != (self.num_observed, self.head):
            raise DvdrlError(
                f"the policy was made for observations of length {self.num_observed} and actions {self.head}; the"
                f" environment has observations of length {expected.num_observed} and actions {expected.head}"
            )


def is_vector(space: Space[Any]) -> TypeGuard[Box]:
    """Whether the space consists of vectors of numbers."""
    return isinstance(space, Box) and len(space.shape) == 1


def policy_for(
    observation_space: Space[Any],
    action_space: Space[Any],
    hidden: Sequence[int],
    *,
    activation: Activation = "tanh",
    output_bias: bool = False,
) -> Policy:
    """The policy for an environment with these spaces; `hidden` are the sizes of its hidden layers.

    Raises:
        DvdrlError: such observations or actions are not supported.
    """
    if not is_vector(observation_space):
        raise DvdrlError(f"expected an observation space of vectors, got {observation_space}")
    head = head_for(action_space)
    sizes = (observation_space.shape[0], *hidden, head.num_outputs)
    network = MLP(sizes, activation=activation, output_activation=head.output_activation, output_bias=output_bias)
    return Policy(network, head)
