package servicetest

import (
	"testing"

	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
)

// Fleet is a process's fleet of inference servers; change may be nil.
func Fleet(t testing.TB, env pipeline.Env, change func(*fleet.Options)) *fleet.Fleet {
	t.Helper()
	opts := fleet.DefaultOptions()
	opts.Logger, opts.Metrics = env.Logger, env.Metrics
	opts.Loading = 0 // what is not there will not come
	if change != nil {
		change(&opts)
	}
	f, err := fleet.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
