"""Optimizers that update the caller's arrays in place, and what they need: clipping and accumulated gradients."""
