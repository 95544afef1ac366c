package generator

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

func messageOf(log *eventlog.Log, e events.Event) pipeline.Message {
	return pipeline.Message{Event: e, Seq: e.Seq, Time: e.Time, Log: log.At(e.Run, e.Seq)}
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// turn reads an answer as the next turn of a rollout.
func turn(r *events.Rollout, answer *inference.Response) (events.TurnSampled, error) {
	t, prompt, err := answer.Turn(len(r.Turns), r.Started.PolicyVersion, time.Now())
	if err == nil && !t.TextOnly {
		t.PromptDelta, t.NewSegment = delta(r, prompt)
	}
	return t, err
}

func TestNext(t *testing.T) {
	limits := runfile.Limits{Turns: 2, Tokens: 100, Timeout: runfile.Duration(time.Minute)}
	calls := []events.ToolCall{{ID: "c"}}
	waited := events.ToolAnswers{{Results: []events.ToolResult{{DurationMS: 31000}}}}
	answered := events.ToolAnswers{{}, {Turn: 1}}
	for name, c := range map[string]struct {
		rollout events.Rollout
		step    action
		stop    string
	}{
		"started":         {events.Rollout{}, sample, ""},
		"waits for tools": {events.Rollout{Turns: []events.TurnSampled{{ToolCalls: calls}}}, nothing, ""},
		"tools answered": {events.Rollout{Turns: []events.TurnSampled{{ToolCalls: calls}}, Tools: answered}, sample,
			""},
		"no more calls": {events.Rollout{Turns: []events.TurnSampled{{}}}, finish, events.StopFinished},
		"cut off": {events.Rollout{Turns: []events.TurnSampled{{FinishReason: "length"}}},
			finish, events.StopLength},
		"cut off in a call": {events.Rollout{Turns: []events.TurnSampled{{FinishReason: "length", ToolCalls: calls}},
			Tools: answered}, sample, ""},
		"turns used up": {events.Rollout{Turns: []events.TurnSampled{{ToolCalls: calls},
			{Turn: 1, ToolCalls: calls}}, Tools: answered}, finish, events.StopMaxTurns},
		"tokens used up": {events.Rollout{Turns: []events.TurnSampled{{ToolCalls: calls, PromptTokens: 90,
			CompletionTokens: 10}}, Tools: answered}, finish, events.StopMaxTokens},
		"tokens left": {events.Rollout{Turns: []events.TurnSampled{{ToolCalls: calls, PromptTokens: 90,
			CompletionTokens: 9}}, Tools: answered}, sample, ""},
		"time of tools": {events.Rollout{Turns: []events.TurnSampled{{ToolCalls: calls}}, Tools: waited},
			finish, events.StopTimeout},
		"finished": {events.Rollout{Turns: []events.TurnSampled{{}}, Finished: &events.RolloutFinished{}},
			nothing, ""},
		"failed": {events.Rollout{Failed: &events.RolloutFailed{}}, nothing, ""},
		"scored": {events.Rollout{Scored: &events.RolloutScored{}}, nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if step, stop := next(&c.rollout, runfile.TaskSpec{}, limits); step != c.step || stop != c.stop {
				t.Errorf("%s: step %d with %q, want %d with %q", name, step, stop, c.step, c.stop)
			}
		})
	}
}

func TestRoute(t *testing.T) {
	calls := events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c"}}}
	held := &events.Rollout{Turns: []events.TurnSampled{calls}, Tools: events.ToolAnswers{{Runner: "abc"}}}
	var none runfile.Needs
	gpu := runfile.Needs{Labels: []string{"gpu"}}
	for want, got := range map[string]string{
		runfile.RouteFinal:        route(held, events.TurnSampled{}, "pool-x", none),
		"pool-x":                  route(&events.Rollout{}, calls, "pool-x", none),
		"runner-abc":              route(held, calls, "pool-x", none),
		"pool-x-" + gpu.Key():     route(&events.Rollout{}, calls, "pool-x", gpu),
		"runner-abc-" + gpu.Key(): route(held, calls, "pool-x", gpu),
		"pool-y": route(&events.Rollout{Turns: held.Turns, Tools: held.Tools, Copied: 1}, calls,
			"pool-y", none),
	} {
		t.Run(want, func(t *testing.T) {
			if got != want {
				t.Errorf("routed to %s, want %s", got, want)
			}
		})
	}
}

