"""Joins Megatron, Ray, SGLang and slime where they can be joined, without changing what they do."""
