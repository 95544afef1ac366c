package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/export/episode"
)

// siblingRow is another rollout of the group.
type siblingRow struct {
	ID, Outcome string
	Reward      *float64
	Turns       int
	Tests       []events.StageTests
	DiffersAt   *int // the first turn in which the two said or called something else; nil for none
	Unread      string
	Address     string
	Here        bool // it is the one beside
}

// siblingsPage shows a rollout beside another one of its group, from the first
// turn in which they differ.
type siblingsPage struct {
	Title, Here, Run, Rollout, Task string
	At                              int64
	Rows                            []siblingRow
	More                            int
	Sides                           []besideView
	Differs                         *int
}

// besideView is what one of the two said in that turn.
type besideView struct {
	ID     string
	Reward *float64
	Item   *item // nil where it had ended before
	Base   string
	// Tests are how its graded tests ended.
	Tests []events.StageTests
}

// siblings shows what the other rollouts of a group did otherwise. Without a choice the one with
// the best reward is beside.
func (d *Dashboard) siblings(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	r = r.WithContext(ctx)
	if err := d.streamed(r); err != nil {
		return err
	}
	own, at, err := d.read(r)
	if err != nil {
		return err
	}
	members, err := d.members(r, own.Rollout.Started.Group)
	if err != nil {
		return err
	}
	p := &siblingsPage{Title: "Beside " + own.Rollout.ID, Here: "runs", Run: r.PathValue("run"),
		Rollout: own.Rollout.ID, Task: own.Trajectory.Task, At: at, More: max(0, len(members)-maxMembers-1)}
	said := saidBy(&own.Rollout)
	with, beside := r.URL.Query().Get("with"), -1
	for _, id := range members[:min(len(members), maxMembers+1)] {
		if id == own.Rollout.ID {
			continue
		}
		row := siblingRow{ID: id, Address: address(r, "with", id)}
		e, err := d.chainsOnly(r, id, at)
		switch {
		case errors.Is(err, episode.ErrUnknown):
			continue // it had not begun
		case err != nil:
			row.Unread = clip(err.Error(), 300)
		default:
			row.Outcome, row.Tests, row.Turns = outcomeOf(e), e.Rollout.GradedTests(), len(e.Rollout.Taken())
			if s := e.Rollout.Scored; s != nil {
				row.Reward = &s.Reward
			}
			row.DiffersAt = episode.Parting(said, saidBy(&e.Rollout))
			if f := e.Rollout.Finished; f != nil && row.Turns == 0 && f.Turns > 0 {
				row.Turns, row.Unread = f.Turns, "its turns are in its trajectory alone"
			}
		}
		if row.Unread == "" && (id == with || with == "" && (beside < 0 || better(row, p.Rows[beside]))) {
			beside = len(p.Rows)
		}
		p.Rows = append(p.Rows, row)
	}
	if with != "" && (beside < 0 || p.Rows[beside].ID != with) {
		return errNone
	}
	if beside >= 0 {
		p.Rows[beside].Here, p.Differs = true, p.Rows[beside].DiffersAt
	}
	if p.Differs != nil {
		r.SetPathValue("rollout", p.Rows[beside].ID)
		other, _, err := d.read(r)
		if err != nil {
			return err
		}
		p.Sides = []besideView{besideAt(own, *p.Differs, p.Run), besideAt(other, *p.Differs, p.Run)}
	}
	return d.page(w, http.StatusOK, "siblings", p)
}

// streamed refuses a run of which the archive alone is left: it would be read once for
// each rollout of the group.
func (d *Dashboard) streamed(r *http.Request) error {
	run, rollout := r.PathValue("run"), r.PathValue("rollout")
	if !events.ValidRun(run) || !runfile.ValidToken(rollout) {
		return errNone
	}
	_, err := d.log.Incarnation(r.Context(), run)
	if !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	if _, err := d.log.RecordedConfig(r.Context(), run); err != nil {
		return err // there is no such run
	}
	return &refusal{http.StatusNotFound,
		fmt.Sprintf("Only the archive of the run is left, whose rollouts are not compared here. `rondo explain rollout %s %s` compares them.", run, rollout)}
}

// better reports whether a rollout has a higher reward than another one.
func better(a, b siblingRow) bool {
	return a.Reward != nil && (b.Reward == nil || *a.Reward > *b.Reward)
}

// members are the rollouts of a group, in the order of their starts: as the run's book has them, or
// as many as the group was opened with.
func (d *Dashboard) members(r *http.Request, group string) ([]string, error) {
	b, in, target, release, err := d.hold(r)
	if err == nil {
		defer release()
		if b.has(in, target) {
			b.mu.Lock()
			defer b.mu.Unlock()
			g, _ := b.state.books.FindGroup(group)
			return slices.Clone(g.Members), nil
		}
	} else if !errors.Is(err, errBusy) {
		return nil, err
	}
	opened, err := d.log.LastOfType(r.Context(), r.PathValue("run"), events.GroupOpenedType, group)
	if err != nil {
		return nil, err
	}
	data, err := events.Data[events.GroupOpened](opened)
	var ids []string
	for i := range min(data.Size, maxRows) {
		ids = append(ids, events.RolloutID(group, i))
	}
	return ids, err
}

// chainsOnly reads the chains of another rollout of the run, and no trajectory.
func (d *Dashboard) chainsOnly(r *http.Request, id string, at int64) (*episode.Episode, error) {
	select {
	case d.reads <- struct{}{}:
		defer func() { <-d.reads }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return episode.Read(r.Context(), d.log, r.PathValue("run"), id,
		episode.Bounds{Seq: uint64(at), Chains: true, Known: &episode.Knowledge{}})
}

// saidBy has the digest of each turn of a rollout.
func saidBy(r *events.Rollout) map[int][sha256.Size]byte {
	said := map[int][sha256.Size]byte{}
	for _, turn := range r.Taken() {
		said[turn.Turn] = episode.SaidIn(turn)
	}
	return said
}

// besideAt is what a rollout said in a turn, if it came so far.
func besideAt(e *episode.Episode, turn int, run string) besideView {
	s := besideView{ID: e.Rollout.ID, Base: fmt.Sprintf("/runs/%s/rollouts/%s", run, e.Rollout.ID),
		Tests: e.Rollout.GradedTests()}
	if e.Rollout.Scored != nil {
		s.Reward = &e.Rollout.Scored.Reward
	}
	for _, span := range itemsOf(e.Trajectory) {
		if m := e.Trajectory.Messages[span.from]; m.Role == "assistant" && int(m.Turn) == turn {
			it := itemOf(e, span.from, span.to)
			s.Item = &it
			break
		}
	}
	return s
}

// spread says how the rewards of a group lie.
type spread struct {
	Scored, Values int // different ones
	Low, High      float64
	Strip          string // the points of a curve
}

// spreadOf is nil where no rollout of the group is scored.
func spreadOf(rows []rolloutRow) *spread {
	var rewards []float64
	for _, r := range rows {
		if r.Scored {
			rewards = append(rewards, r.Reward)
		}
	}
	if len(rewards) == 0 {
		return nil
	}
	slices.Sort(rewards)
	return &spread{Scored: len(rewards), Values: len(slices.Compact(slices.Clone(rewards))), Low: rewards[0],
		High: rewards[len(rewards)-1], Strip: spark(rewards)}
}
