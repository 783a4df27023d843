"""Where figures go. A sink takes records; none of them may slow down or end the training."""
