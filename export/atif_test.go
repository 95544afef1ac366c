package export

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// talkative is a rollout with everything in it that the format has a place for.
func talkative() *storage.Trajectory {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.UTC)
	sampled := func(ids ...int32) (list []int32, logprobs []float32, mask []bool) {
		for range ids {
			logprobs, mask = append(logprobs, -0.5), append(mask, true)
		}
		return ids, logprobs, mask
	}
	t := &storage.Trajectory{Run: "first", Group: "g000001", Rollout: "g000001-0",
		Task: "fix-a", StopReason: "finished"}
	add := func(m storage.Message) {
		m.Index = int32(len(t.Messages))
		if m.Role != "assistant" {
			m.PolicyVersion, m.Logprobs, m.LossMask = -1, make([]float32, len(m.TokenIDs)),
				make([]bool, len(m.TokenIDs))
		}
		t.Messages = append(t.Messages, m)
	}
	add(storage.Message{Role: "system", Content: "Be kind."})
	add(storage.Message{Role: "user", Content: "Mend it.", TokenIDs: []int32{1, 2, 3}})
	first := storage.Message{Role: "assistant", Content: "<think>hm</think>I look.", StartedAt: at,
		Duration: time.Second, FinishReason: "tool_calls",
		ToolCalls: `[{"id":"a","name":"read_file","arguments":"{\"path\":\"x\"}"},{"id":"a","name":"run","arguments":"oops"},{"id":"c","name":"never","arguments":""}]`}
	first.TokenIDs, first.Logprobs, first.LossMask = sampled(4, 5)
	add(first)
	add(storage.Message{Role: "tool", ToolCallID: "a", Content: "text", StartedAt: at})
	add(storage.Message{Role: "tool", ToolCallID: "a", Content: "no such command"})
	add(storage.Message{Role: "tool", ToolCallID: "zzz", Content: "of nothing", TokenIDs: []int32{6}})
	second := storage.Message{Role: "assistant", Turn: 1, Content: "Shorter.", PolicyVersion: 2}
	second.TokenIDs, second.Logprobs, second.LossMask = sampled(7)
	add(second)
	add(storage.Message{Role: "prompt", Turn: 2, Segment: 1, TokenIDs: []int32{8, 9}})
	third := storage.Message{Role: "assistant", Turn: 2, Segment: 1, Content: "Done.",
		PolicyVersion: 3, FinishReason: "stop"}
	third.TokenIDs, third.Logprobs, third.LossMask = sampled(10, 11, 12)
	add(third)
	return t
}

