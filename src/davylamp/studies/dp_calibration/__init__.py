"""DP-SGD against its caps: measured memorization, extraction and membership at many epsilons and copies."""
