package generator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestMillionTokens: the last turn of a rollout of 500 turns and a million tokens in one
// conversation is sampled with all settings at their defaults but the limits that name turns,
// tokens and time, and its trajectory has each token.
func TestMillionTokens(t *testing.T) {
	const most, perTurn = 500, 2000
	log := natstest.Log(t)
	var said []int32 // all tokens so far
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"vllm","max_model_len":2000000}]}`)
			return
		}
		ids, _ := json.Marshal(append(slices.Clip(said), 1, 2, 3)) // of numbers: no error
		sampled, _ := json.Marshal(slices.Repeat([]int32{7}, perTurn))
		logprobs := strings.TrimSuffix(strings.Repeat(`{"logprob":-0.5},`, perTurn), ",")
		fmt.Fprintf(w, `{"prompt_token_ids":%s,"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Done."},"token_ids":%s,"logprobs":{"content":[%s]}}]}`,
			ids, sampled, logprobs)
	}))
	defer server.Close()
	open(t, log, "r", server.URL, func(c *runfile.RunConfig) {
		defaults := runfile.DefaultRunConfig().Limits
		defaults.Turns, defaults.Tokens, defaults.Timeout = most, 1_100_000, c.Limits.Timeout
		c.Limits = defaults
	})
	var last events.Event
	for turn := range most - 1 {
		sampled := events.TurnSampled{
			Turn: turn, Content: strings.Repeat("word ", perTurn), FinishReason: "tool_calls", NewSegment: turn == 0,
			PromptDelta: []int32{int32(turn), 5, 6},
			TokenIDs:    make([]int32, perTurn), Logprobs: make([]float32, perTurn),
			ToolCalls: []events.ToolCall{{ID: fmt.Sprint(turn), Name: "read_file",
				Arguments: `{"target_file":"a"}`}},
		}
		for i := range sampled.TokenIDs {
			sampled.TokenIDs[i], sampled.Logprobs[i] = int32(turn*i%151_936), -1/float32(i+1)
		}
		said = append(append(said, sampled.PromptDelta...), sampled.TokenIDs...)
		sampled.PromptTokens, sampled.CompletionTokens = len(said)-perTurn, perTurn
		e := servicetest.Event(t, "r", events.TurnSampledType, rollout, events.Ordinal(turn), sampled)
		e.Route = "pool-shell"
		servicetest.Append(t, log, e)
		done := events.ToolsCompleted{Turn: turn, Runner: "tester",
			Results: []events.ToolResult{{CallID: fmt.Sprint(turn), Content: "line\n"}}}
		last = servicetest.Event(t, "r", events.ToolsCompletedType, rollout, events.Ordinal(turn), done)
		servicetest.Append(t, log, last)
	}
	facts, err := service(t, log).Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: last, Delivered: 1})
	if err != nil || len(facts) != 2 || facts[0].Type != events.TurnSampledType ||
		facts[1].Type != events.RolloutFinishedType {
		t.Fatalf("%d facts, %v", len(facts), err)
	}
	turn, f := servicetest.Data[events.TurnSampled](t, facts[0]), servicetest.Data[events.RolloutFinished](t, facts[1])
	if turn.NewSegment || !slices.Equal(turn.PromptDelta, []int32{1, 2, 3}) || len(turn.TokenIDs) != perTurn ||
		bytes.Contains(facts[0].Data, []byte(`"token_ids"`)) {
		t.Errorf("the last turn begins a segment: %t, behind %v, with %d tokens", turn.NewSegment,
			turn.PromptDelta, len(turn.TokenIDs))
	}
	want := slices.Concat(said, turn.PromptDelta, turn.TokenIDs)
	samples := fileOf(t, log, f).Samples()
	if f.Turns != most || f.StopReason != events.StopFinished || len(samples) != 1 || len(want) < 1_000_000 ||
		!slices.Equal(samples[0].Tokens, want) || samples[0].RolloutSampled != most*perTurn {
		t.Errorf("%d turns, %s, %d samples, want one with the %d tokens", f.Turns, f.StopReason,
			len(samples), len(want))
	}
}
