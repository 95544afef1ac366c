package generator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

const rollout = "g000001-0"

// tries is how often a stage is tried in these tests.
const tries = 3

func start(t *testing.T, log *eventlog.Log, change func(*Options)) (stop func()) {
	t.Helper()
	opts := DefaultOptions()
	if change != nil {
		change(&opts)
	}
	env := servicetest.Env(t, log)
	servers := servicetest.Fleet(t, env, nil)
	return servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, servers, opts) })
}

// service is one that the test itself hands inputs.
func service(t *testing.T, log *eventlog.Log) *Service {
	t.Helper()
	env := servicetest.Env(t, log)
	return newService(env, servicetest.Fleet(t, env, nil), DefaultOptions())
}

// record hands a service an input as the runtime does.
func record(t *testing.T, log *eventlog.Log, s *Service, e events.Event) error {
	t.Helper()
	return pipeline.Effect{Name: topology.Generator, Handle: s.Handle}.Record(t.Context(), pipeline.Env{Log: log},
		messageOf(log, e))
}

// open opens a run at an endpoint and starts one rollout in it.
func open(t *testing.T, log *eventlog.Log, run, url string, change func(*runfile.RunConfig)) {
	t.Helper()
	cfg := servicetest.Config("a")
	cfg.Endpoint, cfg.Limits.Tries = url+"/v1", tries
	if change != nil {
		change(&cfg)
	}
	servicetest.OpenRun(t, log, run, cfg)
	servicetest.StartRollout(t, log, run, rollout, "a")
}

// answerTools states what a tool runner would.
func answerTools(t *testing.T, log *eventlog.Log, run string, turn events.TurnSampled) {
	t.Helper()
	done := events.ToolsCompleted{Turn: turn.Turn, Runner: "tester", Isolation: "none", Filesystem: "copy"}
	for _, c := range turn.ToolCalls {
		done.Results = append(done.Results, events.ToolResult{CallID: c.ID, Name: c.Name,
			Content: "seen " + c.Arguments})
	}
	servicetest.Append(t, log, servicetest.Event(t, run, events.ToolsCompletedType, rollout,
		events.Ordinal(turn.Turn), done))
}

// turns waits for n turns of the rollout.
func turns(t *testing.T, log *eventlog.Log, run string, n int) []events.TurnSampled {
	t.Helper()
	var list []events.TurnSampled
	for _, e := range servicetest.Wait(t, log, run, events.TurnSampledType, rollout, n) {
		list = append(list, servicetest.Data[events.TurnSampled](t, e))
	}
	return list
}

// finished waits for the end of the episode and reads its trajectory file.
func finished(t *testing.T, log *eventlog.Log, run string) (events.RolloutFinished, *storage.Trajectory) {
	t.Helper()
	f := servicetest.WaitData[events.RolloutFinished](t, log, run, events.RolloutFinishedType, rollout)
	return f, fileOf(t, log, f)
}

// fileOf reads the trajectory file of a rollout.
func fileOf(t *testing.T, log *eventlog.Log, f events.RolloutFinished) *storage.Trajectory {
	t.Helper()
	data, err := storage.GetBlob(t.Context(), log.Store(), f.Trajectory)
	if err != nil {
		t.Fatal(err)
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		t.Fatal(err)
	}
	return trajectory
}

