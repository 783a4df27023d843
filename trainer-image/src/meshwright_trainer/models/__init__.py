"""One definition per model family; parallelism knows of it only through the plan that stands beside it."""
