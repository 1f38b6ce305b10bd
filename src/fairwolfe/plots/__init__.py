"""What every figure shares: colours and dashes, axes, means with bands, and how it is saved."""
