package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/plane"
	"github.com/rondo-rl/rondo/tests/program"
)

const perAnswer = 10 // tokens

// exchange is what a scripted server was asked and answered.
type exchange struct{ prompt, sampled []int32 }

// everyDrift is how often an answer's prompt has an earlier answer as other tokens than were
// sampled, which it keeps.
const everyDrift = 13

// scribe is an inference server that remembers what it sampled. Each answer has tokens that no
// other one has; a message has the same ones wherever it stands, until it drifts. So often it says
// who is to be killed: the generator, whose answer it keeps back until that is dead, or the tool
// runner, whose command it makes a slow one.
type scribe struct {
	t               *testing.T
	limit, commands int // tokens of the context; commands of a rollout
	kills, every    int
	condemn         chan string // the slow command, or "" for the generator
	mu              sync.Mutex
	ids             map[string][]int32 // by message
	nextID          int32
	answers, begun  int
	drifts          int
	said            map[int32]exchange // by the first token of the answer
}

func newScribe(t *testing.T, limit, commands, kills, every int) (s *scribe, url string) {
	t.Helper()
	s = &scribe{t: t, limit: limit, commands: commands, kills: kills, every: every, condemn: make(chan string, kills),
		ids: map[string][]int32{}, said: map[int32]exchange{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":"small","object":"model","owned_by":"vllm","max_model_len":%d}]}`, limit)
	})
	mux.HandleFunc("POST /v1/chat/completions", s.complete)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return s, server.URL + "/v1"
}

// tokens are those of a message.
func (s *scribe) tokens(m inference.Message) []int32 {
	n := perAnswer
	if m.Role == "tool" {
		n = 2
	}
	text := m.Role + m.Content
	for len(s.ids[text]) < n {
		s.ids[text] = append(s.ids[text], s.nextID)
		s.nextID++
	}
	return s.ids[text]
}

// drift gives the last answer in a conversation other tokens, as a template
// does that writes it anew.
func (s *scribe) drift(messages []inference.Message) {
	for _, m := range slices.Backward(messages) {
		if m.Role == "assistant" {
			delete(s.ids, m.Role+m.Content)
			s.drifts++
			return
		}
	}
}

func (s *scribe) complete(w http.ResponseWriter, r *http.Request) {
	var in inference.Request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // who asked died amid its request, or its rollout fails
		return
	}
	said, e, keep := s.answer(in.Messages)
	if keep {
		<-r.Context().Done()
		return
	}
	reason, logprobs := "stop", make([]any, len(e.sampled))
	if len(said.ToolCalls) > 0 {
		reason = "tool_calls"
	}
	for i := range logprobs {
		logprobs[i] = map[string]any{"logprob": -1}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{ // who asked may be dead
		"prompt_token_ids": e.prompt,
		"choices": []any{map[string]any{"finish_reason": reason, "message": said, "token_ids": e.sampled,
			"logprobs": map[string]any{"content": logprobs}}},
		"usage": map[string]any{"prompt_tokens": len(e.prompt), "completion_tokens": len(e.sampled)},
	})
}

// answer is the next one, which is kept back or not.
func (s *scribe) answer(messages []inference.Message) (said inference.Message, e exchange, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers%everyDrift == 0 {
		s.drift(messages)
	}
	for _, m := range messages {
		e.prompt = append(e.prompt, s.tokens(m)...)
	}
	s.answers++
	said = inference.Message{Role: "assistant", Content: fmt.Sprintf("Answer %d.", s.answers)}
	last, done := messages[len(messages)-1], 0
	if last.Role == "tool" {
		_, _ = fmt.Sscan(last.Content, &done) // an error of the tool is no number: the test sees it on the log
	}
	condemned := s.begun < s.kills && s.answers >= (s.begun+1)*s.every
	if last.Content != "Sum up." && done < s.commands {
		slow := "true"
		if condemned && s.begun%2 == 1 {
			condemned = false
			slow = fmt.Sprintf("sleep 5.%04d%05d", s.begun, os.Getpid()%100000)
			s.begun++
			s.condemn <- slow
		}
		command := fmt.Sprintf("echo %d >> log; %s; wc -l < log; tail -n 2 log", s.answers, slow)
		arguments, _ := json.Marshal(map[string]any{"command": command, "is_background": false}) // of strings: no error
		said.ToolCalls = []inference.ToolCall{{ID: fmt.Sprint(s.answers), Type: "function",
			Function: inference.Function{Name: "run_terminal_cmd", Arguments: inference.Arguments(arguments)}}}
	}
	if condemned && s.begun%2 == 0 {
		keep = true
		s.begun++
		s.condemn <- ""
	}
	e.sampled = s.tokens(said)
	s.said[e.sampled[0]] = e
	return said, e, keep
}

