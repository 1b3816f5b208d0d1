"""The planting protocol's studies: which choices of an audit change its reading, and by how much."""
