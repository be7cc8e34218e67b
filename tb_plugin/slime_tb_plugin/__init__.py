"""The TensorBoard tab **RL Timeline**. TensorBoard finds it through its entry point and loads `plugin`."""
