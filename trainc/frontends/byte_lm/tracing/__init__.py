"""The byte language model as traced programs; imported when one has to be compiled."""
