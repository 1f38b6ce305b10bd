"""The experiments of the paper, its claims, and what our runs show about them."""
