"""What makes this half fast. The formulas stand one folder up; here they are computed in pieces that stay in cache."""
