package intake

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestRunWithoutRoom: the opening of a run whose log the server cannot reserve is refused at once,
// with the sizes, and a smaller one is opened.
func TestRunWithoutRoom(t *testing.T) {
	log := house(t)
	start(t, log)
	account, err := log.JetStream().AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// All that the embedded server may reserve, but for a GiB.
	if _, err := log.JetStream().CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"},
			MaxBytes: 1<<50 - int64(account.ReservedStore) - 1<<30}); err != nil {
		t.Fatal(err)
	}
	open := func(run string, size runfile.Size) events.IntakeAnswer {
		return send(t, log, submission{subject: events.IntakeSubject(run, events.RunOpenedType, run),
			body: openedBody(t, func(c *runfile.RunConfig) { c.Log.MaxBytes = size })})
	}
	for size, part := range map[runfile.Size]string{8 << 30: "8GiB (log.max_bytes)", 0: "2GiB (log.max_bytes)"} {
		if a := open("large", size); !strings.Contains(a.Error, part) || !strings.Contains(a.Error, "max_file_store") {
			t.Errorf("%s: %+v", size, a)
		}
	}
	if a := open("tiny", 1<<20); !strings.Contains(a.Error, "log.max_bytes 1MiB: must be") {
		t.Errorf("below the bound: %+v", a)
	}
	if a := open("small", 64<<20); a.Error != "" {
		t.Errorf("a small one: %+v", a)
	}
	if _, most, err := log.Size(t.Context(), "small"); err != nil || most != 64<<20 {
		t.Errorf("its stream may hold %d bytes, %v", most, err)
	}
}
