"""`Agent`: a policy at work, with its ledger of decisions and its file."""

from fairwolfe.agent.agent import Agent

__all__ = ["Agent"]
