"""Task logic as pure batched JAX functions: what is placed where, what is seen, what is rewarded and what costs."""
