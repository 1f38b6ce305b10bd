"""Tables of plays, where they come from and factors made of them; tables of logged decisions."""