// TestLongRolloutsWithKills: the generator dies with sampled answers in its hands and the tool
// runner amid commands, again and again, while rollouts sum their work up and answers come back as
// other tokens. Each turn is on the log once, each command was run on what the one before left, and
// a batch has the tokens that were sampled, behind the prompts for which they were.
// RONDO_LONG_KILLS=1 makes 20 rollouts of 300 turns and 50 kills of it.
func TestLongRolloutsWithKills(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	rollouts, commands, limit, kills := nightly.Count(2, 4), 14, 100, nightly.Count(2, 4)
	if os.Getenv("RONDO_LONG_KILLS") == "1" {
		rollouts, commands, limit, kills = 20, 295, 1000, 50
	}
	log, url, objects := outside(t)
	s, endpoint := newScribe(t, limit, commands, kills, rollouts*commands/(kills+1))
	cfg := servicetest.Config("a")
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(),
		sandboxtest.Pack(t, map[string]string{"README": "Count.\n"}))
	cfg.Tasks[0].Tests = servicetest.Blob(t, log.Store(),
		sandboxtest.Pack(t,
			map[string]string{"test.sh": "[ -z \"$(sort log | uniq -d)\" ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n"}))
	cfg.Endpoint, cfg.GroupSize, cfg.Steps, cfg.Feeds = endpoint, rollouts, 1,
		[]runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	cfg.Limits.Turns, cfg.Limits.Tokens, cfg.Limits.Timeout = 2*commands, 1<<30, runfile.Duration(24*time.Hour)
	cfg.Limits.ContextFull, cfg.Limits.Summaries, cfg.SummaryPrompt, cfg.Sampling.MaxTokens = runfile.ContextSummarise,
		1000, "Sum up.", perAnswer
	plane.Start(t, log, "r", cfg)

	services := map[string]*program.Process{}
	dirs := map[string]string{"generator": t.TempDir(), "toolrunner": t.TempDir()}
	startAgain := func(name string) {
		if p := services[name]; p != nil {
			p.Kill()
		}
		services[name] = start(t, "service", name, "--nats", url, "--store", objects, "--dir", dirs[name])
	}
	startAgain("generator")
	startAgain("toolrunner")
	for i := range kills {
		var slow string
		select {
		case slow = <-s.condemn:
		case <-time.After(program.Patience):
			t.Fatalf("kill %d never comes\n%s\n%s", i, services["generator"], services["toolrunner"])
		}
		if slow == "" {
			startAgain("generator")
			continue
		}
		program.Eventually(t, func() error {
			if len(running(t, slow)) == 0 {
				return errors.New(slow + " does not run\n" + services["toolrunner"].String())
			}
			return nil
		})
		startAgain("toolrunner")
	}
	var ready events.BatchReady
	program.Eventually(t, func() error {
		all := servicetest.All(t, log, "r", events.BatchReadyType)
		if len(all) != 1 {
			return fmt.Errorf("%d batches\n%s\n%s", len(all), services["generator"], services["toolrunner"])
		}
		ready = servicetest.Data[events.BatchReady](t, all[0])
		return nil
	})
	plane.Prove(t, log, "r")
	if bad := servicetest.All(t, log, "r", events.RolloutFailedType, events.RolloutRetriedType); len(bad) > 0 {
		t.Errorf("killed services cost tries: %v", servicetest.IDs(bad))
	}
	if scored := servicetest.All(t, log, "r", events.RolloutScoredType); len(scored) != rollouts ||
		len(ready.Rollouts) != rollouts {
		t.Errorf("%d rewards, and %d rollouts in the batch: %v", len(scored), len(ready.Rollouts),
			servicetest.IDs(scored))
	}
	turns, all := 0, samplesOf(t, log, ready)
	for _, id := range ready.Rollouts {
		r, err := log.Rollout(t.Context(), "r", id)
		if err != nil {
			t.Fatal(err)
		}
		turns += len(r.Turns)
		s.checkTurns(&r, commands)
		s.checkSamples(&r, slices.DeleteFunc(slices.Clone(all), func(s storage.Sample) bool { return s.Rollout != id }))
	}
	if s.drifts == 0 {
		t.Error("no answer was written anew")
	}
	t.Logf("%d kills, %d turns on the log of %d that were sampled, %d samples of %d rollouts", kills, turns,
		s.answers, len(all), rollouts)
}

