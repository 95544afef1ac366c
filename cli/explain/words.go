package explain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// tale is what is told of a group or of one of its rollouts, in sentences.
type tale struct {
	Run       string   `json:"run"`
	Group     string   `json:"group"`
	Rollout   string   `json:"rollout,omitempty"`
	Sentences []string `json:"sentences"`
	*Evidence
	// Feeds say where the rollout is, or the rollouts are, for each feed.
	Feeds map[string]map[string]books.Entry `json:"feeds"`
}

func (t *tale) say(format string, args ...any) {
	t.Sentences = append(t.Sentences, app.Line(fmt.Sprintf(format, args...), 500))
}

func (t *tale) print(w io.Writer) {
	for _, sentence := range t.Sentences {
		fmt.Fprintln(w, sentence)
	}
}

// source is what a tale is made of: the books of the run, with the details of one group's rollouts.
type source struct {
	books *books.Run
	group string
	// said has a digest of each turn of the group's rollouts, by its number:
	// its words and its calls.
	said map[string]map[int][sha256.Size]byte
}

// readSource folds the run's log, or its archive, once.
func readSource(ctx context.Context, p *plane.Plane, run, group string) (*source, error) {
	s := &source{books.New(run), group, map[string]map[int][sha256.Size]byte{}}
	s.books.Detailed = func(rollout string) bool { return events.GroupOf(rollout) == group }
	if err := s.books.Read(ctx, p.Log.Reader, s.listen); err != nil {
		return nil, err
	}
	if _, known := s.books.FindGroup(group); !known {
		return nil, fmt.Errorf("run %s has no group %s: it has %d, from %s on", run, app.Line(group, 80),
			s.books.Groups, events.GroupID(1))
	}
	return s, nil
}

// stopped is why an episode ended.
var stopped = map[string]string{
	events.StopFinished: "because the model was done", events.StopMaxTurns: "because it had all its turns",
	events.StopMaxTokens: "because it had sampled all its tokens",
	events.StopLength:    "because an answer reached the model's own limit of output",
	events.StopContext:   "because the next prompt did not fit into the server's context",
	events.StopTimeout:   "because its time was over",
	events.StopFiltered:  "because the server cut its last turn for what it says",
	events.StopExit:      "because its agent ended with an error",
	events.StopOutput:    "because its agent wrote too much output",
	events.StopUnread:    "because its last turn has a call that the server did not read, so that it is not trained on",
	events.StopUnknown:   "because nobody knows why its last turn ended, so that it is not trained on",
}

// holder is who has a rollout that is in flight.
var holder = map[string]string{
	events.StageGenerator: "the model has it", events.StageTools: "its tools run",
	events.StageScorer: "it waits for its score", events.StageGroup: "it waits for the others of its group",
	events.StageFeed: "it waits for a batch", books.StageTrainer: "it is in a batch that the trainer has not taken",
	events.StageEnvironment: "its environment has it",
}

// ofRollout tells of one rollout.
func (s *source) ofRollout(run, id string, r *events.Rollout) tale {
	t := tale{Run: run, Group: s.group, Rollout: id, Feeds: map[string]map[string]books.Entry{}}
	known, _ := s.books.Find(id)
	group, _ := s.books.FindGroup(s.group)
	t.say("%s is rollout %d of %d in group %s. It works on task %s.", id, slices.Index(group.Members, id)+1,
		max(group.Size, len(group.Members)), s.group, known.Task)
	took := ""
	if !known.Ended.IsZero() {
		took = fmt.Sprintf(" It had its outcome %s later.", known.Ended.Sub(known.Began).Round(100*time.Millisecond))
	}
	t.say("It was started at %s with policy version %d.%s", known.Began.Local().Format(time.DateTime),
		known.PolicyVersion, took)
	t.work(r, known)
	if known.Detail == nil {
		known.Detail = &books.Detail{} // it was never started
	}
	for _, retry := range known.Detail.Retried {
		if retry.Behind > 0 {
			t.say("Its agent was lost (%s) and started anew behind %s: %s", retry.Class,
				app.Plural(retry.Behind, "recorded turn"), retry.Message)
			continue
		}
		t.say("A try failed at stage %s and was made again (%s): %s", retry.Stage, retry.Class, retry.Message)
	}
	t.end(r, known)
	if known.Invalidated {
		t.say("It is invalidated: %s", known.Detail.Invalidated)
	}
	switch {
	case known.Compared():
		t.say("Its group has the mean reward %.4g, and the estimator %s gives it the advantage %.4g.", group.Mean,
			group.Estimator, known.Advantage())
	case group.Completed:
		t.say("Its group is complete without it.")
	default:
		t.say("Its group is not complete: %s.", s.waiting(group))
	}
	for _, feed := range s.books.Feeds() {
		entry := s.books.Entry(feed, id)
		t.Feeds[feed] = map[string]books.Entry{id: entry}
		t.say("%s", s.inFeed(feed, id, entry))
	}
	return t
}

