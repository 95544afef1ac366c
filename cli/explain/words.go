package explain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/ledger"
	"github.com/rondo-rl/rondo/storage"
)

// tale is what is told of a group or of one of its rollouts, in sentences.
type tale struct {
	Run       string   `json:"run"`
	Group     string   `json:"group"`
	Rollout   string   `json:"rollout,omitempty"`
	Sentences []string `json:"sentences"`
	// VerifierOutput is what the verifier of a rollout printed, at most its last 64 KiB.
	VerifierOutput string `json:"verifier_output,omitempty"`
	// Feeds say where the rollout is, or the rollouts are, for each feed.
	Feeds map[string]map[string]ledger.Entry `json:"feeds"`
}

func (t *tale) say(format string, args ...any) {
	t.Sentences = append(t.Sentences, app.Line(fmt.Sprintf(format, args...), 500))
}

func (t *tale) print(w io.Writer) {
	for _, sentence := range t.Sentences {
		fmt.Fprintln(w, sentence)
	}
	lines := strings.Split(t.VerifierOutput, "\n")
	if skipped := len(lines) - printedLines; skipped > 0 {
		fmt.Fprintf(w, "  … %s before, which --json prints\n", plural(skipped, "line"))
		lines = lines[skipped:]
	}
	for _, line := range lines {
		if t.VerifierOutput != "" {
			fmt.Fprintf(w, "  | %s\n", app.Line(app.Untab(line), 200))
		}
	}
}

const (
	printedLines = 40 // of a verifier's output
	mostOutput   = 64 << 10
)

// verifierOutput reads what the verifier of a scored rollout printed. Output that cannot be read is said to be.
func (t *tale) verifierOutput(ctx context.Context, p *plane.Plane, r *events.Rollout) {
	if r.Scored == nil || r.Scored.Log == nil {
		return
	}
	took := time.Duration(r.Scored.DurationMS * float64(time.Millisecond)).Round(100 * time.Millisecond)
	text, err := storage.GetBlob(ctx, p.Store, *r.Scored.Log)
	text = bytes.TrimSpace(text)
	switch {
	case err != nil:
		t.say("What the verifier printed cannot be read: %v", err)
		return
	case len(text) == 0:
		t.say("The verifier ended with exit code %d after %s and printed nothing.", r.Scored.ExitCode, took)
		return
	}
	t.say("The verifier ended with exit code %d after %s and printed:", r.Scored.ExitCode, took)
	t.VerifierOutput = strings.ToValidUTF8(string(text[max(0, len(text)-mostOutput):]), "\uFFFD")
}

// source is what a tale is made of: the books of the run, and what is recorded of one group.
type source struct {
	books       *ledger.Ledger
	group       string
	opened      time.Time
	times       map[string]span // of the group's rollouts
	dropped     map[string]events.GroupDropped
	retried     map[string][]events.RolloutRetried
	invalidated map[string]string // why
	advantages  map[string]float64
}

// span is when a rollout began, and when it had its outcome.
type span struct{ began, over time.Time }

// readSource folds the run's log, or its archive, once.
func readSource(ctx context.Context, p *plane.Plane, run, group string) (*source, error) {
	s := &source{group: group, times: map[string]span{}, dropped: map[string]events.GroupDropped{}, retried: map[string][]events.RolloutRetried{}, invalidated: map[string]string{},
		advantages: map[string]float64{}}
	var err error
	if s.books, err = ledger.Read(ctx, p.Log, run, s.keep); err != nil {
		return nil, err
	}
	if _, known := s.books.FindGroup(group); !known {
		return nil, fmt.Errorf("run %s has no group %s: it has %d, from %s on", run, app.Line(group, 80), s.books.Groups, events.GroupID(1))
	}
	return s, nil
}

func (s *source) keep(e events.Event) error {
	if e.Entity == s.group {
		switch e.Type {
		case events.GroupOpenedType:
			s.opened = e.Time
		case events.GroupDroppedType:
			dropped, err := events.Data[events.GroupDropped](e)
			s.dropped[dropped.Feed] = dropped
			return err
		case events.GroupCompletedType:
			completed, err := events.Data[events.GroupCompleted](e)
			for _, m := range completed.Members {
				if !m.Failed {
					s.advantages[m.Rollout] = m.Advantage
				}
			}
			return err
		}
		return nil
	}
	if e.Type.Kind() != events.RolloutStartedType.Kind() || events.GroupOf(e.Entity) != s.group {
		return nil
	}
	switch e.Type {
	case events.RolloutStartedType:
		s.times[e.Entity] = span{began: e.Time}
	case events.RolloutScoredType, events.RolloutFailedType:
		s.times[e.Entity] = span{s.times[e.Entity].began, e.Time}
	case events.RolloutRetriedType:
		retried, err := events.Data[events.RolloutRetried](e)
		s.retried[e.Entity] = append(s.retried[e.Entity], retried)
		return err
	case events.RolloutInvalidatedType:
		invalidated, err := events.Data[events.RolloutInvalidated](e)
		s.invalidated[e.Entity] = invalidated.Reason
		return err
	}
	return nil
}

