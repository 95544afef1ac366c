package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/export"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of what a page shows of a rollout. A part of a message has an address of its own.
const (
	maxTrajectory = 64 << 20
	turnsPage     = 20
	shownText     = 8 << 10
	partText      = 64 << 10
	maxCalls      = 64 // of a turn
	maxArguments  = 16 // of a call
)

// rolloutPage is what the page of a rollout shows.
type rolloutPage struct {
	Title, Here, Run, Task string
	At                     int64 // sequence, 0: now
	E                      *episode.Episode
	Outcome                string
	Components             []component
	Tests                  []events.StageTests
	Turns, Tokens, Sampled int
	Timeline               *timeline
	Items                  []item
	Pager                  pager
	Changes                bool // the workspace is another one than the task's snapshot
	Printed                episode.Printed
	Goes                   bool      // it has no outcome yet, in a run that is not closed, so that the page follows it
	UnderWay               *underWay // the answer that is being sampled, as far as the log has it
}

type component struct {
	Name  string
	Value float64
}

// item is one turn, or something that was said to the model.
type item struct {
	Index     int
	Role      string
	Turn      int32
	Model     bool
	Facts     string
	NewSample bool
	Thoughts  text
	Said      text
	Images    []storage.Image
	Calls     []call
	HasTokens bool
	Changes   bool // the workspace is another one behind the turn
}

// saidPart is what a template shows of an item, with the address of its rollout.
type saidPart struct {
	Item     item
	Base, At string
}

// text is the beginning of a text of others.
type text struct {
	Text string
	More int // bytes that are not shown
}

type call struct {
	Name      string
	Arguments []argument
	Facts     string
	Failed    bool
	Answer    text
	Images    []storage.Image
	Index     int // of the message with the answer, -1 without one
}

type argument struct {
	Name string
	Kind string // gone, came, or ""
	Text text
}

func begin(of string) text {
	part, more := cut(of, 0, shownText)
	if more {
		return text{part, len(of) - shownText}
	}
	return text{part, 0}
}

// read reads the rollout that a request is about. Few are read at once, as each takes the
// memory of its trajectory.
func (d *Dashboard) read(r *http.Request) (*episode.Episode, int64, error) {
	return d.readOnly(r, episode.Bounds{Bytes: maxTrajectory})
}

