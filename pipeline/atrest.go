package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// atRest is the end of a closed run's stream at which a decider had nothing left to decide.
type atRest struct {
	Created time.Time `json:"created"` // when the stream was made
	Seq     uint64    `json:"seq"`
	// Fold is the version of the fold that came to rest. Another one may have something to decide.
	Fold int `json:"fold"`
}

// ends are the closed runs that the deciders of a service have left in this process. They are kept
// in a file in place of what was folded of each run: another start passes a run whose stream has
// not grown since. Nothing depends on the file: without it a run is folded again.
type ends struct {
	log  eventlog.Reader
	file string

	mu     sync.Mutex
	left   map[string]atRest // by run and decider
	tidyAt int               // entries at which runs without a stream are looked for
}

func newEnds(env Env, service string) *ends {
	e := &ends{log: env.Log.Reader, file: filepath.Join(projectionsOf(env, ""), service+".ends"),
		left: map[string]atRest{}}
	if text, err := os.ReadFile(e.file); err == nil && json.Unmarshal(text, &e.left) != nil {
		e.left = map[string]atRest{}
	}
	return e
}

// reached reports whether a decider has left a run at the end that its stream has now.
func (e *ends) reached(run, decider string, in eventlog.Incarnation) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	end, ok := e.left[run+"/"+decider]
	return ok && end.Created.Equal(in.Created) && end.Seq == in.LastSeq && end.Fold == foldVersion
}

// put notes where a decider has left a run.
func (e *ends) put(ctx context.Context, run, decider string, end atRest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left[run+"/"+decider] = end
	if len(e.left) > e.tidyAt {
		e.tidy(ctx)
		e.tidyAt = 2*len(e.left) + 16
	}
	e.write()
}

// tidy drops the runs without a stream. The caller holds mu.
func (e *ends) tidy(ctx context.Context) {
	for name := range e.left {
		run, _, _ := strings.Cut(name, "/")
		if _, err := e.log.Incarnation(ctx, run); errors.Is(err, eventlog.ErrNotFound) {
			delete(e.left, name)
		}
	}
}

// write replaces the file. The caller holds mu.
func (e *ends) write() {
	text, err := json.Marshal(e.left)
	if err != nil || os.WriteFile(e.file+".new", text, 0o600) != nil {
		return
	}
	_ = os.Rename(e.file+".new", e.file)
}
