import jax

# Compiling is most of what these tests do; nothing in them depends on how well it is done.
jax.config.update("jax_disable_most_optimizations", True)
