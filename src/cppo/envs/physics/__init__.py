"""Physics: the models, MuJoCo on CPU threads, and the Point robot's closed form."""
