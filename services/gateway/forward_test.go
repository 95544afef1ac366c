package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/storage"
)

// askOf reads a request in a dialect.
func askOf(t *testing.T, d dialects.Dialect, body map[string]any) *ask {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	share := newMemory().Share("t")
	t.Cleanup(share.End)
	a, err := decode(t.Context(), share, d, text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// scripted is what an agent asks in its n-th request: the task, and behind it n turns with what its
// tool has answered.
func scripted(n int, results func(turn int) string) map[string]any {
	messages := []any{map[string]any{"role": "system", "content": "An agent."},
		map[string]any{"role": "user", "content": "Mend it."}}
	for i := range n {
		id := fmt.Sprint("call-", i)
		messages = append(messages, map[string]any{"role": "assistant",
			"content": fmt.Sprint("said ", i), "tool_calls": []any{
				map[string]any{"id": id, "type": "function",
					"function": map[string]any{"name": "sh", "arguments": `{"command":"ls"}`}}}},
			map[string]any{"role": "tool", "tool_call_id": id, "content": results(i)})
	}
	return map[string]any{"model": "m", "messages": messages, "tools": []any{map[string]any{"type": "function",
		"function": map[string]any{"name": "sh", "parameters": map[string]any{"type": "object"}}}}}
}

func unchanged(turn int) string { return fmt.Sprint("result ", turn) }

// onLog is a rollout whose agent has had some turns, each of which took two seconds.
func onLog(t *testing.T, bodies ...map[string]any) *events.Rollout {
	t.Helper()
	r, digests := &events.Rollout{Run: "r", ID: "g000001-0"}, newDigests()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, body := range bodies {
		a := askOf(t, dialects.Chat{}, body)
		n := len(a.Conversation)/2 - 1
		said := fmt.Sprint("said ", n)
		turn := events.TurnSampled{Turn: i, RequestDigest: digests.of(a), Content: said, TokenIDs: []int32{code(said)},
			ToolCalls: []events.ToolCall{{ID: fmt.Sprint("call-", n), Name: "sh", Arguments: `{"command":"ls"}`}},
			Logprobs:  []float32{-1}, FinishReason: events.FinishStop,
			StartedAt: at.Add(time.Duration(10*i) * time.Second), LatencyMS: 2000}
		if err := a.bind(r.Turns); err != nil {
			t.Fatal(err)
		}
		newTree(r.Turns).place(a, talk(a.Conversation).tokens(), &turn)
		r.Turns = append(r.Turns, turn)
	}
	return r
}

// resumed is the way of an agent that is started anew.
func resumed(r *events.Rollout) *Agent {
	a := (&Gateway{}).Agent(r.Run, r.ID)
	a.Resume("policy", r)
	return a
}

// TestForward: an agent that is started anew has its recorded turns again, each once, until its
// request differs. There its model answers, and what it has not come to is left behind.
func TestForward(t *testing.T) {
	var bodies []map[string]any
	for n := range 20 {
		bodies = append(bodies, scripted(n, unchanged))
	}
	r := onLog(t, bodies...)
	r.Turns[3].Conversation = &events.Conversation{Rule: "titles", Masked: true, Model: "small"}
	a := resumed(r)
	for n := range 20 {
		model := "policy"
		if n == 3 {
			model = "small"
		}
		results := unchanged
		if n >= 12 {
			results = func(turn int) string {
				if turn == 11 {
					return "another result"
				}
				return unchanged(turn)
			}
		}
		got := a.recall(askOf(t, dialects.Chat{}, scripted(n, results)))
		if n < 12 != (got != nil) ||
			got != nil && (got.Turn.Turn != n || got.ID != fmt.Sprint("r.g000001-0-", n) || got.Model != model ||
				!slices.Equal(got.Prompt, talk(askOf(t, dialects.Chat{}, bodies[n]).Conversation).tokens())) {
			t.Fatalf("request %d is answered by %+v", n, got)
		}
	}
	ended, _ := a.Ended(0)
	if ended.Recalled != 12 || !slices.Equal(ended.Left, []int{12, 13, 14, 15, 16, 17, 18, 19}) {
		t.Errorf("%d turns again, %v left", ended.Recalled, ended.Left)
	}
	if now := time.Now(); a.Used(now) < 24*time.Second || a.Used(now) > 25*time.Second {
		t.Errorf("12 turns of 2 s cost the agent %s", a.Used(now))
	}
	live := askOf(t, dialects.Chat{}, scripted(12, func(int) string { return "x" }))
	ro := &rollout{Rollout: *r, cfg: runfile.RunConfig{Limits: runfile.Limits{Turns: 13, Tokens: 1000}}}
	a.note(ro, live)
	if err := ro.within(live); err != nil || a.mayRecord(ro) != nil {
		t.Errorf("turns that are left behind count against limits.turns: %v, %v", err, a.mayRecord(ro))
	}
	g := &Gateway{}
	seed, done, err := g.seed(ro, live)
	if err != nil {
		t.Fatal(err)
	}
	done()
	r.Turns = r.Turns[:12]
	undisturbed, done, err := g.seed(&rollout{Rollout: *r}, live)
	if done(); err != nil || seed != undisturbed {
		t.Errorf("the model samples with seed %d behind the recording, %d without it: %v", seed, undisturbed, err)
	}
}

// TestForwardInOrder: equal requests with two answers have them in their order, and a third one is
// the model's.
func TestForwardInOrder(t *testing.T) {
	body := scripted(0, unchanged)
	a := resumed(onLog(t, body, body))
	for n := range 3 {
		got := a.recall(askOf(t, dialects.Chat{}, body))
		if n < 2 != (got != nil) || got != nil && got.Turn.Turn != n {
			t.Errorf("request %d is answered by %+v", n, got)
		}
	}
}

// TestForwardIsFenced: an agent may record nothing once another start of it is on the log, nor
// where another one has made a turn.
func TestForwardIsFenced(t *testing.T) {
	r := onLog(t, scripted(0, unchanged))
	r.Restarts = 1
	first := resumed(r)
	cfg := runfile.RunConfig{Limits: runfile.Limits{Turns: 10}}
	if err := first.mayRecord(&rollout{Rollout: *r, cfg: cfg}); err != nil {
		t.Error(err)
	}
	r.Restarts++
	second := resumed(r)
	if first.mayRecord(&rollout{Rollout: *r, cfg: cfg}) == nil {
		t.Error("an agent records behind a start of another one")
	}
	r.Turns = append(r.Turns, events.TurnSampled{Turn: 1})
	if second.mayRecord(&rollout{Rollout: *r, cfg: cfg}) == nil {
		t.Error("an agent records behind a turn of another one")
	}
	for what, happens := range map[string]func(){
		"a refusal": func() {
			first.heard(t.Context(),
				problem(http.StatusConflict, "rollout_over", "it is over"))
		},
		"a failure":       func() { first.heard(t.Context(), errors.New("the server is gone")) },
		"a turn":          func() { first.recorded(events.TurnSampled{}) },
		"a recorded turn": func() { first.recall(askOf(t, dialects.Chat{}, scripted(0, unchanged))) },
	} {
		happens()
		if _, err := first.Ended(0); !errors.Is(err, events.ErrElsewhere) {
			t.Fatalf("behind %s an agent whose rollout is elsewhere ended by %v", what, err)
		}
	}
}

// TestDigests: what a second start writes otherwise is the same request, in whichever dialect it
// comes and whether as a stream or not; what the agent was told otherwise is another one.
func TestDigests(t *testing.T) {
	base := scripted(2, unchanged)
	with := func(change func(map[string]any)) map[string]any {
		body := scripted(2, unchanged)
		change(body)
		return body
	}
	result := func(text string) map[string]any {
		return scripted(2, func(turn int) string { return strings.Replace(text, "TURN", fmt.Sprint(turn), 1) })
	}
	message := func(body map[string]any, i int) map[string]any { return body["messages"].([]any)[i].(map[string]any) }
	function := func(m map[string]any) map[string]any {
		return m["tool_calls"].([]any)[0].(map[string]any)["function"].(map[string]any)
	}
	of := func(d dialects.Dialect, body map[string]any) string { return newDigests().of(askOf(t, d, body)) }
	for name, pair := range map[string][2]map[string]any{
		"a stream": {base, with(func(b map[string]any) {
			b["stream"] = true
			b["stream_options"] = map[string]any{"include_usage": true}
		})},
		"ids": {base, with(func(b map[string]any) {
			for i, id := range []string{"a", "b"} {
				message(b, 2+2*i)["tool_calls"].([]any)[0].(map[string]any)["id"] = id
				message(b, 3+2*i)["tool_call_id"] = id
			}
		})},
		"arguments": {base, with(func(b map[string]any) {
			function(message(b,
				2))["arguments"] = ` {"command" : "ls"}`
		})},
		"spaces": {base, with(func(b map[string]any) { message(b, 2)["content"] = "said 0\n" })},
		"parts": {base, with(func(b map[string]any) {
			message(b, 1)["content"] = []any{map[string]any{"type": "text", "text": "Mend it."}}
		})},
		"billing": {with(func(b map[string]any) {
			message(b,
				0)["content"] = "x-anthropic-billing-header: cch=1;\nAn agent."
		}), base},
		"uuid": {result("id 0b54c9e2-1f6e-4c3e-9f0e-6f5a0a4d2c11"),
			result("id 9c1d0f7a-77aa-4b7e-8d52-0c55c0f0a9b3")},
		"moment":  {result("2026-11-30T08:47:43.123Z ok"), result("2026-12-01T09:00:00.9Z ok")},
		"date":    {result("Today is Monday, November 30, 2026."), result("Today is Tuesday, December 1, 2026.")},
		"date(1)": {result("Mon Nov 30 08:47:43 UTC 2026"), result("Tue Dec  1 11:00:07 UTC 2026")},
		"ls": {result("-rw-r--r-- 1 u u 4 Nov 30 08:47 a.txt"),
			result("-rw-r--r-- 1 u u 4 Dec  1 11:00 a.txt")},
		"epoch":        {result("1796028463"), result("1796028999")},
		"seconds":      {result("3 passed in 0.12s"), result("3 passed in 1.04s")},
		"go test":      {result("ok  \tpkg\t0.004s"), result("ok  \tpkg\t0.011s")},
		"wall time":    {result("Wall time: 0.1234 seconds"), result("Wall time: 12.5 seconds")},
		"pid":          {result("Process Group PGID: 4711"), result("Process Group PGID: 52")},
		"job":          {result("[1] 4711"), result("[1] 52")},
		"port":         {result("listens on 127.0.0.1:45123"), result("listens on 127.0.0.1:39001")},
		"temp":         {result("cd /tmp/tmpk3x_a91z/repo"), result("cd /tmp/tmpq_zzzzzz/repo")},
		"mktemp":       {result("/tmp/tmp.aBcDeF1234"), result("/tmp/tmp.ZZyyXX9876")},
		"address":      {result("<object at 0x7f3a5c0d1e20>"), result("<object at 0x7fffe0d1e2aa>")},
		"commit":       {result("[main 1a2b3c4] mend"), result("[main deadbee] mend")},
		"chunk":        {result("Chunk ID: a1b2c3"), result("Chunk ID: ffee00")},
		"session":      {result("session_id: 12ab"), result("session_id: 98ff")},
		"longer pause": {result("slept 250 ms"), result("slept 251 ms")},
	} {
		if of(dialects.Chat{}, pair[0]) != of(dialects.Chat{}, pair[1]) {
			t.Errorf("%s: two requests", name)
		}
	}
	for name, other := range map[string]map[string]any{
		"a result":         result("another result TURN"),
		"a number":         result("result 1TURN"),
		"a word":           with(func(b map[string]any) { message(b, 1)["content"] = "Mend them." }),
		"a role":           with(func(b map[string]any) { message(b, 1)["role"] = "system" }),
		"an answer":        with(func(b map[string]any) { message(b, 2)["content"] = "said another" }),
		"an argument":      with(func(b map[string]any) { function(message(b, 2))["arguments"] = `{"command":"la"}` }),
		"a call":           with(func(b map[string]any) { function(message(b, 2))["name"] = "bash" }),
		"a tool":           with(func(b map[string]any) { b["tools"] = []any{} }),
		"a limit":          with(func(b map[string]any) { b["max_tokens"] = 7 }),
		"a temperature":    with(func(b map[string]any) { b["temperature"] = 0.5 }),
		"a choice":         with(func(b map[string]any) { b["tool_choice"] = "none" }),
		"a turn more":      scripted(3, unchanged),
		"a file":           result("/tmp/results-of-TURN.txt"),
		"an integer":       result("3 failed TURN"),
		"a short duration": result("sleep 5"),
		"an image": with(func(b map[string]any) {
			message(b, 1)["content"] = []any{map[string]any{"type": "image_url",
				"image_url": map[string]any{"url": "data:image/png;base64," + pixel}}}
		}),
	} {
		if of(dialects.Chat{}, base) == of(dialects.Chat{}, other) {
			t.Errorf("%s: the same request", name)
		}
	}
	for _, pair := range [][2]string{{"/tmp/results.txt", "/tmp/summary.txt"}, {"port 1", "port 2"},
		{"sleep 5", "sleep 6"}, {"3 passed", "4 passed"},
		{"v1.2.3", "v1.2.4"}, {"0x1f", "0x2f"}, {"line 1234567", "line 1234568"}} {
		if mask(pair[0]) == mask(pair[1]) {
			t.Errorf("%q and %q are the same", pair[0], pair[1])
		}
	}
	chat := map[string]any{"max_tokens": 9, "messages": []any{map[string]any{"role": "system", "content": "S"},
		map[string]any{"role": "user", "content": "U"}}}
	messages := map[string]any{"max_tokens": 9, "system": "S",
		"messages": []any{map[string]any{"role": "user", "content": "U"}}, "stream": true}
	responses := map[string]any{"max_output_tokens": 9, "instructions": "S", "input": "U"}
	text := func(text string) map[string]any { return map[string]any{"parts": []any{map[string]any{"text": text}}} }
	gemini := map[string]any{"generationConfig": map[string]any{"maxOutputTokens": 9}, "systemInstruction": text("S"),
		"contents": []any{text("U")}}
	if of(dialects.Chat{}, chat) != of(dialects.Messages{}, messages) ||
		of(dialects.Chat{}, chat) != of(dialects.Responses{}, responses) ||
		of(dialects.Chat{}, chat) != of(dialects.Gemini{}, gemini) {
		t.Error("a request in another dialect is another one")
	}
}

// TestDigestsOfParallelResults: results of one turn's calls may come in any order, and answer their
// own calls.
func TestDigestsOfParallelResults(t *testing.T) {
	of := func(results ...string) string { // each the id of its call, and a text
		call := func(id string) any {
			return map[string]any{"id": id, "type": "function",
				"function": map[string]any{"name": "sh", "arguments": "{}"}}
		}
		messages := []any{map[string]any{"role": "user", "content": "go"},
			map[string]any{"role": "assistant", "content": "", "tool_calls": []any{call("a"), call("b")}}}
		for _, r := range results {
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": r[:1], "content": r[1:]})
		}
		return newDigests().of(askOf(t, dialects.Chat{}, map[string]any{"messages": messages}))
	}
	if of("ax", "by") != of("by", "ax") {
		t.Error("the order of parallel results counts")
	}
	if of("ax", "by") == of("ay", "bx") || of("ax") == of("bx") {
		t.Error("a result may answer another call")
	}
}

// TestDigestsAreBounded: a request with more texts than are masked is still the same as
// what came before, and each of its messages is kept, by ids of any length. Those with
// many calls are not kept.
func TestDigestsAreBounded(t *testing.T) {
	says := func(texts ...string) *ask {
		var messages []any
		for _, text := range texts {
			messages = append(messages, map[string]any{"role": "user", "content": text})
		}
		return askOf(t, dialects.Chat{}, map[string]any{"messages": messages})
	}
	of := func(texts ...string) string { return newDigests().of(says(texts...)) }
	filler := slices.Repeat([]string{strings.Repeat("x", maxMasked-len("user"))}, maxMaskedRequest/maxMasked)
	one, two := "2026-11-30 ok", "2026-12-01 ok"
	if of(append([]string{one}, filler...)...) != of(append([]string{two}, filler...)...) {
		t.Error("the first texts of a large request are not masked")
	}
	if of(append(filler, one)...) == of(append(filler, two)...) {
		t.Error("all texts of a large request are masked")
	}
	kept := newDigests()
	kept.of(says(one))
	if kept.of(says(append(filler, one)...)) != of(append(filler, one)...) {
		t.Error("what came before makes a request another one")
	}
	if kept.of(says(one)) != of(one) {
		t.Error("what a large request has counts as it is in a small one")
	}
	texts := make([]string, 10_000)
	for i := range texts {
		texts[i] = fmt.Sprint("text ", i)
	}
	kept = newDigests()
	if kept.of(says(texts...)); kept.parts.Len() != len(texts) {
		t.Errorf("%d of %d messages are kept", kept.parts.Len(), len(texts))
	}
	for calls, want := range map[int]int{keptCalls: 2, keptCalls + 1: 1} {
		var list []any
		for i := range calls {
			list = append(list, map[string]any{"id": fmt.Sprint(i, strings.Repeat("i", 1000)), "type": "function",
				"function": map[string]any{"name": "sh", "arguments": "{}"}})
		}
		kept = newDigests()
		kept.of(askOf(t, dialects.Chat{}, map[string]any{"messages": []any{map[string]any{"role": "user",
			"content": "go"},
			map[string]any{"role": "assistant", "content": "", "tool_calls": list}}}))
		if kept.parts.Len() != want {
			t.Errorf("%d of 2 messages are kept, one of %d calls", kept.parts.Len(), calls)
		}
	}
}

// TestLeftTurnsAreNotTrained: samples have none of the turns that an agent has left behind, and
// what went on behind one of them begins anew with all of its prompt. Each other turn is trained
// once, behind the prompt with which it was sampled.
func TestLeftTurnsAreNotTrained(t *testing.T) {
	other := func(turn int) string {
		if turn == 1 {
			return "another result"
		}
		return unchanged(turn)
	}
	// Turn 2 is asked twice; the agent goes on behind the second answer, and then another way.
	bodies := []map[string]any{scripted(0, unchanged), scripted(1, unchanged), scripted(1, unchanged),
		scripted(2, unchanged), scripted(2, other), scripted(3, other)}
	for left := range 1 << len(bodies) {
		r := onLog(t, bodies...)
		ended := &events.AgentEnded{Recalled: 1}
		for i := range bodies {
			if left>>i&1 == 1 {
				ended.Left = append(ended.Left, i)
			}
		}
		if len(ended.Left) == len(bodies) {
			continue
		}
		r.Answers = []events.WorkspaceAnswered{{Agent: ended}}
		tr, err := trajectory(r, events.StopFinished)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := storage.EncodeTrajectory(tr); err != nil {
			t.Fatalf("left %v: %v", ended.Left, err)
		}
		trained := map[int]int{}
		for _, s := range tr.Samples() {
			for _, span := range s.Turns {
				prompt := talk(askOf(t, dialects.Chat{}, bodies[span.Turn]).Conversation).tokens()
				if !slices.Equal(s.Tokens[:span.Start], prompt) {
					t.Errorf("left %v: turn %d is trained behind %v, not %v", ended.Left, span.Turn,
						s.Tokens[:span.Start], prompt)
				}
				trained[int(span.Turn)]++
			}
		}
		for i := range bodies {
			if want := 1 - left>>i&1; trained[i] != want {
				t.Errorf("left %v: turn %d is trained %d times, want %d", ended.Left, i, trained[i], want)
			}
		}
	}
}

// TestLeftTurnsTakeTheirExperts: what begins a sample behind a turn that was left says nothing of
// its tokens' experts, which would begin in the middle, and that it lacks them.
func TestLeftTurnsTakeTheirExperts(t *testing.T) {
	r := onLog(t, scripted(0, unchanged), scripted(1, unchanged), scripted(2, unchanged))
	for i := range r.Turns {
		r.Turns[i].Columns = []storage.TokenColumn{{Name: runfile.ColumnRoutedExperts, Start: int32(5 * i), Length: 5},
			{Name: runfile.ColumnTopLogprobs, Start: int32(5*i + 4), Length: 1}}
	}
	r.Answers = []events.WorkspaceAnswered{{Agent: &events.AgentEnded{Left: []int{1}}}}
	turns := withoutLeft(r)
	if got := turns[2]; len(got.Columns) != 1 || got.Columns[0].Name != runfile.ColumnTopLogprobs ||
		!slices.Equal(got.Lacks, []string{runfile.ColumnRoutedExperts}) {
		t.Errorf("behind a turn that was left: %+v, lacks %v", got.Columns, got.Lacks)
	}
	if len(turns[0].Columns) != 2 || len(r.Turns[2].Columns) != 2 ||
		r.Turns[2].Columns[0].Name != runfile.ColumnRoutedExperts {
		t.Errorf("another turn, or the recorded one, has %+v, %+v", turns[0].Columns, r.Turns[2].Columns)
	}
}