// stopped is why an episode ended.
var stopped = map[string]string{
	events.StopFinished: "because the model was done", events.StopMaxTurns: "because it had all its turns", events.StopMaxTokens: "because it had sampled all its tokens",
	events.StopLength: "because an answer reached the model's own limit of output", events.StopContext: "because the next prompt did not fit into the server's context",
	events.StopTimeout: "because its time was over", events.StopFiltered: "because the server cut its last turn for what it says",
	events.StopUnread:  "because its last turn has a call that the server did not read, so that it is not trained on",
	events.StopUnknown: "because nobody knows why its last turn ended, so that it is not trained on",
}

// holder is who has a rollout that is in flight.
var holder = map[string]string{
	events.StageGenerator: "the model has it", events.StageTools: "its tools run", events.StageScorer: "the verifier has it", events.StageGroup: "it waits for the others of its group",
	events.StageFeed: "it waits for a batch", ledger.StageTrainer: "it is in a batch that the trainer has not taken", events.StageEnvironment: "its environment has it",
}

// ofRollout tells of one rollout.
func (s *source) ofRollout(run, id string, r *events.Rollout) tale {
	t := tale{Run: run, Group: s.group, Rollout: id, Feeds: map[string]map[string]ledger.Entry{}}
	known, _ := s.books.Find(id)
	group, _ := s.books.FindGroup(s.group)
	t.say("%s is rollout %d of %d in group %s. It works on task %s.", id, slices.Index(group.Members, id)+1, max(group.Size, len(group.Members)), s.group, known.Task)
	when := s.times[id]
	took := ""
	if !when.over.IsZero() {
		took = fmt.Sprintf(" It had its outcome %s later.", when.over.Sub(when.began).Round(100*time.Millisecond))
	}
	t.say("It was started at %s with policy version %d.%s", when.began.Local().Format(time.DateTime), known.PolicyVersion, took)
	t.work(r, known)
	for _, retry := range s.retried[id] {
		t.say("A try failed at stage %s and was made again (%s): %s", retry.Stage, retry.Class, retry.Message)
	}
	t.end(r, known)
	if why, invalidated := s.invalidated[id]; invalidated {
		t.say("It is invalidated: %s", why)
	}
	switch advantage, has := s.advantages[id]; {
	case has:
		t.say("Its group has the mean reward %.4g, and the estimator %s gives it the advantage %.4g.", group.Mean, group.Estimator, advantage)
	case group.Completed:
		t.say("Its group is complete without it.")
	default:
		t.say("Its group is not complete: %s.", s.waiting(group))
	}
	for _, feed := range s.books.Feeds() {
		entry := s.books.Entry(feed, id)
		t.Feeds[feed] = map[string]ledger.Entry{id: entry}
		t.say("%s", s.inFeed(feed, id, entry))
	}
	return t
}

// work tells of turns, tokens and tools.
func (t *tale) work(r *events.Rollout, known ledger.Rollout) {
	calls, wrong := 0, 0
	for _, done := range r.Tools {
		for _, result := range done.Results {
			calls++
			if result.Error || result.ExitCode != nil && *result.ExitCode != 0 {
				wrong++
			}
		}
	}
	sampled := known.Sampled
	if r.Finished == nil {
		for _, turn := range r.Turns {
			sampled += len(turn.TokenIDs)
		}
	}
	t.say("The model had %s and sampled %s.", plural(known.Turns, "turn"), plural(sampled, "token"))
	if r.Copied > 0 {
		t.say("It is a fork: the first %s are of its origin.", plural(r.Copied, "turn"))
	}
	if calls > 0 {
		t.say("It called tools %s; %d of the calls failed.", plural(calls, "time"), wrong)
	}
	if known.Summaries > 0 {
		t.say("It summed its work up %s.", plural(known.Summaries, "time"))
	}
}

// end tells why it ended, and its reward.
func (t *tale) end(r *events.Rollout, known ledger.Rollout) {
	if r.Finished != nil {
		why, ok := stopped[known.StopReason]
		if !ok {
			why = "with the reason " + known.StopReason
		}
		t.say("The episode ended %s.", why)
	}
	switch {
	case r.Failed != nil:
		t.say("It failed at stage %s (%s), so it has no reward: %s", r.Failed.Stage, r.Failed.Class, r.Failed.Message)
	case r.Scored != nil && r.Scored.Forfeit != nil:
		t.say("Its reward is %.4g because the agent broke its tests or its sandbox (%s): %s", r.Scored.Reward, r.Scored.Forfeit.Class, r.Scored.Forfeit.Message)
	case r.Scored != nil:
		parts := ""
		for i, name := range slices.Sorted(maps.Keys(r.Scored.Components)) {
			parts += fmt.Sprintf("%s%s %.4g", map[bool]string{true: ", made of ", false: ", "}[i == 0], name, r.Scored.Components[name])
		}
		t.say("Its reward is %.4g%s.", r.Scored.Reward, parts)
		for _, flag := range r.Scored.Flags {
			t.say("The scorer remarks: %s", flag)
		}
	default:
		t.say("It is in flight: %s.", holding(known.Stage))
	}
}

