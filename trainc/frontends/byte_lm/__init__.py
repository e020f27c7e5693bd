"""A small language model over bytes with a fixed shape of batch, and its training loop."""
