"""What is trained on: documents, tokens, samples, and the one global order in which samples are drawn."""
