"""TD3 for populations: TD3, E-TD3 and DvD-TD3 as pure functions `init / act / update`."""

from dvdrl.td3.replay import Bootstrapping, Replay, Transitions, pack, row_size, unpack
from dvdrl.td3.td3 import Algorithm, Learner, Step, Sums, make_critic, make_policy, td3

__all__ = [
    "Algorithm",
    "Bootstrapping",
    "Learner",
    "Replay",
    "Step",
    "Sums",
    "Transitions",
    "make_critic",
    "make_policy",
    "pack",
    "row_size",
    "td3",
    "unpack",
]
