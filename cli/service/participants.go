package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/demo/policy/endpoint"
	"github.com/rondo-rl/rondo/demo/policy/trainer"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// servePolicy serves the built-in policy, and loads every version of it that is published. Older
// versions are fetched when they are asked for.
func servePolicy(ctx context.Context, env pipeline.Env, s Settings) error {
	server := endpoint.NewServer(func(ctx context.Context, name string, version int64) ([]byte, error) {
		return policyFile(ctx, env.Log.Store(), name, version)
	})
	listener, err := net.Listen("tcp", s.PolicyListen)
	if err != nil {
		return fmt.Errorf("serve the policy: %w", err)
	}
	go followWeights(ctx, env, server)
	return s.ServeOpen(ctx, listener, server)
}

// followWeights loads published weights until the context ends.
func followWeights(ctx context.Context, env pipeline.Env, server *endpoint.Server) {
	from := uint64(1)
	held, err := lru.New[string, *weights.HeldVersion](heldVersions)
	if err != nil {
		panic(err) // only for a size below one
	}
	for ctx.Err() == nil {
		err := env.Log.Follow(ctx, events.Catalogue, from, topology.PublishedFilter, func(e events.Event) error {
			published, err := events.Data[events.WeightsPublished](e)
			if err != nil {
				return err
			}
			from = e.Seq + 1
			if err := activate(ctx, env, server, held, published); err != nil {
				// Weights of another model, or of another architecture, are for another server.
				env.Logger.Debug("weights version ignored", "policy", published.Policy,
					"version", published.Version, "error", err)
			}
			return nil
		})
		if ctx.Err() == nil {
			env.Logger.Warn("weights log unavailable", "retry_in", time.Second, "error", err)
			retry.Sleep(ctx, time.Second)
		}
	}
}

// heldVersions bounds the policies whose last version is held, as a file of 1 MiB each, so that the
// next one is read by its delta.
const heldVersions = 16

// activate loads one version and submits that it answers now.
func activate(ctx context.Context, env pipeline.Env, server *endpoint.Server,
	held *lru.Cache[string, *weights.HeldVersion], published events.WeightsPublished) error {
	before, _ := held.Get(published.Policy)
	now, err := weights.FetchAfter(ctx, env.Log.Store(), published.Policy, published.Version, before)
	if err != nil {
		return err
	}
	if err := server.Load(published.Policy, published.Version, now.Files[0].Data); err != nil {
		return err
	}
	held.Add(published.Policy, now)
	env.Logger.Debug("weights loaded", "policy", published.Policy, "version", published.Version,
		"by_delta", now.ByDelta)
	ctx, cancel := context.WithTimeout(ctx, plane.AnswerTimeout)
	defer cancel()
	_, err = env.Log.Submitter.Submit(ctx, eventlog.Submission{
		Run: events.Catalogue, Type: events.WeightsActivatedType, Entity: published.Policy, Source: policyPart,
		ID:   fmt.Sprintf("activated-%s-%d-%s", published.Policy, published.Version, env.Instance),
		Data: events.WeightsActivated{Version: published.Version, Replica: env.Instance},
	})
	return err
}

// policyFile is the file of a version of the built-in policy, which is a single one.
func policyFile(ctx context.Context, store storage.Store, name string, version int64) ([]byte, error) {
	_, files, err := weights.Fetch(ctx, store, name, version)
	if err != nil {
		return nil, err
	}
	return files[0].Data, nil
}

// train runs the reference trainer on the first feed of every run that uses the built-in policy.
func train(ctx context.Context, env pipeline.Env, s Settings) error {
	return pipeline.Runs(ctx, env, func(ctx context.Context, run string, cfg runfile.RunConfig) {
		if cfg.Endpoint != runfile.BuiltinEndpoint || len(cfg.Feeds) == 0 {
			return
		}
		for ctx.Err() == nil {
			err := trainer.Run(ctx, trainer.Config{
				Log: env.Log, Run: run, Feed: cfg.Feeds[0].Name, Policy: cfg.Policy,
				Dir: filepath.Join(env.Dir, "trainer", run), Options: s.Trainer, Logger: env.Logger,
			})
			if ctx.Err() != nil {
				return
			}
			env.Logger.Error("trainer stopped", "run", run, "error", err)
			if errors.Is(err, eventlog.ErrRefused) {
				return // what it states is wrong and stays wrong
			}
			retry.Sleep(ctx, time.Second)
		}
	})
}
