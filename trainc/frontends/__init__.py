"""What users hold: model configurations, generators and the stacks built from them."""
