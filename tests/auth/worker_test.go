package auth

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// worker takes a rollout as a user's environment, opens it and gives it back;
// another user may take none.
const worker = `
import asyncio
import os

import rondo
from rondo.env.lease import EPISODES, take

async def main():
    reached = {"nats": os.environ["URL"], "store": os.environ["STORE"], "timeout": 60}
    async with rondo.AsyncClient(**reached, wait=60, creds=os.environ["CREDS"]) as client:
        lease = None
        while lease is None:
            lease = await take(client.connection, "game", EPISODES)
        async with lease:
            fact = await client.log.next("game", lease.subject, lease.sequence)
            print("took", fact.entity, lease.delivery)
            await client.state("game", "rollout.observed", fact.entity, {"turn": -1, "messages": [{"role": "user", "content": "Begin."}]})
            await lease.done()
        lease = await take(client.connection, "game", EPISODES)
        print("left" if lease is None else "still there")
        for run, of in (("r", client), ("game", None)):
            try:
                if of is None:
                    async with rondo.AsyncClient(**reached, wait=60, creds=os.environ["OTHER"]) as other:
                        await take(other.connection, run, EPISODES)
                else:
                    await take(of.connection, run, EPISODES)
            except rondo.PermissionDenied:
                print("refused")

asyncio.run(main())
`

// TestWorkerUnderLock: a user's worker takes work from its own run across accounts and acknowledges
// it, the intake makes the consumer, and nobody else may take it.
func TestWorkerUnderLock(t *testing.T) {
	t.Parallel()
	python := interpreter(t)
	dir := initKeys(t)
	s := serve(t, dir, auth.ConfigFile)
	store := t.TempDir()
	admin := adminLogIn(t, s, dir, store, "")
	intakeLog, err := eventlog.New(connect(t, s, creds(dir, topology.Intake)).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, intakeLog)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	cfg := servicetest.Config("a")
	cfg.Environment = &runfile.Environment{Name: "game"}
	command(t, "auth", "user", "operator", "--out", dir, "--role", "operator", "--run", "game")
	command(t, "auth", "user", "gamer", "--out", dir, "--role", "environment", "--run", "game")
	command(t, "auth", "user", "swe", "--out", dir, "--role", "harness", "--run", "game")
	operator, err := eventlog.New(connect(t, s, creds(dir, "operator")).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	opening := eventlog.Submission{Run: "game", Type: events.RunOpenedType, Entity: "game",
		Data: events.RunOpened{Config: cfg}, ID: "opened-game"}
	if _, err := operator.Submitter.Submit(ctx, opening); err != nil {
		t.Fatal(err)
	}
	servicetest.StartRollout(t, admin, "game", "g000001-0", "a")
	runs(t, python, worker, "took g000001-0 1\nleft\nrefused\nrefused\n", "URL="+s.ClientURL(), "STORE="+store,
		"CREDS="+creds(dir, "gamer"), "OTHER="+creds(dir, "swe"))
}
