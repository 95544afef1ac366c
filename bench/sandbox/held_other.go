//go:build !linux

package sandbox

import (
	"context"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

func processorTime() time.Duration { return 0 }

func bubblewrap(context.Context) (func() error, error) { return nil, sandbox.ErrUnsupported }

func hold(context.Context, int, *Result) error { return sandbox.ErrUnsupported }
