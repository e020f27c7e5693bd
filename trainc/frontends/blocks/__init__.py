"""Single layers as building blocks: forward, backward and step by step, with weights and states of the caller's."""
