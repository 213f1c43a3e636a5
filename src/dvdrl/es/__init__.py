"""Evolution strategies for populations: ES, NSR-ES, DvD-ES and niche-ES as pure functions `init / ask / tell`."""

from dvdrl.es.behaviours import Behaviour, actions, measures, standardized_visits, visits
from dvdrl.es.dvd import determinants
from dvdrl.es.es import Algorithm, Diversity, Info, State, StepRule, evolution_strategy, no_diversity
from dvdrl.es.novelty import novelty

__all__ = [
    "Algorithm",
    "Behaviour",
    "Diversity",
    "Info",
    "State",
    "StepRule",
    "actions",
    "determinants",
    "evolution_strategy",
    "measures",
    "no_diversity",
    "novelty",
    "standardized_visits",
    "visits",
]
