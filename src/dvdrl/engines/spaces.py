"""What environments observe and do, as policies have it: one vector of numbers, and actions that a head supports.

Gymnasium's own wrapper turns other observations into vectors; this module says which, and how the numbers are named.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.wrappers import FlattenObservation

from dvdrl.errors import DvdrlError
from dvdrl.policies.heads import HEADS
from dvdrl.policies.policy import is_vector
from dvdrl.tasks.names import generic_name


def with_vectors(env_id: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with observations that are vectors.

    Raises:
        DvdrlError: they cannot be vectors, or no head supports its actions.
    """
    _refuse_actions(env_id, env.action_space)
    for where, space in _parts(env.observation_space, ""):
        _refuse_observation(f"{env_id} observes {where + ', ' if where else ''}{space}", space)
    return env if is_vector(env.observation_space) else FlattenObservation(env)


def names(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """The name of each number in an observation, such as `desired_goal[0]`; the environment is `with_vectors`."""
    space = env.env.observation_space if isinstance(env, FlattenObservation) else env.observation_space
    if is_vector(space):
        return tuple(map(generic_name, range(space.shape[0])))
    return tuple(name for where, part in _parts(space, "") for name in _names(where or "observation", part))


def _parts(space: Space[Any], where: str) -> list[tuple[str, Space[Any]]]:
    """The spaces inside, in the order in which Gymnasium flattens them, each with its name."""
    if isinstance(space, Dict):
        inside = [(f"{where}.{key}" if where else str(key), each) for key, each in space.spaces.items()]
    elif isinstance(space, Tuple):
        inside = [(f"{where or 'observation'}[{number}]", each) for number, each in enumerate(space.spaces)]
    else:
        return [(where, space)]
    return [part for name, each in inside for part in _parts(each, name)]


def _names(name: str, space: Space[Any]) -> list[str]:
    """Of the numbers of one part. A choice has one number for each alternative: 1 for the one that is observed."""
    if isinstance(space, Discrete):
        return [f"{name} = {space.start + value}" for value in range(space.n)]
    places = [f"{name}[{','.join(map(str, place))}]" if place else name for place in np.ndindex(space.shape or ())]
    if isinstance(space, MultiDiscrete):
        numbers = zip(space.start.ravel(), space.nvec.ravel(), strict=True)
        return [
            f"{place} = {start + value}"
            for place, (start, size) in zip(places, numbers, strict=True)
            for value in range(size)
        ]
    return places


def _refuse_observation(what: str, space: Space[Any]) -> None:
    """Refuse an observation, or a part of one, that does not become a vector."""
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) > 1:
        raise DvdrlError(
            f"{what}: an image, and policies here have no layers for images. --wrapper module:callable can make a short"
            f" vector of it, or take its {int(np.prod(space.shape)):,} numbers as they are, as"
            " gymnasium.wrappers:FlattenObservation does with an image alone"
        )
    if not isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        raise DvdrlError(
            f"{what}, which does not become a vector of numbers; expected Box, Discrete, MultiDiscrete, MultiBinary, or"
            " Dict and Tuple of them. A wrapper can convert it: --wrapper your_module:callable"
        )


def _refuse_actions(env_id: str, space: Space[Any]) -> None:
    """Refuse actions that no head supports."""
    if any(head.from_space(space) is not None for head in HEADS.values()):
        return
    if not is_vector(space):
        expected = "a Box with one axis, Discrete, MultiDiscrete or MultiBinary"
        problem, cure = f"the action space {space}; policies here need {expected}", "convert it"
    elif not np.issubdtype(space.dtype, np.floating):
        problem, cure = f"integer actions, {space}; as a Box, actions here are real numbers", "round them"
    else:
        problem, cure = f"actions without bounds, {space}; policies here act within bounds", "give them bounds"
    raise DvdrlError(
        f"{env_id} has {problem}. A wrapper can {cure}, with gymnasium.wrappers.TransformAction:"
        " --wrapper your_module:callable"
    )
