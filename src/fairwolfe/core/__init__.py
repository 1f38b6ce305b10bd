"""Problems, kinds of decision, decisions as rows, the contracts for authors, and the registry."""
