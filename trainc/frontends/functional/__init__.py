"""The layer and loss functions over float32 arrays, one a file: each is a kernel with a dynamic number of rows."""
