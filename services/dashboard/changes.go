package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/sandbox/difference"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of a page of changes.
var shownChanges = difference.Bounds{Files: 40, Bytes: 256 << 10, Lines: 400}

// maxChanged bounds the bytes of lines on a page.
const maxChanged = 512 << 10

// changesPage is what differs between two moments of a rollout's workspace.
type changesPage struct {
	Title, Here, Run, Rollout string
	At                        int64
	Turn                      int // -1: of the whole rollout
	Files                     []changedFile
	More                      int // files that are left out
}

type changedFile struct {
	difference.File
	Lines []changedLine
}

type changedLine struct{ Class, Text string }

// stretch of a workspace is how it was before and behind something, nil for the task's snapshot.
type stretch struct{ before, after *storage.Ref }

func (s stretch) differs() bool {
	return s.before == nil != (s.after == nil) || s.before != nil && s.before.SHA256 != s.after.SHA256
}

// changedBy is the workspace before and behind a turn. ok is false where its tools have not
// answered, or where it did not run in a sandbox of Rondo's.
func changedBy(r *events.Rollout, turn int) (s stretch, ok bool) {
	done, ok := r.Tools.Get(turn)
	if !ok {
		return s, false
	}
	s.after, s.before = done.Workspace, r.Laid(turn)
	if s.before == nil && turn > 0 {
		before, err := r.WorkspaceAfter(turn - 1)
		if err != nil {
			return s, false
		}
		s.before = before
	}
	return s, true
}

// changes shows how a turn, or a whole rollout, changed the workspace.
func (d *Dashboard) changes(w http.ResponseWriter, r *http.Request) error {
	p := &changesPage{Here: "runs", Run: r.PathValue("run"), Turn: -1}
	if of := r.PathValue("turn"); of != "" {
		turn, err := strconv.Atoi(of)
		if err != nil || turn < 0 {
			return errNone
		}
		p.Turn = turn
	}
	e, at, err := d.readOnly(r, episode.Bounds{Chains: true})
	if err != nil {
		return err
	}
	p.At, p.Rollout = at, e.Rollout.ID
	changed, ok := stretch{nil, episode.LastWorkspace(&e.Rollout)}, true
	p.Title = "Changes of rollout " + p.Rollout
	if p.Turn >= 0 {
		p.Title = fmt.Sprintf("Changes of turn %d", p.Turn)
		changed, ok = changedBy(&e.Rollout, p.Turn)
	}
	if !ok {
		return errNone
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	if err := d.compare(ctx, p, e, changed); err != nil {
		return err
	}
	return d.page(w, http.StatusOK, "changes", p)
}

// compare fills the page.
func (d *Dashboard) compare(ctx context.Context, p *changesPage, e *episode.Episode, changed stretch) error {
	task, err := d.log.Task(ctx, e.Rollout.Run, e.Rollout.Started.Task)
	if err != nil {
		return err
	}
	select {
	case d.reads <- struct{}{}:
		defer func() { <-d.reads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	files, more, err := episode.Changes(ctx, d.log.Store(), task.Snapshot, changed.before, changed.after, shownChanges)
	if errors.Is(err, episode.ErrLargeWorkspace) || storage.IsUnusable(err) {
		return &refusal{http.StatusNotFound, "The changes cannot be shown here: " + clip(err.Error(), 300) + "."}
	}
	if err != nil {
		return err
	}
	p.More = more
	left := maxChanged
	for _, f := range files {
		shown := changedFile{File: f}
		for i, l := range f.Lines {
			if left -= len(l.Text); left < 0 {
				shown.More += len(f.Lines) - i
				break
			}
			class := map[rune]string{difference.Came: "came", difference.Went: "gone",
				difference.Place: "place"}[l.Mark]
			text := string(l.Mark) + l.Text
			if l.Mark == difference.Place {
				text = l.Text
			}
			shown.Lines = append(shown.Lines, changedLine{class, clean(text)})
		}
		p.Files = append(p.Files, shown)
	}
	return nil
}
