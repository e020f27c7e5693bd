"""What is traced and compiled for the optimizers; imported only when something is compiled."""