// work tells of turns, tokens and tools.
func (t *tale) work(r *events.Rollout, known books.Rollout) {
	calls, failed, exited := 0, 0, 0
	for _, done := range r.Tools {
		for _, result := range done.Results {
			calls++
			switch {
			case result.Error:
				failed++
			case result.ExitCode != nil && *result.ExitCode != 0:
				exited++
			}
		}
	}
	sampled := known.Sampled
	if r.Finished == nil {
		for _, turn := range r.Turns {
			sampled += len(turn.TokenIDs)
		}
	}
	if r.Finished != nil && r.Finished.TextOnly {
		t.say("The model had %s, recorded as text only: the tokens are unknown.", app.Plural(known.Turns, "turn"))
	} else {
		t.say("The model had %s and sampled %s.", app.Plural(known.Turns, "turn"), app.Plural(sampled, "token"))
	}
	if r.Copied > 0 {
		t.say("It is a fork: the first %s are of its origin.", app.Plural(r.Copied, "turn"))
	}
	if calls > 0 {
		t.say("It called tools %s: %d of the calls failed, and %s ended with another exit code than 0.",
			app.Plural(calls, "time"), failed, app.Plural(exited, "command"))
	}
	if ended := r.AgentEnded(); ended != nil {
		code := ""
		if exit := r.Answers[len(r.Answers)-1].ExitCode; exit != nil {
			code = fmt.Sprintf(" with code %d", *exit)
		}
		t.say("Its agent ended%s. It made %s of its model, of which %d were refused.", code,
			app.Plural(ended.Requests, "request"), ended.Refused)
		if ended.OutOfMemory {
			t.say("A process of it was killed for want of memory: `environment.memory_mb` of the task is the limit of its sandbox.")
		}
		if ended.Recalled+len(ended.Left) > 0 {
			t.say("It asked for %s again, which the log had. It left %s behind, which are no part of the episode.",
				app.Plural(ended.Recalled, "turn"),
				app.Plural(len(ended.Left), "turn"))
		}
	}
	if known.Summaries > 0 {
		t.say("It summed its work up %s.", app.Plural(known.Summaries, "time"))
	}
}

// end tells why it ended, and its reward.
func (t *tale) end(r *events.Rollout, known books.Rollout) {
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
		t.say("Its reward is %.4g because the agent broke its tests or its sandbox (%s): %s", r.Scored.Reward,
			r.Scored.Forfeit.Class, r.Scored.Forfeit.Message)
	case r.Scored != nil:
		parts := ""
		for i, name := range slices.Sorted(maps.Keys(r.Scored.Components)) {
			parts += fmt.Sprintf("%s%s %.4g", map[bool]string{true: ", made of ", false: ", "}[i == 0], name,
				r.Scored.Components[name])
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
func (s *source) inFeed(feed, id string, e books.Entry) string {
	who := "Feed " + feed
	if feed == books.NoFeed {
		return "The run is an evaluation without feeds, so nothing is trained on it."
	}
	dropped, drop := s.books.Dropped(feed, s.group)
	switch e.Outcome {
	case books.Trained:
		return fmt.Sprintf("%s trains on it: it is in the batch of step %d.", who, s.books.TrainedAt(feed, id))
	case books.Failed:
		return who + " does not train on it, because it failed."
	case books.InFlight:
		return fmt.Sprintf("%s has no decision yet: %s.", who, holding(e.Stage))
	case books.Stale:
		return fmt.Sprintf("%s dropped its group as stale: it was %s old%s.", who,
			app.Plural(int(dropped.Staleness), "version"), detail(dropped.Detail))
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
func (s *source) waiting(g books.Group) string {
	n := 0
	for _, id := range g.Members {
		if r, _ := s.books.Find(id); !r.HasOutcome() {
			n++
		}
	}
	return app.Plural(n+max(0, g.Size-len(g.Members)), "rollout") + " without an outcome"
}

// ofGroup tells of a whole group.
func (s *source) ofGroup(run string) tale {
	t := tale{Run: run, Group: s.group, Feeds: map[string]map[string]books.Entry{}}
	g, _ := s.books.FindGroup(s.group)
	t.say("Group %s has %s of task %s. It was opened at %s, when the policy was at version %d.", s.group,
		app.Plural(max(g.Size, len(g.Members)), "rollout"), g.Task,
		g.Opened.Local().Format(time.DateTime), g.PolicyVersion)
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
		entries, counts := map[string]books.Entry{}, map[string]int{}
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
	return fmt.Sprintf("%s: %s", app.Plural(n, "rollout"), sentence)
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
		if r.Compared() {
			advantage = r.Advantage()
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
