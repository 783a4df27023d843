"""What is minimised. An objective gives sums, never means: the division is done once, over the whole step."""