// readOnly is read within other bounds.
func (d *Dashboard) readOnly(r *http.Request, most episode.Bounds) (*episode.Episode, int64, error) {
	run := r.PathValue("run")
	at, err := whole(r, "at", 0)
	if err != nil {
		return nil, 0, err
	}
	if !events.ValidRun(run) {
		return nil, 0, errNone
	}
	known, release, err := d.knowledge(r)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	select {
	case d.reads <- struct{}{}:
		defer func() { <-d.reads }()
	case <-r.Context().Done():
		return nil, 0, r.Context().Err()
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	most.Seq, most.Known = uint64(at), known
	e, err := episode.Read(ctx, d.log, run, r.PathValue("rollout"), most)
	switch {
	case errors.Is(err, episode.ErrUnknown):
		err = errNone
	case errors.Is(err, episode.ErrTooLarge) || storage.IsUnusable(err):
		err = &refusal{http.StatusNotFound, "The trajectory cannot be shown here: " + clip(err.Error(), 300) +
			". `rondo trajectories show` may say more."}
	}
	return e, at, err
}

// nearly is how many events a book may lack that is waited for.
const nearly = 2000

// knowledge is what the run's book knows of a rollout, nil where it is not folded: it goes on then,
// and the page reads what it shows by itself.
func (d *Dashboard) knowledge(r *http.Request) (*episode.Knowledge, func(), error) {
	b, in, target, release, err := d.hold(r)
	if errors.Is(err, errBusy) {
		return nil, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if !b.has(in, target) {
		d.shelf.follow(b)
		if b.position()+nearly < target {
			return nil, release, nil
		}
		ctx, cancel := context.WithTimeout(r.Context(), d.patience)
		defer cancel()
		b.await(ctx, target)
		if !b.has(in, target) {
			return nil, release, nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return episode.KnownOf(b.state.books, r.PathValue("rollout")), release, nil
}

// printed reads what was printed about a rollout. Few are read at once, as each takes
// the memory of its outputs.
func (d *Dashboard) printed(ctx context.Context, r *events.Rollout) episode.Printed {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	select {
	case d.reads <- struct{}{}:
		defer func() { <-d.reads }()
		return episode.PrintedBy(ctx, d.log.Store(), r)
	case <-ctx.Done():
		return episode.Printed{Unread: []string{"outputs are not shown: other pages are read"}}
	}
}

// rollout shows a rollout turn by turn.
func (d *Dashboard) rollout(w http.ResponseWriter, r *http.Request) error {
	e, at, err := d.read(r)
	if err != nil {
		return err
	}
	p := &rolloutPage{Title: "Rollout " + e.Rollout.ID, Here: "runs", Run: r.PathValue("run"), Task: e.Trajectory.Task,
		At: at, E: e, Outcome: outcomeOf(e), Timeline: timelineOf(e),
		Tests: e.Rollout.GradedTests(), Changes: stretch{nil, episode.LastWorkspace(&e.Rollout)}.differs(),
		Printed: d.printed(r.Context(), &e.Rollout)}
	if p.Goes, err = d.goes(r.Context(), p.Run, e, at); err != nil {
		return err
	}
	p.UnderWay = d.underWayOf(e)
	p.Printed.Verifier, p.Printed.Agent = clean(p.Printed.Verifier), clean(p.Printed.Agent)
	if s := e.Rollout.Scored; s != nil {
		for name, value := range s.Components {
			p.Components = append(p.Components, component{line(name), value})
		}
		sort.Slice(p.Components, func(i, k int) bool { return p.Components[i].Name < p.Components[k].Name })
	}
	for _, m := range e.Trajectory.Messages {
		p.Tokens += len(m.TokenIDs)
		if m.Role == "assistant" {
			p.Turns++
			for _, sampled := range m.LossMask {
				if sampled {
					p.Sampled++
				}
			}
		}
	}
	if !e.Trajectory.TextOnly {
		for _, masked := range events.MaskedTokens(e.Rollout.Taken()) {
			p.Sampled += masked
		}
	}
	items := itemsOf(e.Trajectory)
	if p.Pager, err = paged(r, "page", len(items), turnsPage); err != nil {
		return err
	}
	for _, span := range items[p.Pager.From:p.Pager.To] {
		p.Items = append(p.Items, itemOf(e, span.from, span.to))
	}
	return d.page(w, http.StatusOK, "rollout", p)
}

// goes reports whether a rollout, as of now, may get further: it has no outcome yet, and its run is
// neither closed nor lost.
func (d *Dashboard) goes(ctx context.Context, run string, e *episode.Episode, at int64) (bool, error) {
	if at > 0 || e.Rollout.Scored != nil || e.Rollout.Failed != nil {
		return false, nil
	}
	state, _, err := d.log.RunState(ctx, run)
	return !slices.Contains([]string{"closed", eventlog.StateArchived, eventlog.StateLost}, state), err
}

// outcomeOf says in few words how a rollout stands.
func outcomeOf(e *episode.Episode) string {
	switch r := &e.Rollout; {
	case r.Failed != nil:
		return fmt.Sprintf("failed at %s: %s: %s", line(r.Failed.Stage), line(r.Failed.Class), line(r.Failed.Message))
	case r.Scored == nil && r.Finished == nil:
		return "in flight"
	case r.Scored == nil:
		return "waits for its reward"
	}
	return "scored"
}

// reach is a turn with its answers, or one other message, by the places of messages.
type reach struct{ from, to int }

func itemsOf(t *storage.Trajectory) (list []reach) {
	messages := t.Messages
	for i := 0; i < len(messages); {
		end := i + 1
		if messages[i].Role == "assistant" {
			for end < len(messages) && messages[end].Role == "tool" {
				end++
			}
		}
		if messages[i].Role != "prompt" { // tokens alone
			list = append(list, reach{i, end})
		}
		i = end
	}
	return list
}

func itemOf(e *episode.Episode, from, to int) item {
	m := e.Trajectory.Messages[from]
	it := item{Index: from, Role: line(m.Role), Turn: m.Turn, Model: m.Role == "assistant",
		HasTokens: len(m.TokenIDs) > 0}
	if !it.Model {
		it.Role, it.Said, it.Images = line(m.Role+" "+m.Name), begin(m.Content), m.Images
		return it
	}
	it.NewSample = from > 0 && e.Trajectory.Messages[from-1].Segment != m.Segment
	it.Facts = factsOf(e, m)
	thoughts, said := export.Thoughts(m)
	it.Thoughts, it.Said = begin(thoughts), begin(said)
	changed, ok := changedBy(&e.Rollout, int(m.Turn))
	it.Changes = ok && changed.differs()
	answers := e.Trajectory.Messages[from+1 : to]
	calls, left := export.PairCalls(export.Calls(m), answers, e.Rollout.Tools.Answer(int(m.Turn)).Results)
	for _, c := range calls[:min(len(calls), maxCalls)] {
		it.Calls = append(it.Calls, callOf(c))
	}
	for _, answer := range left[:min(len(left), maxCalls)] {
		it.Calls = append(it.Calls, call{Name: "answer to no call", Answer: begin(answer.Content),
			Images: answer.Images, Index: int(answer.Index)})
	}
	return it
}

func factsOf(e *episode.Episode, m storage.Message) string {
	version := "version unknown"
	switch {
	case int(m.Turn) < e.Rollout.Copied:
		version = "not sampled here"
	case e.Rollout.AnsweredBy(int(m.Turn)) != "":
		version = "answered by " + line(e.Rollout.AnsweredBy(int(m.Turn)))
	case len(m.Versions) > 0:
		version = fmt.Sprintf("versions %d to %d", m.Versions[0].Version, m.Versions[len(m.Versions)-1].Version)
	case m.PolicyVersion >= 0:
		version = fmt.Sprintf("version %d", m.PolicyVersion)
	}
	facts := []string{version, fmt.Sprintf("%d tokens", len(m.TokenIDs)), span(m.Duration)}
	if m.FinishReason != "" {
		facts = append(facts, line(m.FinishReason))
	}
	return strings.Join(facts, " · ")
}

func callOf(c export.Call) call {
	shown := call{Name: line(c.Call.Name), Arguments: argumentsOf(c.Call.Arguments), Index: -1, Facts: "not answered"}
	if c.Answer != nil {
		shown.Answer, shown.Index, shown.Facts = begin(c.Answer.Content), int(c.Answer.Index), span(c.Answer.Duration)
		shown.Images = c.Answer.Images
	}
	if r := c.Recorded; r != nil {
		shown.Facts = span(time.Duration(r.DurationMS * float64(time.Millisecond)))
		if r.ExitCode != nil {
			shown.Facts += fmt.Sprintf(" · exit code %d", *r.ExitCode)
		}
		shown.Failed = r.Error || r.ExitCode != nil && *r.ExitCode != 0
		if r.Cache == toolset.CacheHit {
			shown.Facts += " · from the cache"
		}
	}
	return shown
}

// Names under which tools take what they replace, and what it becomes.
var (
	goneNames = []string{"old_string", "old_str", "search"}
	cameNames = []string{"new_string", "new_str", "replace", "contents", "content", "file_text"}
)

// argumentsOf lays the arguments of a call out; text that is no object is one argument.
func argumentsOf(arguments string) (list []argument) {
	var given map[string]any
	if err := json.Unmarshal([]byte(arguments), &given); err != nil || given == nil {
		if strings.TrimSpace(arguments) == "" {
			return nil
		}
		return []argument{{Name: "malformed", Text: begin(arguments)}}
	}
	for name, value := range given {
		of, ok := value.(string)
		if !ok {
			encoded, _ := json.Marshal(value) // it was decoded from JSON
			of = string(encoded)
		}
		a := argument{Name: line(name), Text: begin(of)}
		switch {
		case slices.Contains(goneNames, name):
			a.Kind = "gone"
		case slices.Contains(cameNames, name):
			a.Kind = "came"
		}
		list = append(list, a)
	}
	// Short ones first, and what goes before what comes.
	rank := func(a argument) int { return strings.Index(" gone came", a.Kind) }
	slices.SortFunc(list, func(a, b argument) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list[:min(len(list), maxArguments)]
}

// one finds the message that a request is about.
func (d *Dashboard) one(r *http.Request) (*episode.Episode, storage.Message, error) {
	index, err := strconv.Atoi(r.PathValue("index"))
	if err != nil {
		return nil, storage.Message{}, errNone
	}
	e, _, err := d.read(r)
	if err != nil {
		return nil, storage.Message{}, err
	}
	if index < 0 || index >= len(e.Trajectory.Messages) {
		return nil, storage.Message{}, errNone
	}
	return e, e.Trajectory.Messages[index], nil
}

// message shows all of a message, part by part.
func (d *Dashboard) message(w http.ResponseWriter, r *http.Request) error {
	e, m, err := d.one(r)
	if err != nil {
		return err
	}
	whole := strings.Join(slices.DeleteFunc([]string{m.Reasoning, m.Content, m.ToolCalls},
		func(s string) bool { return s == "" }), "\n\n")
	p, err := paged(r, "page", len(whole), partText)
	if err != nil {
		return err
	}
	part, _ := cut(whole, p.From, p.To-p.From)
	return d.page(w, http.StatusOK, "message", map[string]any{"Title": fmt.Sprintf("Message %d", m.Index),
		"Here": "runs", "Run": r.PathValue("run"), "Rollout": e.Rollout.ID,
		"Role": line(m.Role), "Text": part, "Pager": p, "Bytes": len(whole)})
}
