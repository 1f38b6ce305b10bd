"""Tables of plays: where they come from, how they are read, and factors made of them."""
