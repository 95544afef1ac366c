package generator

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// speaker is an inference server whose tokens follow from what is said: a message has the same ones
// wherever it stands, so that a prompt extends the last one if and only if its messages do.
type speaker struct {
	*httptest.Server
	limit   int
	lists   bool // its limit, under /v1/models
	answers func(request int, sum bool) inference.Message

	mu       sync.Mutex
	requests [][]inference.Message // those that were answered
	sampled  [][]int32
}

// spoken are a message's tokens: ten, and of a long one more.
func spoken(m inference.Message) []int {
	calls, _ := json.Marshal(m.ToolCalls)
	n := perMessage + len(m.Content)/256*32
	if m.Role == "tool" {
		n = 2 + len(m.Content)/8
	}
	return ids(int(crc32.ChecksumIEEE([]byte(m.Role+m.Content+string(calls))))%(1<<20)*64, n)
}

const sumUp = "Sum up."

func newSpeaker(t *testing.T, limit int, answers func(request int, sum bool) inference.Message) *speaker {
	t.Helper()
	s := &speaker{limit: limit, lists: true, answers: answers}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if !s.lists {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, listVLLM, s.limit)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in inference.Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		s.answer(w, in)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *speaker) answer(w http.ResponseWriter, in inference.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var prompt []int
	for _, m := range in.Messages {
		prompt = append(prompt, spoken(m)...)
	}
	most := in.MaxTokens
	if text := refuseVLLM(len(prompt), most, s.limit); text != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, text)
		return
	}
	said := s.answers(len(s.requests), in.Messages[len(in.Messages)-1].Content == sumUp)
	if said.Content == "refuse" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"roles must alternate"}}`)
		return
	}
	said.Role = "assistant"
	tokens, reason := spoken(said), "stop"
	if most == 0 {
		most = s.limit - len(prompt)
	}
	switch {
	case len(tokens) > most:
		tokens, reason = tokens[:most], "length"
	case len(said.ToolCalls) > 0:
		reason = "tool_calls"
	}
	s.requests = append(s.requests, in.Messages)
	var sampled []int32
	for _, id := range tokens {
		sampled = append(sampled, int32(id))
	}
	s.sampled = append(s.sampled, sampled)
	logprobs := make([]any, len(tokens))
	for i := range logprobs {
		logprobs[i] = map[string]any{"logprob": -1}
	}
	json.NewEncoder(w).Encode(map[string]any{
		"prompt_token_ids": prompt,
		"choices": []any{map[string]any{"finish_reason": reason, "message": said, "token_ids": tokens,
			"logprobs": map[string]any{"content": logprobs}}},
		"usage": map[string]any{"prompt_tokens": len(prompt), "completion_tokens": len(tokens)},
	})
}

func (s *speaker) seen() ([][]inference.Message, [][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests), slices.Clone(s.sampled)
}

func reading(request int) inference.Message {
	return inference.Message{Content: fmt.Sprintf("I look %d.", request), ToolCalls: []inference.ToolCall{
		{ID: "c", Type: "function", Function: inference.Function{Name: "read_file", Arguments: "{}"}}}}
}

func saying(text string) inference.Message { return inference.Message{Content: text} }

// working asks for tools in so many requests, sums up where it is asked for that, and ends.
func working(requests int) func(int, bool) inference.Message {
	return func(request int, sum bool) inference.Message {
		switch {
		case sum:
			return saying(fmt.Sprintf("Summary %d.", request))
		case request < requests:
			return reading(request)
		}
		return saying("Done.")
	}
}

// summarising makes a run sum up. A prompt begins with 20 tokens, and each turn with its answer
// adds 12: with a limit of 100, the sixth prompt leaves fewer than a quarter.
func summarising(change func(*runfile.RunConfig)) func(*runfile.RunConfig) {
	return func(c *runfile.RunConfig) {
		c.Limits.ContextFull, c.SummaryPrompt, c.Sampling.MaxTokens = runfile.ContextSummarise, sumUp, 10
		if change != nil {
			change(c)
		}
	}
}

// play plays the tool runner until the rollout is over.
func play(t *testing.T, log *eventlog.Log, run, result string) (events.RolloutFinished,
	*storage.Trajectory, events.Rollout) {
	t.Helper()
	for {
		var r events.Rollout
		natstest.Eventually(t, run+" goes on", func() bool {
			var err error
			r, err = log.Rollout(t.Context(), run, rollout)
			return err == nil && (r.AwaitsTools() || r.Finished != nil || r.Failed != nil)
		})
		if !r.AwaitsTools() {
			if r.Failed != nil {
				t.Fatalf("%s: failed as %+v", run, r.Failed)
			}
			f, trajectory := finished(t, log, run)
			return f, trajectory, r
		}
		last := r.LastTurn()
		done := events.ToolsCompleted{Turn: last.Turn, Runner: "tester", Isolation: "none", Filesystem: "copy"}
		for _, c := range last.ToolCalls {
			done.Results = append(done.Results, events.ToolResult{CallID: c.ID, Name: c.Name, Content: result})
		}
		servicetest.Append(t, log, servicetest.Event(t, run, events.ToolsCompletedType, rollout,
			events.Ordinal(last.Turn), done))
	}
}

// shape is a rollout's turns as letters: t asks for tools, s is a summary, f is a last word; |
// stands where a segment begins behind another one.
func shape(r events.Rollout) string {
	var text strings.Builder
	for i, t := range r.Turns {
		if t.NewSegment && i > 0 {
			text.WriteString("|")
		}
		switch {
		case t.Summary != nil:
			text.WriteString("s")
		case len(t.ToolCalls) > 0:
			text.WriteString("t")
		default:
			text.WriteString("f")
		}
	}
	return text.String()
}

// TestSummary: where the context is nearly full, the model sums its work up, and goes on with the
// task and the summary alone. Each of its turns is sampled and trained on once.
func TestSummary(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, c := range map[string]struct {
		limit  int // of the server
		lists  bool
		result string
		work   int
		change func(*runfile.RunConfig)
		shape  string
		stop   string
	}{
		"once":  {100, true, "x", 8, nil, "ttttts|ttf", events.StopFinished},
		"twice": {100, true, "x", 13, nil, "ttttts|ttttts|tf", events.StopFinished},
		"named-by-the-run": {1 << 20, false, "x", 8, func(c *runfile.RunConfig) { c.Limits.Context = 100 },
			"ttttts|ttf", events.StopFinished},
		"only-refused": {220, false, strings.Repeat("x", 300), 8, nil, "tttts|ttts|f", events.StopFinished},
		"truncated": {100, true, "x", 20, func(c *runfile.RunConfig) {
			c.Limits.ContextFull,
				c.SummaryPrompt = "", ""
		}, "ttttttf", events.StopContext},
		"used-up": {100, true, "x", 40, func(c *runfile.RunConfig) { c.Limits.Summaries = 1 },
			"ttttts|ttttttf", events.StopContext},
		"no-turn-left": {100, true, "x", 40, func(c *runfile.RunConfig) { c.Limits.Turns = 6 },
			"tttttt", events.StopMaxTurns},
		"one-turn-left": {100, true, "x", 40, func(c *runfile.RunConfig) { c.Limits.Turns = 7 },
			"ttttts|t", events.StopMaxTurns},
		"tokens-begin-anew": {100, true, "x", 8, func(c *runfile.RunConfig) { c.Limits.Tokens = 80 },
			"ttttts|ttf", events.StopFinished},
		"long-answers": {100, true, strings.Repeat("x", 300), 4, nil, "tts|tf", events.StopFinished},
	} {
		s := newSpeaker(t, c.limit, working(c.work))
		s.lists = c.lists
		open(t, log, name, s.URL, summarising(c.change))
		f, trajectory, r := play(t, log, name, c.result)
		requests, sampled := s.seen()
		segments := strings.Count(c.shape, "|") + 1
		if shape(r) != c.shape || f.StopReason != c.stop || f.Turns != len(r.Turns) ||
			f.Samples != segments || f.TextOnly {
			t.Errorf("%s: %s, finished as %+v", name, shape(r), f)
			continue
		}
		checkSegments(t, name, r, trajectory, sampled)
		for i, turn := range r.Turns {
			if i == 0 || r.Turns[i-1].Summary == nil {
				continue
			}
			asked := requests[i]
			if want := "Do a." + behindInstruction + r.Turns[i-1].Content; turn.SegmentCause != events.CauseSummary ||
				len(asked) != 2 || asked[1].Role != "user" ||
				!strings.HasSuffix(asked[1].Content, behindInstruction+r.Turns[i-1].Content) {
				t.Errorf("%s: turn %d began a segment by %q and was asked %+v, want %q", name, i,
					turn.SegmentCause, asked, want)
			}
		}
		if retried := servicetest.All(t, log, name, events.RolloutRetriedType,
			events.RolloutFailedType); len(retried) != 0 {
			t.Errorf("%s: failures on the log: %v", name, servicetest.IDs(retried))
		}
	}
}

// checkSegments holds a rollout's samples to what its server has sampled: each turn once, in order,
// and every prompt as it was.
func checkSegments(t *testing.T, name string, r events.Rollout, trajectory *storage.Trajectory, sampled [][]int32) {
	t.Helper()
	if len(sampled) != len(r.Turns) {
		t.Errorf("%s: %d turns of %d requests", name, len(r.Turns), len(sampled))
	}
	var trained []int32
	samples := trajectory.Samples()
	for _, s := range samples {
		for i, yes := range s.LossMask {
			if yes {
				trained = append(trained, s.Tokens[i])
			}
		}
		if int(s.RolloutSampled) != len(slices.Concat(sampled...)) || int(s.SamplesInRollout) != len(samples) {
			t.Errorf("%s: sample %d is one of %d, and counts %d tokens", name, s.SampleIndex,
				s.SamplesInRollout, s.RolloutSampled)
		}
	}
	equal(t, name+": what is trained on", trained, slices.Concat(sampled...))
	segment := int32(0)
	for i, m := range trajectory.Messages {
		if m.Segment != segment && (m.Segment != segment+1 || m.Role == "assistant" || m.Role == events.RolePrompt) {
			t.Errorf("%s: segment %d begins with row %d of %s", name, m.Segment, i, m.Role)
		}
		segment = m.Segment
	}
}

// TestSummaryFails: where no summary comes of it, or it does not make the prompt short enough, the
// rollout ends as it would without.
func TestSummaryFails(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, c := range map[string]struct {
		summary inference.Message
		turns   string
	}{
		"empty":         {saying(" \n"), "ttttts"},
		"thoughts":      {saying("So what have I done?</think>\n"), "ttttts"},
		"calls-a-tool":  {inference.Message{ToolCalls: reading(0).ToolCalls}, "ttttts"},
		"is-refused":    {saying("refuse"), "ttttt"},
		"does-not-help": {saying(strings.Repeat("word ", 600)), "ttttts"},
	} {
		s := newSpeaker(t, 100, func(request int, sum bool) inference.Message {
			if sum {
				return c.summary
			}
			return reading(request)
		})
		open(t, log, name, s.URL, summarising(nil))
		f, trajectory, r := play(t, log, name, "x")
		if shape(r) != c.turns || f.StopReason != events.StopContext || f.Turns != len(r.Turns) || f.Samples != 1 {
			t.Errorf("%s: %s, finished as %+v", name, shape(r), f)
		}
		_, sampled := s.seen()
		checkSegments(t, name, r, trajectory, sampled)
		if last := r.LastTurn(); name == "calls-a-tool" &&
			(last.Summary.Calls != 1 || len(last.ToolCalls) != 0 || len(r.Tools) != 5) {
			t.Errorf("%s: the summary is %+v, and %d turns have answers", name, last, len(r.Tools))
		}
	}
}

// TestCallsOfASummaryAreIgnored: a summary with a tool call is taken by its text,
// and nobody runs the call.
func TestCallsOfASummaryAreIgnored(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	s := newSpeaker(t, 100, func(request int, sum bool) inference.Message {
		if sum {
			return reading(request)
		}
		return working(7)(request, sum)
	})
	open(t, log, "r", s.URL, summarising(nil))
	_, trajectory, r := play(t, log, "r", "x")
	if summary := r.Turns[5]; shape(r) != "ttttts|tf" && shape(r) != "ttttts|ttf" || summary.Summary.Calls != 1 ||
		len(r.Tools) != len(r.Turns)-2 {
		t.Errorf("%s, with the summary %+v", shape(r), summary.Summary)
	}
	for _, m := range trajectory.Messages {
		if m.Turn == 5 && m.ToolCalls != "" {
			t.Errorf("the trajectory has the call: %+v", m)
		}
	}
	for _, e := range servicetest.All(t, log, "r", events.TurnSampledType) {
		if (e.Route == runfile.RouteSummary) != (e.ID == events.ID("r", e.Type, rollout, "5")) {
			t.Errorf("%s has the route %s", e.ID, e.Route)
		}
	}
}

// TestWithheldResults: an answer of a tool that fills the context is left out of the summary's
// prompt, and of the row that says what the model has seen.
func TestWithheldResults(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	s := newSpeaker(t, 100, working(2))
	open(t, log, "r", s.URL, summarising(nil))
	_, trajectory, r := play(t, log, "r", strings.Repeat("x", 400))
	requests, sampled := s.seen()
	if shape(r) != "ts|f" || !r.Turns[1].Summary.Withheld {
		t.Fatalf("%s with %+v", shape(r), r.Turns[1].Summary)
	}
	if asked := requests[1]; asked[3].Content != events.WithheldResult || asked[4].Content != sumUp {
		t.Errorf("for the summary it was asked %+v", asked)
	}
	checkSegments(t, "r", r, trajectory, sampled)
	if m := trajectory.Messages[3]; m.Role != "tool" || m.Content != events.WithheldResult ||
		len(r.Tools.Answer(0).Results[0].Content) != 400 {
		t.Errorf("the row is %+v", m)
	}
}

// TestKilledBehindASummary: a generator dies when the summary is sampled, or when it is on the log.
// What is on the log is not asked for again.
func TestKilledBehindASummary(t *testing.T) {
	log := natstest.Log(t)
	for name, recorded := range map[string]bool{"before": false, "behind": true} {
		s := newSpeaker(t, 100, working(8))
		stop := start(t, log, nil)
		open(t, log, name, s.URL, summarising(nil))
		for i := range 5 {
			last := turns(t, log, name, i+1)[i]
			if i == 4 {
				stop()
			}
			answerTools(t, log, name, last)
		}
		all := servicetest.All(t, log, name, events.ToolsCompletedType)
		facts, err := service(t, log).Handle(t.Context(), messageOf(log, all[4]))
		if !errors.Is(err, pipeline.ErrCallAgain) || len(facts) != 1 || facts[0].Route != runfile.RouteSummary {
			t.Fatalf("%s: %v, %v", name, servicetest.IDs(facts), err)
		}
		want := 2
		if recorded {
			servicetest.Append(t, log, facts[0])
			want = 1
		}
		stop = start(t, log, nil)
		_, trajectory, r := play(t, log, name, "x")
		stop()
		requests, sampled := s.seen()
		sums := 0
		for i, asked := range requests {
			if asked[len(asked)-1].Content != sumUp {
				continue
			}
			if sums++; sums < want { // this one is on no log
				sampled = slices.Delete(sampled, i, i+1)
			}
		}
		if sums != want || shape(r) != "ttttts|ttf" && shape(r) != "ttttts|tf" {
			t.Errorf("%s: %s, with %d requests for a summary, want %d", name, shape(r), sums, want)
		}
		checkSegments(t, name, r, trajectory, sampled)
	}
}

// TestProgressOfASummary: it stays the generator's, with the input that the generator has.
func TestProgressOfASummary(t *testing.T) {
	r := &events.Rollout{Turns: []events.TurnSampled{{ToolCalls: []events.ToolCall{{ID: "c"}}},
		{Turn: 1, Content: "so far", Summary: &events.Summary{}, PromptTokens: 90, CompletionTokens: 20}},
		Tools: events.ToolAnswers{{}}}
	if what, stop := next(r, runfile.TaskSpec{}, runfile.Limits{Turns: 10, Tokens: 100}); what != sample ||
		r.AwaitsTools() {
		t.Errorf("behind a summary: step %d with %q", what, stop)
	}
	r.Turns[1].FinishReason, r.Turns[1].ContextLimit = "length", 110
	if what, _ := next(r, runfile.TaskSpec{}, runfile.Limits{Turns: 10, Tokens: 100}); what != sample {
		t.Errorf("behind a summary that was cut: step %d", what)
	}
}
