package toolrunner

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/storage"
)

// noting remembers when it last gave an object.
type noting struct {
	storage.Store
	gave atomic.Pointer[time.Time]
}

func (n *noting) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	data, err := n.Store.GetRange(ctx, key, offset, length)
	now := time.Now()
	n.gave.Store(&now)
	return data, err
}

// TestTimeOfACall: a harness's call begins when its content has come out of the store. What
// came before is not its time.
func TestTimeOfACall(t *testing.T) {
	sandboxtest.Require(t)
	store := &noting{Store: natstest.Store(t)}
	log, err := eventlog.New(natstest.Connect(t, natstest.Server(t)), store)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{store: log.Store()}
	content, err := events.PutContent(t.Context(), store, bytes.Repeat([]byte("a\n"), 4<<10))
	if err != nil {
		t.Fatal(err)
	}
	box := sandboxtest.New(t, sandbox.Spec{})
	for op, call := range map[string]events.WorkspaceCalled{
		"exec":  {Op: events.WorkspaceExec, Command: []string{"cat"}, Stdin: content},
		"write": {Op: events.WorkspaceWrite, Path: box.Workdir() + "/a", Content: content},
	} {
		store.gave.Store(nil)
		done := events.WorkspaceAnswered{StartedAt: time.Now()}
		if _, _, err := s.do(t.Context(), box, call, time.Minute, &done); err != nil || done.Refused != "" {
			t.Fatalf("%s: %q, %v", op, done.Refused, err)
		}
		if gave := store.gave.Load(); gave == nil || done.StartedAt.Before(*gave) {
			t.Errorf("%s began at %s, and its content came at %s", op, done.StartedAt, gave)
		}
	}
}
