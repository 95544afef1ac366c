package gc

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage/parts"
	"github.com/rondo-rl/rondo/storage/projection"
)

// marks are the keys of all reachable objects, and the objects that may be deleted: on
// disk, as a store may hold more keys than a machine has memory for, in no order that
// a log would have them in.
type marks struct {
	dir     string
	db      *projection.DB
	tx      *projection.Tx
	pending int
}

// Prefixes of the entries.
const (
	reachable = "r/"
	garbage   = "g/"
)

// Candidate is an object that nothing reached when it was listed.
type Candidate struct {
	Key      string    `json:"key"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func newMarks() (*marks, error) {
	dir, err := os.MkdirTemp("", "rondo-gc-")
	if err != nil {
		return nil, err
	}
	m := &marks{dir: dir}
	if m.db, err = projection.Open(dir, projection.Identity{}); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	m.tx = m.db.Begin()
	return m, nil
}

func (m *marks) Close() error {
	m.tx.Discard()
	return errors.Join(m.db.Close(), os.RemoveAll(m.dir))
}

// atOnce is how many entries are written together.
const atOnce = 4096

func (m *marks) written() error {
	if m.pending++; m.pending < atOnce {
		return nil
	}
	return m.flush()
}

func (m *marks) flush() error {
	if err := m.db.Commit(m.tx, 0); err != nil {
		return fmt.Errorf("write to %s: %w", m.dir, err)
	}
	m.tx, m.pending = m.db.Begin(), 0
	return nil
}

// reach marks an object as reachable.
func (m *marks) reach(key string) error {
	if err := projection.Put(m.tx, reachable+key, true); err != nil {
		return err
	}
	return m.written()
}

func (m *marks) reached(key string) (bool, error) {
	_, ok, err := projection.Get[bool](m.tx, reachable+key)
	return ok, err
}

func (m *marks) suspect(c Candidate) error {
	if err := projection.Put(m.tx, garbage+c.Key, c); err != nil {
		return err
	}
	return m.written()
}

// suspects are the candidates, in the order of their keys.
func (m *marks) suspects() iter.Seq2[Candidate, error] {
	return func(yield func(Candidate, error) bool) {
		if err := m.flush(); err != nil {
			yield(Candidate{}, err)
			return
		}
		for c, err := range projection.Scan[Candidate](m.db, garbage) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// Kinds of objects, by where they lie.
const (
	kindBlobs        = "blobs"
	kindTrajectories = "trajectories"
	kindBatches      = "batches"
	kindSegments     = "log segments"
	kindWeights      = "weights"
	kindIndex        = "index"
	kindAgents       = "agents"       // manifests of layers, which `rondo agents remove` removes
	kindAnswers      = "tool answers" // which nothing refers to: they go by age
	kindOther        = "other"        // nothing of Rondo's that this version knows: never touched
)

var objectKinds = []string{kindBlobs, kindTrajectories, kindBatches, kindSegments, kindWeights, kindIndex,
	kindAgents, kindAnswers, kindOther}

// runOf is the run in whose folder an object lies, if any.
func runOf(key string) string {
	parts := strings.SplitN(key, "/", 4)
	if parts[0] != "runs" || len(parts) < 4 {
		return ""
	}
	return parts[1]
}

// kindOf tells an object's kind, and the run that it belongs to, if any.
func kindOf(key string) (kind, run string) {
	names := strings.SplitN(key, "/", 4)
	switch {
	case strings.HasPrefix(key, "blobs/sha256/"), parts.IsIndex(key):
		return kindBlobs, ""
	case agents.IsManifest(key):
		return kindAgents, ""
	case names[0] == "weights" && len(names) >= 3:
		return kindWeights, ""
	case names[0] == "index":
		if ours, _ := segment.ParseKey(key); ours {
			return kindIndex, ""
		}
	case names[0] == "runs" && len(names) == 4 && names[2] == "tools":
		return kindAnswers, "" // a run of which only these are left needs no history
	case names[0] == "runs" && len(names) == 4:
		if kind, known := map[string]string{"trajectories": kindTrajectories, "batches": kindBatches,
			"log": kindSegments}[names[2]]; known {
			return kind, names[1]
		}
	}
	return kindOther, ""
}
