package generator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// handled is what the first turn of a run's rollout comes to, at a server with one
// answer for all requests.
func handled(t *testing.T, log *eventlog.Log, run string, say answer) []events.Event {
	t.Helper()
	open(t, log, run, serve(t, say).URL, func(c *runfile.RunConfig) {
		c.Limits.Tries = 1
	})
	facts, err := service(t, log).Handle(t.Context(), messageOf(log,
		servicetest.All(t, log, run, events.RolloutStartedType)[0]))
	var f *inference.Failure
	if err != nil && !errors.As(err, &f) {
		t.Fatal(err)
	}
	return facts
}

// said is an answer of a server with tokens: its message, and its finish_reason in JSON.
func said(message, finish string) answer {
	return text(fmt.Sprintf(`{"prompt_token_ids":[1],"choices":[{"finish_reason":%s,"message":%s,"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]}}]}`, finish, message))
}

// TestEndings: a rollout ends as the server says that its turn ended. What nobody knows
// is never the model's end, a turn that the machine cut is none, and a call in a turn
// that was cut is not run.
func TestEndings(t *testing.T) {
	log := natstest.Log(t)
	const words, call = `{"content":"half an answ"}`,
		`{"content":"I look.","tool_calls":[{"function":{"name":"list_dir","arguments":"{}"}}]}`
	for name, c := range map[string]struct {
		message, finish string
		reason, word    string // of the turn; "" for no turn
		stop, class     string
	}{
		"stop":       {words, `"stop"`, events.FinishStop, "", events.StopFinished, ""},
		"eos":        {words, `"EOS_TOKEN"`, events.FinishStop, "", events.StopFinished, ""},
		"length":     {words, `"MAX_TOKENS"`, events.FinishLength, "", events.StopLength, ""},
		"repetition": {words, `"repetition"`, events.FinishRepetition, "", events.StopLength, ""},
		"filter":     {words, `"content_filter"`, events.FinishFiltered, "content_filter", events.StopFiltered, ""},
		"null":       {words, `null`, events.FinishUnknown, "", "", events.ClassUnknownFinish},
		"new": {words, `"A new\u001b word"`, events.FinishUnknown, "A new\uFFFD word", "",
			events.ClassUnknownFinish},
		"number":        {words, `3`, events.FinishUnknown, "no text: 3", "", events.ClassUnknownFinish},
		"aborted":       {words, `"aborted"`, "", "", "", events.ClassEndpoint},
		"timeout":       {words, `"timeout"`, "", "", "", events.ClassEndpoint},
		"resources":     {words, `"insufficient_system_resource"`, "", "", "", events.ClassEndpoint},
		"cut-call":      {call, `"length"`, events.FinishLength, "", events.StopLength, ""},
		"filtered-call": {call, `"SAFETY"`, events.FinishFiltered, "SAFETY", events.StopFiltered, ""},
		"unknown-call":  {call, `""`, events.FinishUnknown, "", "", events.ClassUnknownFinish},
		"no-call": {`{"content":null,"tool_calls":[]}`, `"tool_calls"`, events.FinishToolCalls,
			"", events.StopUnread, ""},
		"null-calls": {`{"content":"I look.","tool_calls":null}`, `"tool_calls"`, events.FinishToolCalls,
			"", events.StopUnread, ""},
		"older-call": {`{"content":null,"function_call":{"name":"ls","arguments":"{}"}}`, `"stop"`,
			events.FinishStop, "", events.StopUnread, ""},
		"in-thoughts": {`{"content":null,"reasoning_content":"I look.\n<tool_call>{}</tool_call>"}`, `"stop"`,
			events.FinishStop, "", events.StopUnread, ""},
		"in-marks": {`{"content":"<｜DSML｜function_calls>"}`, `"stop"`, events.FinishStop,
			"", events.StopUnread, ""},
	} {
		facts := handled(t, log, name, said(c.message, c.finish))
		if c.reason != "" {
			turn := servicetest.Data[events.TurnSampled](t, facts[0])
			unread := slices.Contains(turn.Lacks, events.LackTools)
			if turn.FinishReason != c.reason || turn.FinishWord != c.word || len(turn.ToolCalls) > 0 ||
				unread != (c.stop == events.StopUnread) || facts[0].Route != runfile.RouteFinal {
				t.Errorf("%s: the turn is %+v on the route %s", name, turn, facts[0].Route)
			}
			facts = facts[1:]
		}
		if len(facts) != 1 {
			t.Errorf("%s: %d more facts", name, len(facts))
			continue
		}
		if c.stop != "" {
			if f := servicetest.Data[events.RolloutFinished](t, facts[0]); f.StopReason != c.stop {
				t.Errorf("%s: finished as %s, want %s", name, f.StopReason, c.stop)
			}
		} else if f := servicetest.Data[events.RolloutFailed](t, facts[0]); facts[0].Type != events.RolloutFailedType ||
			f.Class != c.class {
			t.Errorf("%s: %s, %+v, want class %s", name, facts[0].Type, f, c.class)
		}
	}
	if facts := handled(t, log, "aborted-too", said(words, `"abort"`)); len(facts) != 0 {
		t.Errorf("a turn that was aborted comes to %d facts, and costs no try", len(facts))
	}
}

// TestErrorsThatSucceed: an error with a status of success is read as if it came with its own.
func TestErrorsThatSucceed(t *testing.T) {
	log := natstest.Log(t)
	for name, c := range map[string]struct{ body, want string }{
		"a-full-context": {`{"error":{"message":"the input length exceeds the context length"}}`, events.StopContext},
		"trouble":        {`{"object":"error","message":"CUDA error","code":500}`, "CUDA error"},
		"refused": {`{"error":{"message":"tools are not allowed","type":"invalid_request_error"}}`,
			"tools are not allowed"},
		"a-stream": {"data: {\"error\":{\"message\":\"worker died\"}}\n\n", "worker died"},
	} {
		facts := handled(t, log, name, text(c.body))
		if len(facts) != 1 || !strings.Contains(string(facts[0].Data), c.want) ||
			(facts[0].Type == events.RolloutFinishedType) != (c.want == events.StopContext) {
			t.Errorf("%s: %v", name, facts)
		}
	}
}
