// Package export copies recorded rollouts out of the store: as the Arrow files that they are, as
// ATIF documents, as conversations, and as pairs of conversations.
package export

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/whole"
)

// Forms in which rollouts are exported.
const (
	Arrow = "arrow" // the files as they are
	ATIF  = "atif"  // a document for each rollout in the Agent Trajectory Interchange Format
	Chat  = "chat"  // a conversation on each line, for supervised fine-tuning
	Pairs = "pairs" // two conversations of one task on each line, the better one first, for preference training
)

// forms write rollouts, and give how many they wrote.
var forms = map[string]func(context.Context, *Exporter, []Rollout) (int, error){Arrow: exportFiles, ATIF: exportATIF,
	Chat: exportChat, Pairs: exportPairs}

// IsForm reports whether there is a form of this name.
func IsForm(form string) bool { return forms[form] != nil }

// Exporter writes rollouts somewhere.
type Exporter struct {
	Store storage.Store
	// Out is the folder of the files, or the file of the lines.
	Out string
	// ByRun makes a folder in Out for each run.
	ByRun bool
	// Progress receives how many rollouts were read. It may be nil.
	Progress func(read int)
	// Branching counts the pairs that were left out, as a rollout of theirs has several
	// conversations that are not masked, or none.
	Branching int

	done int
}

// Write writes rollouts in a form and gives the number of rollouts, or of lines, that it wrote.
func (x *Exporter) Write(ctx context.Context, form string, rollouts []Rollout) (int, error) {
	write := forms[form]
	if write == nil {
		return 0, fmt.Errorf("there is no form %q: must be %s, %s, %s or %s", form, Arrow, ATIF, Chat, Pairs)
	}
	return write(ctx, x, rollouts)
}

// fetch reads the trajectory file of a rollout.
func (x *Exporter) fetch(ctx context.Context, t Rollout) ([]byte, error) {
	data, err := storage.GetBlob(ctx, x.Store, t.File)
	if err != nil {
		return nil, fmt.Errorf("rollout %s of run %s: %w", t.Rollout, t.Run, err)
	}
	x.done++
	if x.Progress != nil {
		x.Progress(x.done)
	}
	return data, nil
}

func (x *Exporter) trajectory(ctx context.Context, t Rollout) (*storage.Trajectory, error) {
	data, err := x.fetch(ctx, t)
	if err != nil {
		return nil, err
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		return nil, fmt.Errorf("rollout %s of run %s: %w", t.Rollout, t.Run, err)
	}
	return trajectory, nil
}

// branches reads a rollout's trajectory and its conversations.
func (x *Exporter) branches(ctx context.Context, t Rollout) (*storage.Trajectory, []branch, error) {
	trajectory, err := x.trajectory(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	found, err := branches(trajectory, t.turns)
	return trajectory, found, err
}

// file is where a rollout's file goes.
func (x *Exporter) file(t Rollout, extension string) string {
	if !x.ByRun {
		return filepath.Join(x.Out, t.Rollout+extension)
	}
	return filepath.Join(x.Out, t.Run, t.Rollout+extension)
}

func exportFiles(ctx context.Context, x *Exporter, lines []Rollout) (int, error) {
	if err := os.MkdirAll(x.Out, 0o755); err != nil {
		return 0, err
	}
	for i, t := range lines {
		data, err := x.fetch(ctx, t)
		if err != nil {
			return i, err
		}
		if err := writeFile(x.file(t, ".arrow"), data); err != nil {
			return i, err
		}
	}
	return len(lines), nil
}

func writeFile(path string, data []byte) error {
	return whole.File(path, func(w io.Writer) error { _, err := w.Write(data); return err })
}