func TestDelta(t *testing.T) {
	first := events.TurnSampled{NewSegment: true, PromptDelta: []int32{1, 2}, TokenIDs: []int32{3}}
	second := events.TurnSampled{PromptDelta: []int32{4}, TokenIDs: []int32{5, 6}}
	again := events.TurnSampled{NewSegment: true, PromptDelta: []int32{7}, TokenIDs: []int32{8}}
	textOnly := events.TurnSampled{TextOnly: true}
	for name, c := range map[string]struct {
		turns  []events.TurnSampled
		prompt []int32
		added  []int32
		begins bool
	}{
		"first turn":            {nil, []int32{1, 2}, []int32{1, 2}, true},
		"continued":             {[]events.TurnSampled{first}, []int32{1, 2, 3, 4}, []int32{4}, false},
		"continued twice":       {[]events.TurnSampled{first, second}, []int32{1, 2, 3, 4, 5, 6, 9}, []int32{9}, false},
		"nothing added":         {[]events.TurnSampled{first}, []int32{1, 2, 3}, []int32{}, false},
		"sampled token changed": {[]events.TurnSampled{first}, []int32{1, 2, 9, 4}, []int32{1, 2, 9, 4}, true},
		"prompt changed": {[]events.TurnSampled{first, second}, []int32{0, 2, 3, 4, 5, 6},
			[]int32{0, 2, 3, 4, 5, 6}, true},
		"shorter":              {[]events.TurnSampled{first, second}, []int32{1, 2, 3, 4}, []int32{1, 2, 3, 4}, true},
		"of the last segment":  {[]events.TurnSampled{first, again}, []int32{7, 8, 1}, []int32{1}, false},
		"of the one before it": {[]events.TurnSampled{first, again}, []int32{1, 2, 3, 4}, []int32{1, 2, 3, 4}, true},
		"after a text": {[]events.TurnSampled{first, textOnly}, []int32{1, 2, 3, 4},
			[]int32{1, 2, 3, 4}, true},
		"behind a summary": {[]events.TurnSampled{first, {Summary: &events.Summary{}}}, []int32{1, 2, 3, 4},
			[]int32{1, 2, 3, 4}, true},
		"after texts alone": {[]events.TurnSampled{textOnly}, []int32{1}, []int32{1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			added, begins := delta(&events.Rollout{Turns: c.turns}, c.prompt)
			if !slices.Equal(added, c.added) || begins != c.begins {
				t.Errorf("%s: adds %v, new segment %v; want %v, %v", name, added, begins, c.added, c.begins)
			}
		})
	}
}

// TestDeltaOfALongPrompt: a prompt begins a segment wherever one id of it differs from what is
// known, not only near its end: a server may render early messages anew.
func TestDeltaOfALongPrompt(t *testing.T) {
	const turns, perTurn = 50, 100 // and a part of a block
	r := &events.Rollout{}
	var all []int32
	for turn := range turns {
		ids := make([]int32, perTurn)
		for i := range ids {
			ids[i] = int32(turn*perTurn + i)
		}
		r.Turns = append(r.Turns, events.TurnSampled{Turn: turn, NewSegment: turn == 0,
			PromptDelta: ids[:60], TokenIDs: ids[60:]})
		all = append(all, ids...)
	}
	prompt := append(slices.Clone(all), 7, 8, 9)
	if added, begins := delta(r, prompt); begins || !slices.Equal(added, []int32{7, 8, 9}) {
		t.Fatalf("the prompt that goes on adds %v, new segment %v", added, begins)
	}
	for at := range all {
		prompt[at] ^= 1
		if added, begins := delta(r, prompt); !begins || len(added) != len(prompt) {
			t.Errorf("a prompt that differs at id %d of %d adds %d ids, new segment %v", at,
				len(all), len(added), begins)
		}
		prompt[at] ^= 1
	}
}

// episode plays a random one, with summaries now and then; whole holds the tokens of its segments.
func episode(seed uint64) (r *events.Rollout, whole [][]int32) {
	random := rand.New(rand.NewPCG(seed, 1))
	some := func(least int) []int32 {
		ids := make([]int32, least+random.IntN(4))
		for i := range ids {
			ids[i] = random.Int32N(5) // few, so that prefixes match by chance too
		}
		return ids
	}
	r = &events.Rollout{Run: "r", ID: rollout}
	var history []int32
	for turn := range 1 + random.IntN(6) {
		prompt := append(slices.Clone(history), some(1)...)
		if random.IntN(3) == 0 {
			prompt = some(1)
		}
		sampled := events.TurnSampled{Turn: turn, TokenIDs: some(0), PolicyVersion: int64(turn),
			ToolCalls: []events.ToolCall{{ID: "c", Name: "n"}}, FinishReason: "tool_calls"}
		sampled.Logprobs = make([]float32, len(sampled.TokenIDs))
		for i := range sampled.Logprobs {
			sampled.Logprobs[i] = -random.Float32() - 0.01
		}
		sampled.PromptDelta, sampled.NewSegment = delta(r, prompt)
		if random.IntN(4) == 0 {
			sampled.Summary, sampled.ToolCalls = &events.Summary{}, nil
		}
		r.Turns = append(r.Turns, sampled)
		if sampled.Summary == nil {
			r.Tools = r.Tools.Add(events.ToolsCompleted{Turn: turn,
				Results: []events.ToolResult{{CallID: "c", Name: "n", Content: "x"}}})
		}
		history = append(slices.Clone(prompt), sampled.TokenIDs...)
		if sampled.NewSegment {
			whole = append(whole, nil)
		}
		whole[len(whole)-1] = history
	}
	return r, whole
}

