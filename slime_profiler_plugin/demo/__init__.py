"""The demo: a small but real RL loop."""
