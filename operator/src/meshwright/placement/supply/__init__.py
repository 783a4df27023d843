"""What there is and what pods ask of it: nodes, amounts, who takes whom, and the running account of what is left."""
