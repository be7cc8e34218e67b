"""Stands for slime's losses."""


def compute_advantages_and_returns(args, rollout_data):
    rollout_data["advantages"] = True


def get_values():
    return "values"


def get_log_probs():
    return "log_probs"
