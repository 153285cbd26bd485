"""CartPole beside gymnasium's own: the same states to 1e-6 over 1,000 random steps, the same ends.

usage: test_cartpole.py CARTPOLE_TRACE
"""
import random
import subprocess
import sys

import children
import gymnasium


def main():
    ours = children.start([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(line):
        ours.stdin.write(line + "\n")
        ours.stdin.flush()
        return ours.stdout.readline().split()

    theirs = gymnasium.make("CartPole-v1")
    chance = random.Random(543)
    n_steps = n_ends = n_cut = 0
    worst = 0.0
    long = True  # the first episode balances by rule, to reach the cut at 500
    while n_steps < 1000 or not n_cut:
        theirs.reset(seed=chance.randrange(2**31))
        assert ask("set " + " ".join(repr(float(x)) for x in theirs.unwrapped.state)) == ["set"]
        over, observation = False, theirs.unwrapped.state
        while not over:
            action = int(observation[2] + 0.5 * observation[3] > 0) if long else chance.randrange(2)
            observation, reward, terminated, truncated, _ = theirs.step(action)
            answer = ask(str(action))
            worst = max(worst, *(abs(float(a) - float(b)) for a, b in zip(answer[:4], observation)))
            assert worst <= 1e-6, (answer, observation)
            assert [float(answer[4]), int(answer[5]), int(answer[6])] == [reward, terminated, truncated], answer
            over = terminated or truncated
            n_steps += 1
            n_cut += truncated
        n_ends += 1
        long = False
    ours.stdin.close()
    assert ours.wait(children.PATIENCE) == 0
    print(f"{n_steps} steps, {n_ends} episodes, {n_cut} cut, worst difference {worst:.2e}")


main()
