from osiris_jax.cli import main

main()