// TestEndpointThatMisbehaves opens a run for each way in which an endpoint can be wrong.
func TestEndpointThatMisbehaves(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	closed := serve(t, text(final))
	closed.URL = "http://127.0.0.1:1" // nobody is there; a port that is given back is soon another server's
	manyCalls := `{"choices":[{"finish_reason":"tool_calls","message":{"tool_calls":[` +
		strings.Repeat(`{"id":"","function":{"name":"x"}},`, inference.MaxToolCalls) + `{"function":{}}]}}]}`
	abort := text(`{"choices":[{"finish_reason":"abort","message":{"content":"half"}}]}`)
	logprob := func(value string) string { return strings.Replace(final, "-0.5", value, 1) }
	cases := map[string]struct {
		answers []answer
		retried int
		class   string // "" ends well
		message string
	}{
		"recovers": {[]answer{status(500), status(503), text(final)}, 1, "", ""},
		"always-500": {[]answer{status(500)}, tries - 1, events.ClassEndpoint,
			"500 Internal Server Error: \"the server is not well\" (3 tries)"},
		"is-not-there":         {nil, tries - 1, events.ClassEndpoint, "refused"},
		"bad-request":          {[]answer{status(400)}, 0, events.ClassRefused, "400 Bad Request"},
		"unprocessable":        {[]answer{status(422)}, 0, events.ClassRefused, "422"},
		"wrong-key":            {[]answer{status(401), text(final)}, 1, "", ""},
		"model-being-loaded":   {[]answer{status(404), text(final)}, 1, "", ""},
		"no-json":              {[]answer{text("<html>")}, tries - 1, events.ClassBadResponse, "invalid character"},
		"json-that-ends-early": {[]answer{text(final[:80])}, tries - 1, events.ClassBadResponse, "unexpected end"},
		"no-choices": {[]answer{text(`{"choices":[]}`)}, tries - 1, events.ClassBadResponse,
			"0 choices instead of 1"},
		"two-choices": {[]answer{text(`{"choices":[{},{}]}`)}, tries - 1, events.ClassBadResponse,
			"2 choices instead of 1"},
		"calls-of-no-shape": {[]answer{text(
			`{"choices":[{"finish_reason":"tool_calls","message":{"tool_calls":"read it"}}]}`), text(final)}, 1, "",
			""},
		"too-many-calls": {[]answer{text(manyCalls)}, tries - 1, events.ClassBadResponse, "65 tool calls"},
		"aborts":         {[]answer{abort, text(final)}, 0, "", ""},
		// more often than a stage is tried
		"aborts-again": {[]answer{abort, abort, abort, abort, text(final)}, 0, "", ""},
		// which is what it means
		"nan": {[]answer{text(logprob("NaN"))}, tries - 1,
			events.ClassBadResponse, "token 0 has null"},
		"positive-logprob": {[]answer{text(logprob("0.5"))}, tries - 1, events.ClassBadResponse, "token 0 has 0.5"},
		"null-logprob": {[]answer{text(logprob("null"))}, tries - 1,
			events.ClassBadResponse, "token 0 has null"},
		"negative-id": {[]answer{text(strings.Replace(final, "[4,5]", "[4,-5]", 1))}, tries - 1,
			events.ClassBadResponse, "token 1 has the id -5"},
		"fewer-logprobs": {[]answer{text(strings.Replace(final, "[4,5]", "[4,5,6]", 1))}, tries - 1,
			events.ClassBadResponse, "3 token ids, 2 log-probabilities"},
		"other-usage": {[]answer{text(strings.Replace(final, `"completion_tokens":2`,
			`"completion_tokens":7`, 1))}, tries - 1, events.ClassBadResponse,
			"usage counts 7 completion tokens, token_ids has 2"},
	}
	for name, c := range cases {
		e := closed
		if c.answers != nil {
			e = serve(t, c.answers...)
		}
		open(t, log, name, e.URL, nil)
	}
	for name, c := range cases {
		if c.class == "" {
			finished(t, log, name)
			if got := turns(t, log, name, 1); len(got) != 1 || got[0].Content != "Done." {
				t.Errorf("%s: the turns %+v", name, got)
			}
		} else {
			failed := servicetest.WaitData[events.RolloutFailed](t, log, name, events.RolloutFailedType, rollout)
			if failed.Stage != events.StageGenerator || failed.Class != c.class ||
				!strings.Contains(failed.Message, c.message) {
				t.Errorf("%s: failed as %+v, want class %s with %q", name, failed, c.class, c.message)
			}
		}
		retried := servicetest.All(t, log, name, events.RolloutRetriedType)
		if len(retried) != c.retried {
			t.Errorf("%s: %d failed tries on the log, want %d: %v", name, len(retried), c.retried,
				servicetest.IDs(retried))
		}
		for i, e := range retried {
			if try := servicetest.Data[events.RolloutRetried](t, e); try.Try != i+1 ||
				try.Stage != events.StageGenerator {
				t.Errorf("%s: try %d is stated as %+v", name, i+1, try)
			}
		}
	}
}

func TestEndpointThatHangs(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	soon := func(c *runfile.RunConfig) { c.Limits.TurnTimeout.Whole = runfile.Duration(500 * time.Millisecond) }
	open(t, log, "always", serve(t, hang).URL, soon)
	open(t, log, "once", serve(t, hang, text(final)).URL, func(c *runfile.RunConfig) { soon(c); c.Limits.Tries = 20 })
	failed := servicetest.WaitData[events.RolloutFailed](t, log, "always", events.RolloutFailedType, rollout)
	if failed.Class != events.ClassEndpoint ||
		!strings.Contains(failed.Message, "500ms, which is limits.turn_timeout.") {
		t.Errorf("failed as %+v", failed)
	}
	finished(t, log, "once")
}