func TestATIF(t *testing.T) {
	reward := 0.75
	document, err := encodeATIF(toWholeATIF(talkative(),
		Rollout{Run: "first", Rollout: "g000001-0", Reward: &reward, Policy: "small",
			Components: map[string]float64{"tests": 3}}))
	if err != nil {
		t.Fatal(err)
	}
	validATIF(t, document)
	var d atifTrajectory
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Steps) != 5 || d.SessionID != "first" || d.TrajectoryID != "g000001-0" || d.Agent.ModelName != "small" ||
		d.FinalMetrics.Extra["reward"] != 0.75 {
		t.Fatalf("%s", document)
	}
	for i, want := range []string{"system: Be kind.", "user: Mend it.", "agent: I look.",
		"agent: Shorter.", "agent: Done."} {
		if s := d.Steps[i]; s.Source+": "+s.Message != want || s.StepID != i+1 {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	agent := d.Steps[2]
	var calls []string
	for _, c := range agent.ToolCalls {
		calls = append(calls, c.ID+" "+c.Function+" "+string(c.Arguments))
	}
	if want := []string{`a read_file {"path":"x"}`, `turn0_call1 run {"malformed_arguments":"oops"}`,
		`c never {}`}; !reflect.DeepEqual(calls, want) {
		t.Errorf("calls %v", calls)
	}
	if want := []atifResult{{"a", "text"}, {"turn0_call1", "no such command"},
		{"", "of nothing"}}; !reflect.DeepEqual(agent.Observation.Results, want) {
		t.Errorf("results %+v", agent.Observation.Results)
	}
	if agent.Reasoning != "hm" || agent.Timestamp != "2026-03-01T12:00:00.5Z" ||
		len(agent.Extra["tool_invocations"].([]any)) != 3 {
		t.Errorf("%+v", agent)
	}
	for i, want := range map[int]atifMetrics{
		2: {3, 2, []int32{1, 2, 3}, []int32{4, 5}, []float32{-0.5, -0.5}},
		3: {6, 1, []int32{1, 2, 3, 4, 5, 6}, []int32{7}, []float32{-0.5}},
		4: {2, 3, []int32{8, 9}, []int32{10, 11, 12}, []float32{-0.5, -0.5, -0.5}}, // a segment of its own
	} {
		if !reflect.DeepEqual(*d.Steps[i].Metrics, want) {
			t.Errorf("step %d: %+v, want %+v", i, *d.Steps[i].Metrics, want)
		}
	}
	if f := d.FinalMetrics; f.PromptTokens != 11 || f.CompletionTokens != 6 || f.Steps != 5 {
		t.Errorf("%+v", f)
	}
}

// TestMaskedATIF: what the run does not train on is told as a step of its agent, by which rule it
// is masked, and without tokens that could be trained on.
func TestMaskedATIF(t *testing.T) {
	tr := talkative()
	tr.Masked = map[int32]string{}
	for i := range tr.Messages {
		m := &tr.Messages[i]
		m.LossMask, tr.Masked[m.Segment] = make([]bool, len(m.TokenIDs)), "titles"
		if m.Role == "assistant" {
			m.PolicyVersion, m.Versions = -1, nil
		}
	}
	reward := 1.0
	d := toWholeATIF(tr, Rollout{Reward: &reward})
	document, err := encodeATIF(d)
	if err != nil {
		t.Fatal(err)
	}
	validATIF(t, document)
	if s := toWholeATIF(tr, Rollout{Reward: &reward, Policy: "p",
		answering: func(
			rule string) string {
			return map[string]string{"titles": "small"}[rule]
		}}).Steps[2]; s.ModelName != "small" {
		t.Errorf("a step that another model has answered: %+v", s)
	}
	if s := d.Steps[2]; s.Extra["masked"] != "titles" || s.Copied || s.Metrics != nil || *s.LLMCalls != 1 {
		t.Errorf("a masked step: %+v", s)
	}
	d = toATIF(tr, branch{messages: tr.Messages, copied: len(tr.Messages)}, 2, Rollout{Reward: &reward})
	if s := d.Steps[2]; s.Extra["masked"] != "titles" || !s.Copied || s.LLMCalls != nil {
		t.Errorf("a masked step that another document has, too: %+v", s)
	}
}

// toWholeATIF is the document of a rollout that is one conversation.
func toWholeATIF(t *storage.Trajectory, line Rollout) *atifTrajectory {
	return toATIF(t, branch{messages: t.Messages}, 1, line)
}

func TestATIFOfTextAlone(t *testing.T) {
	reward := 0.0
	document, err := encodeATIF(toWholeATIF(&storage.Trajectory{TextOnly: true, Messages: []storage.Message{
		{Role: "tool", Content: "first of all"}, {Role: "developer", Content: "x"},
		{Role: "assistant", Content: "hi", ToolCalls: "[1]"}}}, Rollout{Reward: &reward}))
	if err != nil || strings.Contains(string(document), `"metrics"`) ||
		!strings.Contains(string(document), `"role":"developer"`) {
		t.Errorf("%v: %s", err, document)
	}
	validATIF(t, document)
	if _, err := encodeATIF(toWholeATIF(&storage.Trajectory{}, Rollout{Reward: &reward})); err == nil ||
		!strings.Contains(err.Error(), "at least one step") {
		t.Errorf("a rollout without messages: %v", err)
	}
}

// TestATIFRules breaks each rule of the format in a valid document, and all at once.
func TestATIFRules(t *testing.T) {
	reward := 1.0
	valid, err := json.Marshal(toWholeATIF(talkative(), Rollout{Run: "first", Rollout: "g000001-0", Reward: &reward}))
	if err != nil {
		t.Fatal(err)
	}
	if faults := checkATIF(valid); len(faults) > 0 {
		t.Fatal(faults)
	}
	type change struct {
		path  string // a/b/0/c
		value any    // nil removes it
		want  string
	}
	changes := []change{
		{"schema_version", "ATIF-v9", "schema_version"}, {"agent/name", nil, "agent.name: is missing"},
		{"agent/version", 3, "agent.version: must be a text"},
		{"agent/colour", "red", "agent.colour: unknown field"},
		{"colour", "red", "document.colour: unknown field"}, {"session_id", 1, "session_id"},
		{"extra", "x", "document.extra: must be an object"},
		{"steps/0/step_id", 7, "without gaps"}, {"steps/0/source", "tool", "system, user or agent"},
		{"steps/0/message", nil, "steps[0].message: is missing"}, {"steps/0/message", 1, "steps[0].message"},
		{"steps/0/message", []any{map[string]any{"type": "text"}}, "steps[0].message"},
		{"steps/0/timestamp", "yesterday", "ISO 8601"},
		{"steps/1/model_name", "m", "steps[1].model_name: only steps of the agent"},
		{"steps/1/reasoning_effort", "m", "only steps of the agent"},
		{"steps/1/reasoning_content", "m", "only steps of the agent"},
		{"steps/1/tool_calls", []any{}, "only steps of the agent"},
		{"steps/1/metrics", map[string]any{}, "only steps of the agent"},
		{"steps/2/tool_calls/0/tool_call_id", "", "is empty"},
		{"steps/2/tool_calls/0/tool_call_id", "c", "stands twice"},
		{"steps/2/tool_calls/0/arguments", "{}", "arguments: must be an object"},
		{"steps/2/tool_calls/0/function_name", nil, "function_name: is missing"},
		{"steps/2/observation/results/0/source_call_id", "elsewhere", "no tool call of the step"},
		{"steps/2/observation/results/0/content", 5, "content"},
		{"steps/2/observation/results", nil, "results: is missing"},
		{"steps/2/metrics/logprobs", []any{-1}, "1 for 2 completion_token_ids"},
		{"steps/2/metrics/completion_tokens", 9, "9, but there are 2 ids"},
		{"steps/2/metrics/prompt_tokens", -1, "not negative"},
		{"steps/2/metrics/prompt_token_ids", []any{1.5}, "whole numbers"},
		{"steps/2/metrics/prompt_token_ids", []any{1}, "3, but there are 1 ids"},
		{"steps/2/llm_call_count", 0, "no model was called"}, {"steps/2/is_copied_context", "yes", "true or false"},
		{"steps/2/colour", "red", "unknown field"},
		{"final_metrics/total_steps", 4, "4, but there are 5 steps"},
		{"final_metrics/total_cost_usd", "much", "a number"}, {"steps", []any{}, "at least one step"},
		{"steps", nil, "steps: is missing"},
	}
	for _, c := range changes {
		faults := checkATIF(withValue(t, valid, c.path, c.value))
		if len(faults) == 0 || !strings.Contains(strings.Join(faults, "; "), c.want) {
			t.Errorf("%s = %v: %v, want %q", c.path, c.value, faults, c.want)
		}
	}
	everything := withValue(t, withValue(t, withValue(t, valid, "agent/name", nil), "steps/0/step_id", 7),
		"steps/1/metrics", map[string]any{})
	if faults := checkATIF(everything); len(faults) != 3 {
		t.Errorf("not all faults are told: %v", faults)
	}
	for _, text := range []string{"", "[]", "1", `{"steps":5}`, `{"steps":[1]}`, `{"agent":[],"steps":[{}]}`} {
		if len(checkATIF([]byte(text))) == 0 {
			t.Errorf("%q is no document", text)
		}
	}
}

// withValue sets or removes one value of a document.
func withValue(t *testing.T, document []byte, path string, value any) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal(document, &root); err != nil {
		t.Fatal(err)
	}
	at, keys := root, strings.Split(path, "/")
	for i, key := range keys {
		switch v := at.(type) {
		case []any:
			var n int
			fmt.Sscan(key, &n)
			at = v[n]
		case map[string]any:
			if i < len(keys)-1 {
				at = v[key]
			} else if value == nil {
				delete(v, key)
			} else {
				v[key] = value
			}
		}
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
