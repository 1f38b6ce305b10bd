"""Bridges to what people already use: Gymnasium and MO-Gymnasium both ways, river pipelines."""

from fairwolfe.bridges.played import Gymnasium

__all__ = ["Gymnasium"]
