package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
)

// startAsk is the body of POST /rollouts.
type startAsk struct {
	Run  string `json:"run"`
	Task string `json:"task"`
	// Group names the rollouts that are compared; without one a new group begins.
	Group string `json:"group"`
	// Size of the group, where this rollout begins it; 0 is the run's group_size.
	Size int `json:"size"`
	// Member of the group, from 0; nil is the next one that nobody has. The same
	// member may be asked for again.
	Member *int `json:"member"`
	// Session and Consent are the user's, where the rollout is a part of a product's traffic.
	Session string `json:"session"`
	Consent bool   `json:"consent"`
}

// started is the answer.
type started struct {
	ID      string `json:"id"`
	BaseURL string `json:"base_url"`
	Run     string `json:"run"`
	Rollout string `json:"rollout"`
	Task    string `json:"task"`
	// Instruction of the task, where the run has it.
	Instruction string    `json:"instruction,omitempty"`
	Group       string    `json:"group"`
	Member      int       `json:"member"`
	Size        int       `json:"size"`
	Model       string    `json:"model"`
	Deadline    time.Time `json:"deadline"`
}

// groupName is what may follow the prefix of outsiders' groups.
var groupName = regexp.MustCompile(`^[A-Za-z0-9_]{1,48}$`)

// start starts a rollout, and its group when it is the first one.
func (g *Gateway) start(w *stream, r *http.Request, t *tenant) error {
	var a startAsk
	if err := g.settings(w, r, t, &a); err != nil {
		return err
	}
	if !events.ValidRun(a.Run) || !t.mayUse(a.Run) {
		return noRun(a.Run)
	}
	cfg, err := g.log.Config(r.Context(), a.Run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return noRun(a.Run)
	}
	if err != nil {
		return err
	}
	if a.Group == "" {
		a.Group = strings.ToLower(rand.Text()[:16])
	}
	if !groupName.MatchString(a.Group) {
		return problem(http.StatusBadRequest, "invalid_request_error",
			"group %.80q: use letters, digits and _, at most 48", a.Group)
	}
	group, err := g.group(r.Context(), t, cfg, a)
	if err != nil {
		if _, closed := g.log.LastOfType(r.Context(), a.Run, events.RunClosedType, a.Run); closed == nil {
			return problem(http.StatusConflict, "run_closed", "run %s is closed", a.Run)
		}
		return err
	}
	ro, err := g.member(r.Context(), t, cfg, a, group)
	if err != nil {
		return err
	}
	answer := started{
		ID: name(a.Run, ro.ID), BaseURL: baseURL(r) + "/rollouts/" + name(a.Run, ro.ID) + "/v1", Run: a.Run,
		Rollout: ro.ID, Task: ro.Started.Task,
		Group: a.Group, Member: ro.Started.Member, Size: group.Size, Model: cfg.Policy, Deadline: ro.Started.Deadline,
	}
	if task, err := cfg.Task(ro.Started.Task); err == nil {
		answer.Instruction = task.Instruction
	}
	return reply(w, http.StatusCreated, answer)
}

// settings reads a small request strictly.
func (g *Gateway) settings(w *stream, r *http.Request, t *tenant, into any) error {
	share := g.memory.Share(t.Name)
	defer share.End()
	return readStrictly(w, r, share, maxSettings, into)
}

// readStrictly reads a request that has one JSON value of known fields.
func readStrictly(w *stream, r *http.Request, share *memory.Share, most int64, into any) error {
	text, err := body(w, r, share, most)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return problem(http.StatusBadRequest, "invalid_request_error", "read the request: %v", err)
	}
	if d.More() {
		return problem(http.StatusBadRequest, "invalid_request_error", "read the request: more than one JSON value")
	}
	return nil
}

