"""What programs exercise, and what of that is new: features, structure of graphs and code, lines."""
