"""All that is fitted to a batch: Q, networks, behaviour, the data's Markov chain."""