// samplesOf are those of a batch, in order.
func samplesOf(t *testing.T, log *eventlog.Log, ready events.BatchReady) (all []storage.Sample) {
	t.Helper()
	for _, ref := range ready.Files {
		data, err := storage.GetBlob(t.Context(), log.Store(), ref)
		if err != nil {
			t.Fatal(err)
		}
		file, err := storage.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Samples...)
	}
	return all
}

// checkTurns holds the turns on the log to what was sampled, and their commands to a file that has
// a line of each turn before.
func (s *scribe) checkTurns(r *events.Rollout, commands int) {
	lines := []int{}
	for i, turn := range r.Turns {
		if said, known := s.said[turn.TokenIDs[0]]; !known || turn.Turn != i ||
			!slices.Equal(turn.TokenIDs, said.sampled) || turn.PromptTokens != len(said.prompt) {
			s.t.Errorf("%s: turn %d is not what was sampled: %v for %d tokens, want %v for %d", r.ID, i, turn.TokenIDs,
				turn.PromptTokens, said.sampled, len(said.prompt))
		}
		if len(turn.ToolCalls) == 0 {
			continue
		}
		var number int
		if _, err := fmt.Sscanf(turn.Content, "Answer %d.", &number); err != nil {
			s.t.Error(err)
		}
		lines = append(lines, number)
		want := fmt.Sprintln(len(lines))
		for _, n := range lines[max(0, len(lines)-2):] {
			want += fmt.Sprintln(n)
		}
		if results := r.Tools.Answer(i).Results; len(results) != 1 || !strings.HasPrefix(results[0].Content, want) {
			s.t.Errorf("%s: the command of turn %d answered %+v, want %q", r.ID, i, results, want)
		}
	}
	if len(lines) < commands || r.Finished == nil || r.Finished.StopReason != events.StopFinished {
		s.t.Errorf("%s: %d commands, finished as %+v", r.ID, len(lines), r.Finished)
	}
}

// checkSamples holds what is trained on to what was sampled: each turn once and in order, behind
// the prompt for which it was sampled, and with the one reward.
func (s *scribe) checkSamples(r *events.Rollout, samples []storage.Sample) {
	var trained, sampled []int32
	summaries, segments := 0, 0
	for _, turn := range r.Turns {
		if turn.NewSegment {
			segments++
		}
		sampled = append(sampled, turn.TokenIDs...)
		if turn.Summary != nil {
			summaries++
		}
	}
	for _, sample := range samples {
		for i := 0; i < len(sample.Tokens); i++ {
			if !sample.LossMask[i] {
				continue
			}
			said := s.said[sample.Tokens[i]]
			end := i + len(said.sampled)
			if end == i || end > len(sample.Tokens) || !slices.Equal(sample.Tokens[:i], said.prompt) ||
				!slices.Equal(sample.Tokens[i:end], said.sampled) || slices.Contains(sample.LossMask[i:end], false) {
				s.t.Fatalf("%s: token %d of sample %d does not begin what was sampled for the tokens before it", r.ID,
					i, sample.SampleIndex)
			}
			trained, i = append(trained, said.sampled...), end-1
		}
		if sample.Reward != 1 || int(sample.RolloutSampled) != len(sampled) ||
			int(sample.SamplesInRollout) != segments {
			s.t.Errorf("%s: sample %d has reward %g, is one of %d, and counts %d tokens of %d", r.ID,
				sample.SampleIndex, sample.Reward, sample.SamplesInRollout, sample.RolloutSampled, len(sampled))
		}
	}
	if summaries == 0 || segments <= summaries || len(samples) != segments || !slices.Equal(trained, sampled) {
		s.t.Errorf("%s: %d summaries, %d segments, %d samples, %d tokens trained on, %d sampled", r.ID, summaries,
			segments, len(samples), len(trained), len(sampled))
	}
}
