"""What each algorithm minimises. All networks are stacks of k (parley.stack), so that several agents, critics or seeds are one pass:
observations are [k, n, o], actions [k, n, a], rewards and discounts [k, n], and each loss is [k], whose sum is minimised.

    td           the squared error of a critic: TD3's and SAC's critics, DDPG's is one of them
    ddpg_target  what DDPG's critic learns; td3_target, sac_target, maddpg_target as they say
    double_dqn, distributional   RAINBOW's, with and without its distribution of returns

A discount is gamma ^ steps, and 0 where the episode ended by its own rules."""
import math

import torch


def both(x, y):
    return torch.cat([x, y], -1)


def worth(critic, observations, actions):
    """What a critic gives for actions: [k, n]. A critic of 2k networks has two opinions of each of k: [2, k, n]."""
    x = both(observations, actions)
    copies = critic.n // len(x)
    found = critic(x if copies == 1 else x.repeat(copies, 1, 1))[..., 0]
    return found if copies == 1 else found.view(copies, *x.shape[:2])


def td(critic, observations, actions, target, weight=1.0, decrease=1.0):
    """The mean squared error of a critic, and the priorities of the transitions, [k, n]; of twin critics the sum of both. weight: [k, n], of
    importance. decrease: errors of values that are too high count this much (hysteretic DDPG)."""
    error = worth(critic, observations, actions) - target
    if decrease != 1:
        error = torch.where(error > 0, decrease * error, error)
    each = error ** 2 if error.dim() == 2 else (error ** 2).sum(0)
    return (weight * each).mean(-1), each.detach().sqrt()


def ddpg_target(actor, critic, batch):
    """actor, critic: the target networks (Lillicrap et al., 2016)."""
    seen = batch["next_observation"]
    return batch["reward"] + batch["discount"] * worth(critic, seen, torch.tanh(actor(seen)))


def td3_target(actor, critic, batch, noise):
    """noise: [k, n, a], cut normal draws, which smooth the target; the lesser of the two critics counts (Fujimoto et al., 2018)."""
    seen = batch["next_observation"]
    action = (torch.tanh(actor(seen)) + noise).clamp(-1, 1)
    return batch["reward"] + batch["discount"] * worth(critic, seen, action).amin(0)


def deterministic_loss(actor, critic, observations):
    """DDPG's and TD3's loss of the actor: minus what the (first) critic says of its actions."""
    found = worth(critic, observations, torch.tanh(actor(observations)))
    return -(found if found.dim() == 2 else found[0]).mean(-1)


LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0  # as parley.Policy's gaussian head cuts them


def squashed(actor, observations, draws):
    """SAC's action, tanh of a Gaussian, and its log-probability [k, n]. draws: [k, n, a], standard normal."""
    mean, log_std = actor(observations).chunk(2, -1)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    u = mean + log_std.exp() * draws
    # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which does not overflow
    slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    logp = (-0.5 * draws ** 2 - log_std - 0.5 * math.log(2 * math.pi) - slope).sum(-1)
    return torch.tanh(u), logp


def sac_target(actor, critic, batch, temperature, draws):
    """actor: the actor itself, critic: the target critics; temperature: [k] (Haarnoja et al., 2018)."""
    seen = batch["next_observation"]
    action, logp = squashed(actor, seen, draws)
    return batch["reward"] + batch["discount"] * (worth(critic, seen, action).amin(0) - temperature[:, None] * logp)


def sac_actor_loss(actor, critic, observations, temperature, draws):
    """Returns the loss [k] and the entropy's shortfall [k], from which the temperature learns."""
    action, logp = squashed(actor, observations, draws)
    lesser = worth(critic, observations, action).amin(0)
    return (temperature[:, None] * logp - lesser).mean(-1), logp.detach().mean(-1)


# --- MADDPG (Lowe et al., 2017). k = runs x agents; network r * agents + i is agent i's of run r. ---


def joint(x, agents):
    """[k, n, w] of each agent → what each agent's critic sees, the same for all of a run: [k, n, agents * w]."""
    runs = x.view(-1, agents, *x.shape[1:])
    return runs.transpose(1, 2).reshape(len(runs), x.shape[1], -1).repeat_interleave(agents, 0)


def maddpg_target(actor, critic, batch, agents):
    """actor, critic: the target networks of all agents, each of whose critics sees what all see and do."""
    seen = batch["next_observation"]
    return batch["reward"] + batch["discount"] * worth(critic, joint(seen, agents), joint(torch.tanh(actor(seen)), agents))


def maddpg_actor_loss(actor, critic, batch, agents):
    """Each agent's action by its actor, those of the others as they were."""
    seen, k = batch["observation"], len(batch["observation"])
    mine = torch.tanh(actor(seen)).view(-1, agents, *batch["action"].shape[1:])  # [runs, agents, n, a]
    theirs = batch["action"].view_as(mine)
    rows = []
    for i in range(agents):
        each = [mine[:, j] if j == i else theirs[:, j] for j in range(agents)]
        rows.append(torch.cat(each, -1))  # [runs, n, agents * a]
    return -worth(critic, joint(seen, agents), torch.stack(rows, 1).flatten(0, 1)).mean(-1).view(k)


# --- RAINBOW (Hessel et al., 2018). A network returns [k, n, actions, atoms], the logarithms of probabilities; one atom: values. ---


def expected(output, atoms):
    """The values of actions, [k, n, actions]."""
    return output[..., 0] if len(atoms) == 1 else (output.exp() * atoms).sum(-1)


def chosen(output, action):
    """What the network gives for the actions taken, [k, n]: [k, n, atoms]."""
    return output.gather(2, action[..., None, None].expand(-1, -1, 1, output.shape[-1]))[:, :, 0]


def best(online, target, seen, atoms, is_double):
    """The target network's output for the best next action, which the online network (double) or the target's own chooses."""
    output = target(seen)
    by = online(seen) if is_double else output
    return chosen(output, expected(by, atoms).argmax(-1))


def projected(probabilities, reward, discount, atoms):
    """The distribution of reward + discount * return, on the atoms (Bellemare et al., 2017): [k, n, atoms]."""
    low, high, width = atoms[0], atoms[-1], atoms[1] - atoms[0]
    at = ((reward[..., None] + discount[..., None] * atoms).clamp(low, high) - low) / width
    distance = (at[..., None, :] - torch.arange(len(atoms), dtype=at.dtype)[:, None]).abs()  # [k, n, to, from]
    return ((1 - distance).clamp(min=0) * probabilities[..., None, :]).sum(-1)


def rainbow_errors(online, target, batch, atoms, is_double=True):
    """The loss of each transition, [k, n], from which its priority comes: the cross-entropy to the target's distribution; with one atom
    half of the squared error."""
    now = chosen(online(batch["observation"]), batch["action"])
    with torch.no_grad():
        then = best(online, target, batch["next_observation"], atoms, is_double)
        if len(atoms) > 1:
            goal = projected(then.exp(), batch["reward"], batch["discount"], atoms)
    if len(atoms) > 1:
        return -(goal * now).sum(-1)
    return 0.5 * (now[..., 0] - (batch["reward"] + batch["discount"] * then[..., 0])) ** 2
