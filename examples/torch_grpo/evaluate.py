"""Takes the batches of a run without training on them, prints the reward of each, and closes the run: evaluate.py RUN --dir /srv/rondo."""

import argparse

import rondo


def main(args):
    """Take as many batches as the run wants."""
    with rondo.Client(args.dir) as client, rondo.Feed(args.run, args.feed, client=client) as feed:
        for batch in feed:
            feed.consumed(batch)
            version = int(batch.token_versions.values.max())
            print(f"version {version} of {feed.policy}: {len(batch)} samples, reward {batch.ready['reward_mean']:.3f}", flush=True)
            if batch.step == feed.config["steps"]:  # nobody publishes weights for it, by which a run ends otherwise
                client.state(args.run, "run.closed", args.run, {"reason": "evaluated"})
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--feed", default="trainer")
    parser.add_argument("--dir", default=".rondo", help="where `rondo up` runs")
    main(parser.parse_args())
