"""What every figure shares: colours and dashes, axes, means with bands, and how it is saved."""

from __future__ import annotations

__all__: list[str] = []
