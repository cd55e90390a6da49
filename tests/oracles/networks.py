"""A slow oracle for NN-Q: the fit written out in NumPy, on ragged lists, from the definitions.

Data as in `oracles`, with `observations` where the network takes them. Networks are lists of
(kernel [in, out], bias [out]); one-hot inputs are built in full. Given are the first weights and
which steps each minibatch holds, counted over the used steps one trajectory after another.
"""

import numpy as np

from oracles.core import ratios, returns_to_go

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Kingma & Ba 2015


def targets(traj, weighting, discount):
    """g_{t:T} times rho_{t:T}, rho_{t+1:T} or 1 for every t."""
    rho, result = ratios(traj), []
    for t, value in enumerate(returns_to_go(traj, discount)):
        first = {"to-go": t, "future": t + 1, "none": len(rho)}[weighting]
        result.append(float(value * np.prod(rho[first:])))
    return np.array(result)


def scale(rows):
    """Mean and population standard deviation over the rows, 1 for what is constant."""
    constant = np.all(rows == rows[:1], axis=0)
    mean = np.where(constant, rows[0], np.mean(rows, axis=0))  # without rounding residue
    return mean, np.where(constant, 1.0, np.std(rows, axis=0))


def one_hot(states, num_states):
    """A row of zeros and a single one for every state."""
    rows = np.zeros((len(states), num_states))
    for row, state in zip(rows, states, strict=True):
        row[state] = 1.0
    return rows


def forward(network, rows):
    """The inputs of every layer, and the output."""
    inputs = []
    for number, (kernel, bias) in enumerate(network):
        rows = np.maximum(rows, 0.0) if number else rows
        inputs.append(rows)
        rows = rows @ kernel + bias
    return inputs, rows


def huber(error):
    """e^2 / 2 where |e| <= 1, |e| - 1/2 beyond."""
    return np.where(np.abs(error) <= 1, error**2 / 2, np.abs(error) - 0.5)


def gradient(network, rows, actions, aims):
    """The mean Huber loss at the actions taken, and its gradient layer by layer."""
    inputs, output = forward(network, rows)
    back, errors = np.zeros_like(output), []
    for item, (action, aim) in enumerate(zip(actions, aims, strict=True)):
        error = output[item, action] - aim
        errors.append(error)
        back[item, action] = np.clip(error, -1, 1) / len(rows)
    slopes = []
    for number in reversed(range(len(network))):
        slopes.insert(0, (inputs[number].T @ back, back.sum(0)))
        back = (back @ network[number][0].T) * (inputs[number] > 0)
    return np.mean(huber(np.array(errors))), slopes


def train(network, rows, actions, aims, minibatches, learning_rate, clip=None):
    """Adam over the minibatches: the network after the last and the loss before each."""
    flat = [np.array(part, float) for layer in network for part in layer]
    first, second = [np.zeros_like(x) for x in flat], [np.zeros_like(x) for x in flat]
    losses = []
    for number, index in enumerate(minibatches, 1):
        layers = list(zip(flat[::2], flat[1::2], strict=True))
        loss, slopes = gradient(layers, rows[index], actions[index], aims[index])
        losses.append(loss)
        for k, slope in enumerate(part for layer in slopes for part in layer):
            slope = slope if clip is None else np.clip(slope, -clip, clip)
            first[k] = BETA_1 * first[k] + (1 - BETA_1) * slope
            second[k] = BETA_2 * second[k] + (1 - BETA_2) * slope**2
            mean = first[k] / (1 - BETA_1**number)
            square = second[k] / (1 - BETA_2**number)
            flat[k] = flat[k] - learning_rate * mean / (np.sqrt(square) + EPSILON)
    return list(zip(flat[::2], flat[1::2], strict=True)), np.array(losses)


def variation(q):
    """std / |mean| of every row of Q, 0 where the row is constant."""
    result = []
    for row in q:
        constant = np.all(row == row[0])
        result.append(0.0 if constant else np.std(row) / abs(np.mean(row)))
    return np.array(result)


def fit(
    data,
    network,
    minibatches,
    *,
    num_states,
    inputs,
    weighting,
    discount,
    learning_rate,
    clip=None,
    standardize=False,
    used=None,
):
    """The network, its losses, Q [action] at every step of every trajectory, Q [state, action].

    `used` says for each trajectory whether its steps may be drawn.
    """
    seen = [traj for i, traj in enumerate(data) if used is None or used[i]]
    aims = np.concatenate([targets(traj, weighting, discount) for traj in seen])
    aim_mean, aim_std = scale(aims) if standardize else (0.0, 1.0)
    actions = np.concatenate([traj["actions"] for traj in seen])

    def rows_of(trajs):
        if inputs == "state":
            return one_hot(np.concatenate([traj["states"] for traj in trajs]), num_states)
        mean, std = scale(np.concatenate([traj["observations"] for traj in seen]))
        return (np.concatenate([traj["observations"] for traj in trajs]) - mean) / std

    scaled = (aims - aim_mean) / aim_std
    network, losses = train(
        network, rows_of(seen), actions, scaled, minibatches, learning_rate, clip
    )
    at_steps = [aim_mean + aim_std * forward(network, rows_of([traj]))[1] for traj in data]
    table = None
    if inputs == "state":
        table = aim_mean + aim_std * forward(network, np.eye(num_states))[1]
    return network, losses, at_steps, table


def nn_q(data, num_states, **options):
    """std / |mean| over actions of the Q of every state, after `fit` on states."""
    return variation(fit(data, num_states=num_states, inputs="state", **options)[3])
