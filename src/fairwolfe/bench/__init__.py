"""How long a round takes, side by side."""
