def monkey_patch_torch_reductions() -> None:
    """For CUDA's handles only."""
