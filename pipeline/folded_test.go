package pipeline

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage/projection"
)

// TestLogLostWhatWasFolded: a power cut left a projection with a group that the log has lost. It
// begins again, and decides of what is on the log.
func TestLogLostWhatWasFolded(t *testing.T) {
	for name, behind := range map[string]uint64{"others in their place": 0, "nothing in their place": 2} {
		t.Run(name, func(t *testing.T) {
			natstest.Virtual(t, func(t *testing.T) {
				log := natstest.Log(t)
				openRun(t, log, testRun)
				env := testEnv(t, log, "a")
				env.Logger = slog.New(slog.DiscardHandler) // it says that it begins again
				s := deciding(t, env, answering(answerer{}))
				openGroup(t, log, 1, "")
				answer(t, log, 1)
				synctest.Wait()
				s.end(t)
				foldLost(t, env, behind)
				s = deciding(t, env, answering(answerer{}))
				openGroup(t, log, 2, "")
				answer(t, log, 2)
				synctest.Wait()
				s.end(t)
				if n := checkAnswers(t, log); n != 2 {
					t.Errorf("%d answers, want 2: a group that is not on the log is answered", n)
				}
			})
		})
	}
}

// foldLost has a projection hold a group that is not on the log, so many
// events behind the log's end.
func foldLost(t *testing.T, env Env, behind uint64) {
	t.Helper()
	db, last := openProjection(t, env)
	defer db.Close()
	tx, seq := db.Begin(), last+behind
	for key, value := range map[string]any{"last": seq, "open/g000009": [2]string{"g000009", ""},
		foldedKey: folded{ID: "lost", Time: time.Now()}} {
		if err := projection.Put(tx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Commit(tx, seq); err != nil {
		t.Fatal(err)
	}
}
