"""A trainer of your own: takes the batches of a feed, trains on each, and publishes weights.

    python3 examples/trainer.py nats://127.0.0.1:4222 /srv/rondo/objects RUN FEED POLICY

Everything that it does goes through the log and the store, so it may run anywhere, and be killed at any moment: it goes on
from its checkpoint. Replace train() and the two lines that save and load its state.
"""

import asyncio, hashlib, json, pathlib, struct, sys, uuid

import nats
import pyarrow as pa

url, store, run, feed, policy = sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:6]
session = uuid.uuid4().hex[:8]  # a trainer that comes back may have to state the same thing again


def train(weights, batch):
    """One step of policy gradient on a policy that is a score for each token: a stand-in for your model."""
    for row in batch.select(["tokens", "loss_mask", "advantages"]).to_pylist():
        for token, sampled, advantage in zip(*row.values()):
            if sampled:
                weights[token % len(weights)] += 0.1 * advantage
    return weights


def safetensors(weights):
    data = struct.pack(f"<{len(weights)}f", *weights)
    header = json.dumps({"scores": {"dtype": "F32", "shape": [len(weights)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def put(data):
    """Store bytes under their own digest, and refer to them as events do."""
    digest = hashlib.sha256(data).hexdigest()
    path = store / "blobs" / "sha256" / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{digest}.{session}")
    part.write_bytes(data)
    part.rename(path)
    return {"ref": str(path.relative_to(store)), "sha256": digest, "size": len(data)}


def get(ref):
    data = (store / ref["ref"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != ref["sha256"]:
        raise ValueError(f"{ref['ref']} is damaged")
    return data


async def main():
    client = await nats.connect(url)
    log = client.jetstream()

    async def state(run, fact, entity, step, data):
        """State a fact at the door, and wait until it is on the log. The door says what is wrong with one that it refuses."""
        kind, name = fact.split(".")
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        headers = {"Nats-Msg-Id": f"{session}-{run}-{entity}-{name}-{step}", "Rondo-Reply": inbox, "ce-source": "trainer.py"}
        await log.publish(f"rondo.in.{run}.{kind}.{entity}.{name}", json.dumps(data).encode(), headers=headers)
        answer = json.loads((await answers.next_msg(timeout=30)).data)
        await answers.unsubscribe()
        if "error" in answer:
            raise RuntimeError(answer["error"])

    async def publish(step, weights):
        files = [{"name": "model.safetensors", "blob": put(safetensors(weights))}]
        submitted = {"version": step, "run": run, "through_step": step, "files": files}
        await state("_", "weights.submitted", policy, step, submitted)

    checkpoint = pathlib.Path(f"{run}-{feed}.json")
    done, weights = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, [0.0] * 256)
    if done:  # what was done after the checkpoint is done again; the batches are the same, byte by byte
        await publish(done, weights)
        await state(run, "batch.rewound", feed, done, {"to_step": done})

    batches = await log.subscribe(f"rondo.v1.{run}.batch.{feed}.ready", stream=f"RONDO_{run}", ordered_consumer=True)
    async for message in batches.messages:
        large = "ce-dataref" in message.headers  # then the body is a reference to the real one
        ready = json.loads(get(json.loads(message.data)) if large else message.data)
        step = ready["step"]
        if step <= done:
            continue
        batch = pa.ipc.open_file(get(ready["file"])).read_all()
        await state(run, "batch.consumed", feed, step, {"step": step})
        weights = train(weights, batch)
        checkpoint.write_text(json.dumps([step, weights]))
        await publish(step, weights)
        await state(run, "batch.checkpointed", feed, step, {"step": step})
        print(f"step {step}: {batch.num_rows} samples, reward {ready['reward_mean']:.3f}", flush=True)


asyncio.run(main())
