"""Growth of the cost of searches and sorts with the number of entities: see README.md."""
