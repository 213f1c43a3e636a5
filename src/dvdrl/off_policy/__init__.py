"""Off-policy learners for populations: the record that every learner is, and TD3, E-TD3 and DvD-TD3."""

from dvdrl.off_policy.diversity import Diversity, log_determinants, no_diversity
from dvdrl.off_policy.record import Guided, Learner, Step, pack_step
from dvdrl.off_policy.replay import Bootstrapping, Replay, Transitions, pack, row_size, unpack
from dvdrl.off_policy.td3 import make_critic, make_policy, td3
from dvdrl.off_policy.xqc import xqc

__all__ = [
    "Bootstrapping",
    "Diversity",
    "Guided",
    "Learner",
    "Replay",
    "Step",
    "Transitions",
    "log_determinants",
    "make_critic",
    "make_policy",
    "no_diversity",
    "pack",
    "pack_step",
    "row_size",
    "td3",
    "unpack",
    "xqc",
]
