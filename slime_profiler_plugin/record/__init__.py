"""The recorder: what runs inside a training process, and may never break it."""