// baseURL is where the client has reached the gateway; a proxy in front says how.
func baseURL(r *http.Request) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// group finds the group or opens it.
func (g *Gateway) group(ctx context.Context, t *tenant, cfg runfile.RunConfig, a startAsk) (events.GroupOpened, error) {
	id := events.ExternalPrefix + a.Group
	for try := 0; ; try++ {
		last, err := g.log.LastOfType(ctx, a.Run, events.GroupOpenedType, id)
		if err == nil {
			opened, err := events.Data[events.GroupOpened](last)
			switch {
			case err != nil:
				return opened, err
			case !t.owns(last.Source):
				return opened, problem(http.StatusConflict, "group_taken",
					"group %s of run %s belongs to somebody else: choose another name", a.Group, a.Run)
			case a.Task != "" && a.Task != opened.Task:
				return opened, problem(http.StatusConflict, "group_taken",
					"group %s of run %s is of task %q, not %q", a.Group, a.Run, opened.Task, a.Task)
			case a.Session != opened.Session:
				return opened, problem(http.StatusConflict, "group_taken",
					"group %s of run %s is of another session", a.Group, a.Run)
			case a.Size != 0 && a.Size != opened.Size:
				return opened, problem(http.StatusConflict, "group_taken",
					"group %s of run %s has %d members, not %d", a.Group, a.Run, opened.Size, a.Size)
			}
			return opened, nil
		}
		if !errors.Is(err, eventlog.ErrNotFound) {
			return events.GroupOpened{}, err
		}
		published, _, err := g.log.Published(ctx, events.Catalogue, cfg.Policy)
		if err != nil {
			return events.GroupOpened{}, err
		}
		opened := events.GroupOpened{Task: a.Task, Size: a.Size, PolicyVersion: published.Version,
			Session: a.Session, Consent: a.Consent}
		if opened.Size == 0 {
			opened.Size = cfg.GroupSize
		}
		err = g.state(ctx, t, a.Run, events.GroupOpenedType, id, rand.Text(), opened)
		if err != nil && (!errors.Is(err, eventlog.ErrRefused) || try > 0) {
			return opened, refused(err)
		}
		if err != nil {
			if _, gone := g.log.LastOfType(ctx, a.Run, events.GroupOpenedType, id); gone != nil {
				return opened, refused(err) // else somebody was faster
			}
		}
	}
}

// member starts a member of the group: the one that is asked for, or the next that nobody has.
func (g *Gateway) member(ctx context.Context, t *tenant, cfg runfile.RunConfig, a startAsk,
	group events.GroupOpened) (*rollout, error) {
	defer g.locks.take(name(a.Run, events.ExternalPrefix+a.Group))()
	from, to := 0, group.Size
	if a.Member != nil {
		from, to = *a.Member, *a.Member+1
		if from < 0 || from >= group.Size {
			return nil, problem(http.StatusBadRequest, "invalid_request_error",
				"member %d: group %s has %d members, counted from 0", from, a.Group, group.Size)
		}
	}
	for i := from; i < to; i++ {
		id := events.RolloutID(events.ExternalPrefix+a.Group, i)
		_, err := g.log.LastOfType(ctx, a.Run, events.RolloutStartedType, id)
		if errors.Is(err, eventlog.ErrNotFound) {
			err = g.begin(ctx, t, cfg, a.Run, id, i, group)
			if errors.Is(err, eventlog.ErrRefused) {
				// Another gateway may have been faster, or one that died had submitted its request.
				if _, raced := g.log.LastOfType(ctx, a.Run, events.RolloutStartedType, id); raced == nil {
					err = nil
					if a.Member == nil {
						continue
					}
				}
			}
		} else if err == nil && a.Member == nil {
			continue
		}
		if err != nil {
			return nil, refused(err)
		}
		ro, err := g.load(ctx, a.Run, id, t)
		if err != nil {
			return nil, err
		}
		return ro, ro.open()
	}
	return nil, problem(http.StatusConflict, "group_full",
		"all %d members of group %s are started", group.Size, a.Group)
}

func (g *Gateway) begin(ctx context.Context, t *tenant, cfg runfile.RunConfig, run, id string, member int,
	group events.GroupOpened) error {
	published, _, err := g.log.Published(ctx, events.Catalogue, cfg.Policy)
	if err != nil {
		return err
	}
	return g.state(ctx, t, run, events.RolloutStartedType, id, rand.Text(), events.RolloutStarted{
		Group: events.GroupOf(id), Member: member, Task: group.Task,
		PolicyVersion: max(published.Version, group.PolicyVersion),
		Seed:          seed(cfg.Seed, run, id), Deadline: time.Now().Add(time.Duration(cfg.Limits.Timeout)).UTC(),
	})
}

// seed follows from the rollout's name, so that members differ and a repetition does not.
func seed(base int64, run, id string) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%s", base, run, id))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 2) // room for the turns to be counted on
}
