"""`fairwolfe tradeoff`: the command, its questions, its page, and the agent that it hands over."""

from fairwolfe.cli.tradeoff.command import tradeoff

__all__ = ["tradeoff"]
