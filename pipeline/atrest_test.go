package pipeline

import (
	"os"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestEndsOfAnotherFold: a decider folds a closed run again that one of another version has left.
// Where both are the same it does not.
func TestEndsOfAnotherFold(t *testing.T) {
	env := Env{Log: natstest.Log(t), Dir: t.TempDir()}
	if err := os.MkdirAll(projectionsOf(env, ""), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := env.Log.Streams.EnsureRun(t.Context(), "r"); err != nil { // one without a stream is forgotten
		t.Fatal(err)
	}
	in := eventlog.Incarnation{Created: time.Unix(1, 0), LastSeq: 7}
	for fold, left := range map[int]bool{foldVersion: true, foldVersion - 1: false, 0: false} {
		ends := newEnds(env, "service")
		ends.put(t.Context(), "r", "decider", atRest{in.Created, in.LastSeq, fold})
		if again := newEnds(env, "service"); again.reached("r", "decider", in) != left {
			t.Errorf("a run at rest by fold %d of %d: left is %v", fold, foldVersion, !left)
		}
	}
}
