package toolrunner

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// traffic counts what goes into a store and comes out of it, and the largest piece of it.
type traffic struct {
	storage.Store
	mu                     sync.Mutex
	written, read, largest int64
}

func (c *traffic) Put(ctx context.Context, key string, data []byte) error {
	c.count(&c.written, len(data))
	return c.Store.Put(ctx, key, data)
}

func (c *traffic) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	c.mu.Lock()
	c.written += size // in pieces
	c.mu.Unlock()
	return c.Store.PutReader(ctx, key, r, size)
}

func (c *traffic) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	c.count(&c.read, int(length))
	return c.Store.GetRange(ctx, key, offset, length)
}

func (c *traffic) count(what *int64, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what += int64(bytes)
	c.largest = max(c.largest, int64(bytes))
}

// since gives what was counted since it was asked last.
func (c *traffic) since() (written, read int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	written, read, c.written, c.read = c.written, c.read, 0, 0
	return written, read
}

// TestHandingOverCostsWhatChanged: a turn that changes little of a large workspace stores little,
// whichever runner it is handed to, and a runner that has had the workspace before reads little.
// Nobody holds more than a part of it.
func TestHandingOverCostsWhatChanged(t *testing.T) {
	sandboxtest.Require(t)
	store := &traffic{Store: natstest.Store(t)}
	log, err := eventlog.New(natstest.Connect(t, natstest.Server(t)), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	open(t, log, "r", nil)
	const large, little = 16 << 20, 10 << 20
	first, _ := newServiceOnly(t, log)
	second, _ := newServiceOnly(t, log)
	for n, step := range []struct {
		what             string
		runner           *Service
		command, answers string
		written, read    [2]int64 // least and most
	}{
		{"all of it is new", first, "head -c 16777216 /dev/urandom > big; sha256sum big | cut -c1-64 > sum", "",
			[2]int64{large, large + little}, [2]int64{0, little}},
		{"a small file", first, "echo two >> a.txt", "", [2]int64{1, little}, [2]int64{0, little}},
		{"nothing", first, "true", "", [2]int64{0, 1 << 20}, [2]int64{0, 1 << 20}},
		{"handed over", second,
			"sha256sum big | cut -c1-64 | cmp - sum && cat a.txt; printf x | dd of=big bs=1 seek=8000000 conv=notrunc 2>/dev/null", "one\ntwo\n",
			[2]int64{1, little}, [2]int64{large, large + little}},
		{"handed back", first, "echo three >> a.txt", "", [2]int64{1, little}, [2]int64{large, large + little}},
		{"and over again", second, "cat a.txt", "one\ntwo\nthree\n", [2]int64{0, 1 << 20}, [2]int64{0, little}},
	} {
		turn(t, log, "r", n, poolRoute, shell("c", step.command))
		store.since()
		fact := handle(t, step.runner, log)[0]
		written, read := store.since()
		if done := servicetest.Data[events.ToolsCompleted](t, fact); done.Lost != "" || done.Workspace == nil ||
			!strings.HasPrefix(done.Results[0].Content, step.answers) {
			t.Fatalf("%s: %+v", step.what, done)
		}
		if written < step.written[0] || written > step.written[1] || read < step.read[0] || read > step.read[1] {
			t.Errorf("%s: %d bytes written and %d read, want %v and %v", step.what, written, read,
				step.written, step.read)
		}
		if _, _, err := log.Appender.Append(t.Context(), fact); err != nil {
			t.Fatal(err)
		}
	}
	if store.largest > 5<<20 {
		t.Errorf("%d bytes at once: more than a part was held", store.largest)
	}
}
