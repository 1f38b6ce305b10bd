"""Dictionaries, tables and scikit-learn's transformers as features, in front of an agent."""

from fairwolfe.features.encoder import Encoder
from fairwolfe.features.transformed import Transformed

__all__ = ["Encoder", "Transformed"]
