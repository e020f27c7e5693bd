"""The blocks as traced programs; imported when one has to be compiled."""