func TestServerThatAsksForPatience(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := serve(t, status(429, "Retry-After", "2"), text(final))
	open(t, log, "busy", e.URL, nil)
	finished(t, log, "busy")
	seen := e.seen()
	if len(seen) != 2 || seen[1].at.Sub(seen[0].at) < 1900*time.Millisecond {
		t.Errorf("%d requests; the second one came after %s", len(seen), seen[len(seen)-1].at.Sub(seen[0].at))
	}
}

// TestMalformedToolCall follows a call that no tool can run: the tool runner sees what the model
// wrote, and the server gets it back in a form that it can read.
func TestMalformedToolCall(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	const written = `{"path": "a.txt`
	quoted, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	e := serve(t, asking("[1,2]", "[3,4]", string(quoted)), ending("[1,2,3,4,5]", "[6,7]"))
	open(t, log, "r", e.URL, nil)
	sampled := servicetest.Wait(t, log, "r", events.TurnSampledType, rollout, 1)[0]
	turn := servicetest.Data[events.TurnSampled](t, sampled)
	if len(turn.ToolCalls) != 1 || turn.ToolCalls[0].Arguments != written || sampled.Route != "pool-shell" {
		t.Fatalf("the call came out as %+v on route %q", turn.ToolCalls, sampled.Route)
	}
	answerTools(t, log, "r", turn)
	f, trajectory := finished(t, log, "r")
	if f.Turns != 2 || f.Samples != 1 || f.TextOnly || f.Tokens != 7 {
		t.Errorf("finished as %+v", f)
	}
	messages := e.seen()[1].body.Messages
	if len(messages) != 4 || messages[2].ToolCalls[0].Function.Arguments != inference.Arguments(
		`{"malformed_arguments":"{\"path\": \"a.txt"}`) {
		t.Errorf("the server was asked %+v", messages)
	}
	if messages[3].Role != "tool" || messages[3].Content != "seen "+written || messages[3].ToolCallID != "c1" {
		t.Errorf("the result came as %+v", messages[3])
	}
	var calls []events.ToolCall
	if err := json.Unmarshal([]byte(trajectory.Messages[2].ToolCalls), &calls); err != nil ||
		calls[0].Arguments != written {
		t.Errorf("the trajectory has calls %q: %v", trajectory.Messages[2].ToolCalls, err)
	}
}

// TestPromptThatIsNoContinuation: a server that renders the history in another
// way begins a second sample.
func TestPromptThatIsNoContinuation(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := serve(t, asking("[1,2]", "[3,4]", `"{}"`), asking("[1,2,3,4,5]", "[6,7]", `"{}"`),
		ending("[1,2,9,9]", "[8,8]"))
	open(t, log, "r", e.URL, nil)
	answerTools(t, log, "r", turns(t, log, "r", 1)[0])
	answerTools(t, log, "r", turns(t, log, "r", 2)[1])
	all := turns(t, log, "r", 3)
	if !all[0].NewSegment || all[1].NewSegment || !all[2].NewSegment {
		t.Errorf("segments begin %v %v %v", all[0].NewSegment, all[1].NewSegment, all[2].NewSegment)
	}
	f, trajectory := finished(t, log, "r")
	samples := trajectory.Samples()
	if f.Samples != 2 || len(samples) != 2 || f.TextOnly {
		t.Fatalf("%d samples: %+v", len(samples), f)
	}
	equal(t, "first sample", samples[0].Tokens, []int32{1, 2, 3, 4, 5, 6, 7})
	equal(t, "first loss mask", samples[0].LossMask, []bool{false, false, true, true, false, true, true})
	equal(t, "second sample", samples[1].Tokens, []int32{1, 2, 9, 9, 8, 8})
}

// TestTurnsWithoutTokens: what a server does not say cannot be trained on,
// and ends well all the same.
func TestTurnsWithoutTokens(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	const plain = `{"choices":[{"finish_reason":"stop","message":{"content":"Done."}}],"usage":{"prompt_tokens":30,"completion_tokens":2}}`
	for name, answers := range map[string][]answer{
		"none":               {text(plain)},
		"ids-only":           {text(`{"prompt_token_ids":[1],"choices":[{"finish_reason":"stop","token_ids":[4,5],"logprobs":null,"message":{"content":"Done."}}]}`)},
		"logprobs-only":      {text(`{"choices":[{"finish_reason":"stop","logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}]}`)},
		"no-prompt":          {text(`{"choices":[{"finish_reason":"stop","token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}]}`)},
		"on-the-second-turn": {asking("[1,2]", "[3,4]", `"{}"`), text(plain)},
		"on-the-first-turn": {text(`{"choices":[{"finish_reason":"tool_calls","message":{"tool_calls":[{"function":{"name":"list_dir","arguments":"{}"}}]}}]}`),
			ending("[1,2]", "[3,4]")},
		"with-a-new-segment":  {asking("[1,2]", "[3,4]", `"{}"`), asking("[9]", "[3,4]", `"{}"`), text(plain)},
		"sampled-nothing-yet": {text(`{"prompt_token_ids":[1,2],"choices":[{"finish_reason":"stop","token_ids":[],"logprobs":null,"message":{"content":""}}]}`)},
	} {
		open(t, log, name, serve(t, answers...).URL, nil)
		for i := range len(answers) - 1 {
			answerTools(t, log, name, turns(t, log, name, i+1)[i])
		}
		f, trajectory := finished(t, log, name)
		if want := name != "sampled-nothing-yet"; f.TextOnly != want ||
			trajectory.TextOnly != want || want && f.Tokens != 0 {
			t.Errorf("%s: finished as %+v", name, f)
		}
		if len(trajectory.Messages) != 1+2*len(answers) {
			t.Errorf("%s: %d messages", name, len(trajectory.Messages))
		}
	}
}

