"""Home of the TensorBoard tab. There is no tab yet, so nothing is registered with TensorBoard."""
