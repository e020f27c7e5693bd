"""The functions' kernels, traced; imported only when one is compiled."""