func TestBudgets(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, c := range map[string]struct {
		answers []answer
		limits  func(*runfile.Limits)
		turns   int
		stop    string
	}{
		"turns": {[]answer{asking("[1,2]", "[3,4]", `"{}"`)}, func(l *runfile.Limits) { l.Turns = 3 },
			3, events.StopMaxTurns},
		"tokens": {[]answer{asking("[1,2]", "[3,4]", `"{}"`)}, func(l *runfile.Limits) { l.Tokens = 4 },
			1, events.StopMaxTokens},
		"length": {[]answer{text(strings.Replace(final, `"stop"`, `"length"`, 1))},
			func(*runfile.Limits) {}, 1, events.StopLength},
		"none": {[]answer{text(final)}, func(l *runfile.Limits) { l.Turns = 1 }, 1, events.StopFinished},
	} {
		open(t, log, name, serve(t, c.answers...).URL, func(cfg *runfile.RunConfig) { c.limits(&cfg.Limits) })
		for i := range c.turns {
			if turn := turns(t, log, name, i+1)[i]; len(turn.ToolCalls) > 0 {
				answerTools(t, log, name, turn) // the tools of the last turn run too: they may have the solution
			}
		}
		if f, _ := finished(t, log, name); f.StopReason != c.stop || f.Turns != c.turns {
			t.Errorf("%s: finished as %+v", name, f)
		}
	}
}

// TestCrashBeforeTheEpisodeEnds: a generator died after the last turn came to stand on the log and
// before the trajectory did.
func TestCrashBeforeTheEpisodeEnds(t *testing.T) {
	log := natstest.Log(t)
	e := serve(t, text(final))
	open(t, log, "r", e.URL, nil)
	last := servicetest.Event(t, "r", events.TurnSampledType, rollout, "0", events.TurnSampled{
		Content: "Done.", FinishReason: "stop", PromptDelta: []int32{1}, TokenIDs: []int32{2},
		Logprobs: []float32{-1}, NewSegment: true,
	})
	last.Route = runfile.RouteFinal
	servicetest.Append(t, log, last)
	start(t, log, nil)
	if f, _ := finished(t, log, "r"); f.Turns != 1 || f.Tokens != 2 || f.StopReason != events.StopFinished {
		t.Errorf("finished as %+v", f)
	}
	if n := len(e.seen()); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

// TestTwoGenerators sample the same rollouts; each rollout has one course.
func TestTwoGenerators(t *testing.T) {
	log := natstest.Log(t)
	e := serve(t, text(final))
	open(t, log, "r", e.URL, nil)
	s := make([]*Service, 2)
	for i := range s {
		s[i] = service(t, log)
	}
	started := servicetest.All(t, log, "r", events.RolloutStartedType)[0]
	var outputs [][]events.Event // made from the same log, before either is on it
	for i := range s {
		facts, err := s[i].Handle(t.Context(), messageOf(log, started))
		if err != nil || len(facts) != 2 {
			t.Fatalf("%d facts: %v", len(facts), err)
		}
		outputs = append(outputs, facts)
	}
	for i, want := range []error{nil, pipeline.ErrOvertaken} {
		if _, _, err := (pipeline.Env{Log: log}).Publish(t.Context(), outputs[i]); !errors.Is(err, want) {
			t.Errorf("generator %d publishes: %v, want %v", i, err, want)
		}
	}
	if facts, err := s[1].Handle(t.Context(), messageOf(log, started)); err != nil || len(facts) != 0 {
		t.Errorf("asked again, it states %v: %v", facts, err)
	}
	if ids := servicetest.IDs(servicetest.All(t, log, "r")); len(ids) != 4 {
		t.Errorf("the log holds %v", ids)
	}
}