// TestTrajectoryHoldsWhatTheServerSaw plays random episodes with servers that now and then
// render the history anew: the concatenated rows of each segment are the last prompt and
// answer of it, token by token.
func TestTrajectoryHoldsWhatTheServerSaw(t *testing.T) {
	for seed := range uint64(40) {
		r, whole := episode(seed)
		written, err := trajectory(runfile.RunConfig{}, runfile.TaskSpec{Name: "a"}, r, events.StopMaxTurns)
		if err != nil {
			t.Fatal(err)
		}
		data, err := storage.EncodeTrajectory(written)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		read, err := storage.DecodeTrajectory(data)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		samples := read.Samples()
		if len(samples) != len(whole) {
			t.Fatalf("seed %d: %d samples of %d segments", seed, len(samples), len(whole))
		}
		var trained []float32
		for i, s := range samples {
			equal(t, "sample", s.Tokens, whole[i])
			for j, mask := range s.LossMask {
				if mask {
					trained = append(trained, s.SamplerLogprobs[j])
				} else if s.SamplerLogprobs[j] != 0 {
					t.Errorf("seed %d: a token that was not sampled has a log-probability", seed)
				}
			}
		}
		var logprobs []float32
		for _, turn := range r.Turns {
			logprobs = append(logprobs, turn.Logprobs...)
		}
		equal(t, "log-probabilities of what is trained", trained, logprobs)
	}
}

func parse(t *testing.T, text string) *inference.Response {
	t.Helper()
	var answer inference.Response
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	return &answer
}

// The answers below have the shapes that the servers' own code gives them.
const (
	vllm = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"small","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,
		"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":{"content":[{"token":"Hi","logprob":-0.25,"bytes":[72,105],"top_logprobs":[]},
		{"token":"","logprob":-0.5,"bytes":[],"top_logprobs":[]}]},"finish_reason":"stop","stop_reason":null,"token_ids":[13347,151645]}],"service_tier":null,
		"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2,"prompt_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":[1,2,3],"kv_transfer_params":null}`
	sglang = `{"id":"a","object":"chat.completion","created":1,"model":"small","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":null,"tool_calls":null},
		"logprobs":{"content":[{"token":"Hi","bytes":[72,105],"logprob":-0.25,"top_logprobs":[]}]},"finish_reason":"stop","matched_stop":151645,"prompt_token_ids":[1,2,3],
		"meta_info":{"id":"a","finish_reason":{"type":"stop","matched":151645},"prompt_tokens":3,"weight_version":"7","output_token_logprobs":[[-0.25,13347,null],[-0.5,151645,"<|im_end|>"]],
		"completion_tokens":2}}],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2},"metadata":{"weight_version":"7"}}`
)

func TestShapesOfServers(t *testing.T) {
	newer := strings.Replace(sglang, `"prompt_token_ids"`, `"token_ids":[13347,151645],"prompt_token_ids"`, 1)
	for name, c := range map[string]struct {
		text    string
		version int64
	}{
		"vLLM": {vllm, 5}, "SGLang": {sglang, 7}, "SGLang with token_ids": {newer, 7},
		"SGLang that was told no version": {strings.ReplaceAll(sglang, `"7"`, `"default"`), 5},
		"version of the answer":           {strings.Replace(vllm, `"id"`, `"weight_version":12,"id"`, 1), 12},
		"version in metadata only":        {strings.Replace(sglang, `"weight_version":"7",`, "", 1), 7},
		"version below 0":                 {strings.Replace(vllm, `"id"`, `"weight_version":-3,"id"`, 1), 5},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := turn(&events.Rollout{Started: events.RolloutStarted{PolicyVersion: 5}}, parse(t, c.text))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			equal(t, name+": prompt", got.PromptDelta, []int32{1, 2, 3})
			equal(t, name+": ids", got.TokenIDs, []int32{13347, 151645})
			equal(t, name+": log-probabilities", got.Logprobs, []float32{-0.25, -0.5})
			if got.PolicyVersion != c.version || got.TextOnly || !got.NewSegment || got.PromptTokens != 3 ||
				got.CompletionTokens != 2 {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
	contradicting := strings.Replace(newer, "[13347,151645]", "[13347,1]", 1)
	for name, text := range map[string]string{
		"ids that contradict": contradicting,
		"pair without an id":  strings.Replace(sglang, "[-0.25,13347,null]", "[-0.25]", 1),
		"no log-probability":  strings.Replace(sglang, "[-0.25,13347,null]", "[null,13347,null]", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := turn(&events.Rollout{}, parse(t, text)); err == nil ||
				!strings.Contains(err.Error(), inference.ErrTokens.Error()) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestRoundedLogprobs(t *testing.T) {
	got, err := turn(&events.Rollout{}, parse(t, strings.Replace(vllm, "-0.25", "1e-7", 1)))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "log-probabilities", got.Logprobs, []float32{0, -0.5})
}
