"""Diversity of a population: embeddings -> Gram matrix -> (log) determinant, as pure functions of JAX arrays.

    K = gram(KERNELS["squared-exponential"](length_scale=1.0), embeddings)  # (M, l) -> (M, M)
    diversity = log_determinant(K)

It imports no other part of dvdrl, so you can use it in any training loop.
"""

from dvdrl.diversity.determinant import determinant, least_shrinkage, log_determinant
from dvdrl.diversity.embeddings import Normalization, embed, normalize
from dvdrl.diversity.kernels import KERNELS, Kernel, distances, gram, median_length_scale
from dvdrl.diversity.metrics import effective_rank, mean_distance, measure, min_distance, vendi_score
from dvdrl.diversity.ordered import ordered_shares
from dvdrl.diversity.states import STATE_RULES, StateRule, k_dpp, select_states

__all__ = [
    "KERNELS",
    "STATE_RULES",
    "Kernel",
    "Normalization",
    "StateRule",
    "determinant",
    "distances",
    "effective_rank",
    "embed",
    "gram",
    "k_dpp",
    "least_shrinkage",
    "log_determinant",
    "mean_distance",
    "measure",
    "median_length_scale",
    "min_distance",
    "normalize",
    "ordered_shares",
    "select_states",
    "vendi_score",
]