func holding(stage string) string {
	if text, ok := holder[stage]; ok {
		return text
	}
	return "stage " + stage + " has it"
}

// inFeed tells where a rollout is for a feed.
func (s *source) inFeed(feed, id string, e ledger.Entry) string {
	who := "Feed " + feed
	if feed == ledger.NoFeed {
		return "The run is an evaluation without feeds, so nothing is trained on it."
	}
	dropped, drop := s.dropped[feed]
	switch e.Outcome {
	case ledger.Trained:
		return fmt.Sprintf("%s trains on it: it is in the batch of step %d.", who, s.books.TrainedAt(feed, id))
	case ledger.Failed:
		return who + " does not train on it, because it failed."
	case ledger.InFlight:
		return fmt.Sprintf("%s has no decision yet: %s.", who, holding(e.Stage))
	case ledger.Stale:
		return fmt.Sprintf("%s dropped its group as stale: it was %s old%s.", who, plural(int(dropped.Staleness), "version"), detail(dropped.Detail))
	}
	if drop {
		return fmt.Sprintf("%s dropped its group by the filter %s%s.", who, e.Reason, detail(dropped.Detail))
	}
	return fmt.Sprintf("%s leaves it out: %s.", who, e.Reason)
}

func detail(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// waiting says how many rollouts of a group have no outcome.
func (s *source) waiting(g ledger.Group) string {
	n := 0
	for _, id := range g.Members {
		if r, _ := s.books.Find(id); !r.Over() {
			n++
		}
	}
	return plural(n+max(0, g.Size-len(g.Members)), "rollout") + " without an outcome"
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// ofGroup tells of a whole group.
func (s *source) ofGroup(run string) tale {
	t := tale{Run: run, Group: s.group, Feeds: map[string]map[string]ledger.Entry{}}
	g, _ := s.books.FindGroup(s.group)
	t.say("Group %s has %s of task %s. It was opened at %s, when the policy was at version %d.", s.group, plural(max(g.Size, len(g.Members)), "rollout"), g.Task,
		s.opened.Local().Format(time.DateTime), g.PolicyVersion)
	scored, failed := 0, map[string]int{}
	equal, first := true, 0.0
	for _, id := range g.Members {
		switch r, _ := s.books.Find(id); {
		case r.Failed:
			failed[r.Class]++
		case r.Scored:
			if scored++; scored == 1 {
				first = r.Reward
			}
			equal = equal && r.Reward == first
		}
	}
	t.say("%d of them are scored%s.", scored, failures(failed))
	switch {
	case !g.Completed:
		t.say("The group is not complete: %s.", s.waiting(g))
	case scored == 0:
		t.say("The group is complete, and none of its rollouts has a reward.")
	default:
		t.say("The mean reward is %.4g. The estimator %s compares the rollouts.", g.Mean, g.Estimator)
		if equal && scored > 1 {
			t.say("All rewards are equal, so nothing tells a good rollout from a bad one.")
		}
	}
	for _, feed := range s.books.Feeds() {
		entries, counts := map[string]ledger.Entry{}, map[string]int{}
		for _, id := range g.Members {
			entries[id] = s.books.Entry(feed, id)
			counts[s.inFeed(feed, id, entries[id])]++
		}
		t.Feeds[feed] = entries
		for _, sentence := range slices.Sorted(maps.Keys(counts)) {
			t.say("%s", ofMany(sentence, counts[sentence]))
		}
	}
	return t
}

// ofMany says of how many rollouts a sentence is that was made for one.
func ofMany(sentence string, n int) string {
	return fmt.Sprintf("%s: %s", plural(n, "rollout"), sentence)
}

func failures(classes map[string]int) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		parts = append(parts, fmt.Sprintf("%d failed (%s)", classes[class], class))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

// members are the group's rollouts as a table.
func (s *source) members(feed string) *app.Table {
	table := app.NewTable("ROLLOUT", "REWARD", "ADVANTAGE", "TURNS", "TOKENS", "OUTCOME", "REASON")
	g, _ := s.books.FindGroup(s.group)
	for _, id := range g.Members {
		r, _ := s.books.Find(id)
		reward, advantage := any("-"), any("-")
		if r.Scored {
			reward = r.Reward
		}
		if a, has := s.advantages[id]; has {
			advantage = a
		}
		entry := s.books.Entry(feed, id)
		table.Row(id, reward, advantage, r.Turns, r.Tokens, string(entry.Outcome), app.Line(entry.Reason, 60))
	}
	return table
}

// checkName refuses a name that no rollout or group can have.
func checkName(kind, name string) error {
	if !runfile.ValidToken(name) {
		return fmt.Errorf("%s %q: give an id such as g000003-1, or g000003 of a group", kind, app.Line(name, 80))
	}
	return nil
}
