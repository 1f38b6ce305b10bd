"""Bridges to what people already use: Gymnasium and MO-Gymnasium both ways, river pipelines."""

from fairwolfe.integrations.gymnasium_world import Gymnasium

__all__ = ["Gymnasium"]
