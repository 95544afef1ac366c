package gateway

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

// talker is a harness that asks a server by tokens, through the gateway.
type talker struct {
	*plane
	s     *tokenstest.Server
	m     member
	tools []string
	model string
	most  int // max_tokens
	says  []string
}

// newTalker opens a run by tokens at a server of some template, whose model says one text after
// the other.
func newTalker(t *testing.T, template string, change func(*runfile.RunConfig)) *talker {
	t.Helper()
	k := &talker{s: tokenstest.New(t, template, nil), tools: []string{"read_file"}}
	k.s.Say = func(string) (string, string) {
		text := k.says[0]
		k.says = k.says[1:]
		return text, ""
	}
	k.plane = newPlane(t, k.s.URL+"/v1", func(c *runfile.RunConfig) {
		c.EndpointAPI = runfile.APITokens
		if change != nil {
			change(c)
		}
	})
	k.m = k.start(nil)
	return k
}

// think makes the model say something, with thoughts, and with a call where path is not "".
func (k *talker) think(words, path string) {
	k.says = append(k.says, k.s.Template.Answer("I think of "+words+".", words, path))
}

func (k *talker) body(conversation []message) map[string]any {
	body := map[string]any{"messages": conversation}
	if k.most > 0 {
		body["max_tokens"] = k.most
	}
	if k.model != "" {
		body["model"] = k.model
	}
	var tools []any
	for _, name := range k.tools {
		tools = append(tools, map[string]any{"type": "function",
			"function": map[string]any{"name": name, "parameters": map[string]any{"type": "object"}}})
	}
	if tools != nil {
		body["tools"] = tools
	}
	return body
}

// ask asks for an answer that says some words and perhaps calls a tool, and gives the conversation
// with that behind it.
func (k *talker) ask(words, path string, conversation ...message) []message {
	k.t.Helper()
	k.think(words, path)
	return k.more(conversation...)
}

// more asks for what the model says next.
func (k *talker) more(conversation ...message) []message {
	k.t.Helper()
	var c completion
	k.post(k.m.chat(), k.body(conversation), http.StatusOK, &c)
	return append(slices.Clip(conversation), c.Choices[0].Message)
}

// result answers the call of a conversation's last message.
func result(conversation []message, text string) message {
	calls := conversation[len(conversation)-1]["tool_calls"].([]any)
	return message{"role": "tool", "tool_call_id": calls[0].(map[string]any)["id"], "content": text}
}

// with is a message with other fields; nil takes one out.
func with(m message, fields map[string]any) message {
	m = maps.Clone(m)
	for name, value := range fields {
		if m[name] = value; value == nil {
			delete(m, name)
		}
	}
	return m
}

// called is a message whose call is written in another way.
func called(m message, change func(call, function map[string]any)) message {
	m = with(m, map[string]any{"tool_calls": slices.Clone(m["tool_calls"].([]any))})
	list := m["tool_calls"].([]any)
	call := maps.Clone(list[0].(map[string]any))
	function := maps.Clone(call["function"].(map[string]any))
	change(call, function)
	call["function"], list[0] = function, call
	return m
}

// rendered checks how many renderings the server has made: the second of several turns takes two.
func (k *talker) rendered(want int) {
	k.t.Helper()
	if n := k.s.Requests("/v1/chat/completions/render"); n != want {
		k.t.Errorf("the server has rendered %d times, want %d", n, want)
	}
}

// check holds a rollout to what its server saw and sampled: each turn is in one sample, behind
// exactly the tokens that it was asked with. want are the segments.
func (k *talker) check(want ...string) {
	k.t.Helper()
	if got := k.segments(); !slices.Equal(got, want) {
		k.t.Errorf("segments are %q, want %q", got, want)
	}
}

// segments are the turns of each segment, and why it began. It holds the rollout to its server.
func (k *talker) segments() []string {
	k.t.Helper()
	k.finish(k.m, 1)
	asked := k.s.Turns()
	var got []string
	read := k.turns(k.m)
	answers := []int{} // how many stand in the conversation that ends with a turn
	for i, turn := range k.rollout(k.m).Turns {
		said := 1
		for _, m := range turn.Prompt {
			if m.Role == "assistant" {
				said++
			}
		}
		if turn.After != nil {
			said += answers[*turn.After]
		}
		answers = append(answers, said)
		if n := strings.Count(k.s.Tokenizer.Decode(read[i].prompt), k.s.Template.Assistant); n != said {
			k.t.Errorf("turn %d is answer %d of its conversation, and answer %d behind its prompt", i, said, n)
		}
		if n := read[i].Segment; n == len(got) {
			got = append(got, turn.SegmentCause)
		}
		got[read[i].Segment] += fmt.Sprint(" ", i)
		at := slices.IndexFunc(asked, func(a tokenstest.Turn) bool {
			return slices.Equal(a.Prompt, read[i].prompt) && slices.Equal(a.Sampled, turn.TokenIDs)
		})
		if at < 0 {
			k.t.Errorf("turn %d is recorded behind %q, which the server was not asked with", i,
				k.s.Tokenizer.Decode(read[i].prompt))
			continue
		}
		asked = slices.Delete(asked, at, at+1)
	}
	seen := map[int32]int{}
	for _, s := range k.trajectory(k.m).Samples() {
		trained := 0
		for _, span := range s.Turns {
			seen[span.Turn]++
			trained += int(span.Length)
		}
		for _, is := range s.LossMask {
			if is {
				trained--
			}
		}
		if trained != 0 {
			k.t.Errorf("a sample trains on other tokens than those of its turns %v", s.Turns)
		}
	}
	for i, turn := range k.rollout(k.m).Turns {
		want := 1
		if turn.MaskedBy() != "" {
			want = 0
		}
		if seen[int32(i)] != want {
			k.t.Errorf("turn %d is trained on %d times, want %d", i, seen[int32(i)], want)
		}
	}
	k.prove(0)
	return got
}

// masked holds a rollout's turns to the rules that mask them, and its end
// and its batch to the turns.
func (k *talker) masked(want ...string) {
	k.t.Helper()
	r := k.rollout(k.m)
	var got []string
	tokens, sampled := map[string]int{}, int64(0)
	for _, turn := range r.Turns {
		rule := turn.MaskedBy()
		if got = append(got, rule); rule != "" {
			tokens[rule] += len(turn.TokenIDs)
		} else {
			sampled += int64(len(turn.TokenIDs))
		}
	}
	if !slices.Equal(got, want) || !maps.Equal(r.Finished.Masked, tokens) || int64(r.Finished.Sampled) != sampled {
		k.t.Errorf("turns are masked by %q, want %q; the end says %v and %d sampled, the turns %v and %d",
			got, want, r.Finished.Masked, r.Finished.Sampled, tokens, sampled)
	}
	batch := servicetest.WaitData[events.BatchReady](k.t, k.log, "r", events.BatchReadyType, "trainer")
	left := map[string]string{}
	for i, s := range k.trajectory(k.m).Samples() {
		if s.Masked != "" {
			left[fmt.Sprintf("%s/%d", k.m.Rollout, i)] = "conversations: " + s.Masked
		}
	}
	if len(left) == 0 || !maps.Equal(batch.LeftOut, left) || batch.Sampled != sampled {
		k.t.Errorf("the batch leaves out %v, want %v, and has %d sampled tokens of %d", batch.LeftOut,
			left, batch.Sampled, sampled)
	}
	k.prove(0)
}

// TestHarnessesByTokens: a harness whose conversation goes on stays in its sample, however it
// writes the conversation, and any other begins one. What each prompt was is recorded token for
// token.
func TestHarnessesByTokens(t *testing.T) {
	t.Parallel()
	dropped := map[string]any{"reasoning_content": nil}
	begin := func(k *talker) []message {
		return k.ask("I look.", "a", system("You mend."), user("Mend it."))
	}
	const masked = "a masked subagent, and a masked title"
	rule := func(name, model, system, tree string, train bool) runfile.ConversationRule {
		return runfile.ConversationRule{Name: name, Model: model, System: system, Tree: tree, Train: &train}
	}
	rules := []runfile.ConversationRule{rule("titles", "", "You name", "", false),
		rule("judges", "large", "", runfile.TreeBeside, true),
		rule("small", "small", "", "", false), rule("others", "", "", runfile.TreeBeside, false)}
	for name, c := range map[string]struct {
		template string
		play     func(k *talker)
		want     []string
	}{
		"thoughts are dropped": {"", func(k *talker) {
			talk := begin(k)
			for i := range 5 {
				last := len(talk) - 1
				talk[last] = with(talk[last], dropped)
				talk = k.ask(fmt.Sprint("Step ", i, "."), "b", append(talk, result(talk, "seen"))...)
			}
			k.rendered(7)
		}, []string{" 0 1 2 3 4 5"}},
		"thoughts are kept": {"", func(k *talker) {
			talk := begin(k)
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			k.ask("Done.", "", append(talk, result(talk, "seen"), user("And now?"))...)
		}, []string{" 0 1 2"}},
		"other thoughts": {"", func(k *talker) {
			talk := begin(k)
			talk[2] = with(talk[2], map[string]any{"reasoning_content": "I think of nothing."})
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0", "rewritten 1"}},
		"arguments are respelled": {"", func(k *talker) {
			talk := begin(k)
			talk[2] = called(talk[2], func(_, f map[string]any) { f["arguments"] = "{ \"path\" :\"\\u0061\"}" })
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0 1"}},
		"arguments are changed": {"", func(k *talker) {
			talk := begin(k)
			talk[2] = called(talk[2], func(_, f map[string]any) { f["arguments"] = `{"path":"b"}` })
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0", "rewritten 1"}},
		"ids are renamed": {"", func(k *talker) {
			talk := begin(k)
			for i := range 2 {
				last := len(talk) - 1
				talk[last] = called(talk[last], func(c, _ map[string]any) { c["id"] = fmt.Sprint("mine-", i) })
				talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			}
		}, []string{" 0 1 2"}},
		"space": {"", func(k *talker) {
			talk := begin(k)
			talk[0], talk[2] = system("You mend.\n"), with(talk[2],
				map[string]any{"content": " I look.\n", "reasoning_content": nil})
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0 1"}},
		"a date in the system prompt": {"", func(k *talker) {
			talk := begin(k)
			talk[0] = system("You mend. It is Tuesday.")
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0", "system 1 2"}},
		"a tool comes and goes": {"", func(k *talker) {
			talk := begin(k)
			k.tools = []string{"read_file", "write_file"}
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			k.tools = k.tools[:1]
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0 2", "tools 1"}},
		"tools in another order": {"", func(k *talker) {
			k.tools = []string{"read_file", "write_file"}
			talk := begin(k)
			k.tools = []string{"write_file", "read_file"}
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0", "tools 1"}},
		"an answer is edited": {"", func(k *talker) {
			talk := begin(k)
			talk = k.ask("Done.", "", append(talk, result(talk, "seen"))...)
			talk[4] = with(talk[4], map[string]any{"content": "Not done."})
			k.ask("Done now.", "", append(talk, user("Go on."))...)
		}, []string{" 0 1", "rewritten 2"}},
		"an old result is edited": {"", func(k *talker) {
			talk := begin(k)
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			talk = append(talk, result(talk, "seen"))
			talk[3] = with(talk[3], map[string]any{"content": "(cleared)"})
			k.ask("Done.", "", talk...)
		}, []string{" 0 1", "rewritten 2"}},
		"asked again": {"", func(k *talker) {
			talk := begin(k)
			talk = append(talk, result(talk, "seen"))
			k.ask("Once.", "", talk...)
			again := k.ask("Twice.", "", talk...)
			k.ask("Done.", "", append(again, user("Go on."))...)
		}, []string{" 0 1", "sibling 2 3"}},
		"the first turn again": {"", func(k *talker) {
			begin(k)
			begin(k)
		}, []string{" 0", "sibling 1"}},
		"compaction, and a request from before": {"", func(k *talker) {
			talk := begin(k)
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			summed := k.ask("On it.", "", system("You mend."), user("You were mending."))
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
			k.ask("Done, too.", "", append(summed, user("Go on."))...)
		}, []string{" 0 1 3", "compacted 2 4"}},
		"a subagent between turns, and a title": {"", func(k *talker) {
			k.tools = nil
			k.ask("A title.", "", system("You name."), user("Mend it."))
			k.tools = []string{"read_file"}
			talk := begin(k)
			sub := k.ask("I read.", "c", system("You read."), user("Read it."))
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			k.ask("Read.", "", append(sub, result(sub, "seen"))...)
			k.ask("Done.", "", append(talk, result(talk, "seen"))...)
		}, []string{" 0", "system 1 3 5", "unrelated 2 4"}},
		masked: {"", func(k *talker) {
			k.m = k.start(map[string]any{"size": 1})
			k.tools = nil
			k.ask("A title.", "", system("You name."), user("Mend it."))
			k.tools = []string{"read_file"}
			talk := begin(k)
			sub := k.ask("I read.", "c", system("You read."), user("Read it."))
			k.model = "small"
			k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			k.ask("Guess.", "", system("You guess."), user("Guess it."))
			k.model = "large"
			k.ask("Read.", "", append(sub, result(sub, "seen"))...)
			k.ask("Judged.", "", system("You judge."), user("Judge it."))
			k.ask("On it.", "", system("You mend."), user("You were mending."))
		}, []string{" 0", "system 1 3", "unrelated 2 5", "unrelated 4", "unrelated 6", "compacted 7"}},
		"GLM": {"GLM", func(k *talker) {
			talk := begin(k)
			talk[2] = with(talk[2], dropped)
			talk = k.ask("More.", "b", append(talk, result(talk, "seen"))...)
			talk = k.ask("Done.", "", append(talk, result(talk, "seen"))...)
			k.ask("Yes.", "", append(talk, user("Sure?"))...)
		}, []string{" 0 1 2 3"}},
		"Qwen35": {"Qwen35", func(k *talker) {
			talk := begin(k)
			talk[2] = with(talk[2], dropped)
			talk = k.ask("Done.", "", append(talk, result(talk, "seen"))...)
			k.ask("Yes.", "", append(talk, user("Sure?"))...)
		}, []string{" 0 1 2"}},
		"a stop token that no template writes": {"", func(k *talker) {
			k.s.Template.Stop[1] = "<|endoftext|>"
			talk := k.ask("It is ok.", "", user("Mend it."))
			k.ask("Done.", "", append(talk, user("Go on."))...)
		}, []string{" 0 1"}},
		"an answer that was cut": {"", func(k *talker) {
			k.most = 12
			talk := k.ask("I look at all of it, and then I mend it.", "", user("Mend it."))
			k.most = 0
			k.ask("Done.", "", append(talk, user("Go on."))...)
		}, []string{" 0", "drift 1"}},
		"a cut that two tokens repeat": {"", func(k *talker) { // any word may be the last one
			k.says = []string{k.s.Template.Answer("Hm.", "I must see a. And so on.", "")}
			k.most = len(k.s.Tokenizer.Encode("<think>\nHm.\n</think>\n\nI must see a.", true))
			talk := k.more(user("Mend it."))
			k.most = 0
			k.ask("Done.", "", append(talk, user("Go on."))...)
		}, []string{" 0", "thoughts 1"}},
		"a call that was cut": {"", func(k *talker) {
			k.think("I look.", "a")
			k.most = len(k.s.Tokenizer.Encode(k.says[0], true)) - 4
			talk := k.more(user("Mend it."))
			k.most = 0
			k.ask("Done.", "", append(talk, user("Go on."))...)
		}, []string{" 0", "thoughts 1"}},
		"a broken call": {"", func(k *talker) {
			k.says = []string{"<think>\nHm.\n</think>\n\nI look." + k.s.Template.Calls[0] +
				`{"name":"read_file","arguments":"{\"path\": "}` + k.s.Template.Calls[1] + k.s.Template.Stop[0]}
			talk := k.more(user("Mend it."))
			if got := calls(talk[1]); len(got) != 1 ||
				!strings.Contains(got[0][1], `{\"path\": `) && got[0][1] != `{"path": ` {
				k.t.Errorf("the harness has the call %q", got)
			}
			k.ask("Done.", "", append(talk, result(talk, "No such file."))...)
		}, []string{" 0 1"}},
		"an answer that nobody sampled": {"", func(k *talker) {
			talk := begin(k)
			talk = append(talk, result(talk, "seen"), message{"role": "assistant", "content": "I was told to say so."},
				user("Go on."))
			for _, words := range []string{"More.", "All.", "Done."} {
				talk = k.ask(words, "b", talk...)
				talk = append(talk, result(talk, "seen"))
			}
			k.rendered(5)
		}, []string{" 0 1 2 3"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if c.template == "" {
				c.template = "Qwen3"
			}
			k := newTalker(t, c.template, func(r *runfile.RunConfig) {
				if name == masked {
					r.Conversations = rules
				}
			})
			c.play(k)
			if k.check(c.want...); name == masked {
				k.masked("titles", "", "others", "", "small", "others", "", "")
			}
		})
	}
}

// TestBillingHeader: what Claude Code puts before its system prompt, anew in each request, is no
// part of the prompt.
func TestBillingHeader(t *testing.T) {
	t.Parallel()
	k := newTalker(t, "Qwen3", nil)
	var messages []any
	for i := range 3 {
		k.think(fmt.Sprint("Answer ", i, "."), "")
		messages = append(messages, user("Go on."))
		header := fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.36; cch=%d;", i)
		var system any = []any{map[string]any{"type": "text", "text": header},
			map[string]any{"type": "text", "text": "You mend."}}
		if i == 2 {
			system = header + "\nYou mend."
		}
		var answer struct{ Content []any }
		k.post("/rollouts/"+k.m.ID+"/v1/messages", map[string]any{"max_tokens": 100, "system": system,
			"messages": messages}, http.StatusOK, &answer)
		messages = append(messages, map[string]any{"role": "assistant", "content": answer.Content})
	}
	if text := k.s.Tokenizer.Decode(k.s.Turns()[2].Prompt); strings.Contains(text, "billing") ||
		strings.Count(text, "You mend.") != 1 {
		t.Errorf("the model was asked with %q", text)
	}
	k.check(" 0 1 2")
}

// TestDialectsByTokens: what a client of each dialect is given and gives back is what was sampled,
// with its thoughts and its calls.
func TestDialectsByTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin  map[string]any
		behind func(answer map[string]json.RawMessage) []any // what follows the first message
	}{
		"messages": {map[string]any{"max_tokens": 500,
			"tools": []any{map[string]any{"name": "read_file", "input_schema": map[string]any{"type": "object"}}}},
			func(answer map[string]json.RawMessage) []any {
				var content []map[string]any
				if err := json.Unmarshal(answer["content"], &content); err != nil || len(content) != 3 ||
					content[0]["type"] != "thinking" || content[2]["type"] != "tool_use" {
					t.Fatalf("answered %s", answer["content"])
				}
				results := []any{map[string]any{"type": "tool_result",
					"tool_use_id": content[2]["id"], "content": "seen"}}
				return []any{map[string]any{"role": "assistant", "content": content},
					map[string]any{"role": "user", "content": results}}
			}},
		"responses": {map[string]any{"tools": []any{map[string]any{"type": "function", "name": "read_file",
			"parameters": map[string]any{"type": "object"}}}},
			func(answer map[string]json.RawMessage) []any {
				var output []map[string]any
				if err := json.Unmarshal(answer["output"], &output); err != nil || len(output) != 3 ||
					output[0]["type"] != "reasoning" || output[2]["type"] != "function_call" {
					t.Fatalf("answered %s", answer["output"])
				}
				return []any{output[0], output[1], output[2],
					map[string]any{"type": "function_call_output", "call_id": output[2]["call_id"], "output": "seen"}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalker(t, "Qwen3", nil)
			field := map[string]string{"messages": "messages", "responses": "input"}[name]
			conversation := []any{user("Mend it.")}
			for _, path := range []string{"a", "b", "c"} {
				k.think("I look.", path)
				c.begin[field] = conversation
				var answer map[string]json.RawMessage
				k.post("/rollouts/"+k.m.ID+"/v1/"+name, c.begin, http.StatusOK, &answer)
				conversation = append(conversation, c.behind(answer)...)
			}
			k.check(" 0 1 2")
		})
	}
}

// TestParallelByTokens: of requests that go on from one place at once, each stands behind what it
// was asked with, and one of them stays in the sample. The requests that go on with them find
// their own.
func TestParallelByTokens(t *testing.T) {
	t.Parallel()
	k := newTalker(t, "Qwen3", nil)
	talk := k.ask("I look.", "a", user("Mend it."))
	talk = append(talk, result(talk, "seen"))
	const at = 4
	arrived, ready := make(chan struct{}, at), make(chan struct{})
	k.s.Say = func(prompt string) (string, string) {
		if !strings.Contains(prompt, "Go on") {
			arrived <- struct{}{}
			<-ready
		}
		return k.s.Template.Answer("Hm.", "The same.", ""), ""
	}
	answers := make(chan message, at)
	for i := range at {
		go func() {
			body := k.body(append(slices.Clip(talk), user(fmt.Sprint("Way ", i/2, "."))))
			got, err := k.do(t.Context(), http.MethodPost, k.m.chat(), body)
			var c completion
			if err != nil || got.status != http.StatusOK || json.Unmarshal(got.body, &c) != nil {
				t.Errorf("answered %d %s, %v", got.status, got.body, err)
			}
			answers <- c.Choices[0].Message
		}()
	}
	for range at {
		<-arrived
	}
	close(ready)
	var last message
	for range at {
		last = <-answers
	}
	for range at {
		k.more(append(slices.Clip(talk), user("Way 0."), last, user("Go on."))...)
	}
	turns := k.rollout(k.m).Turns
	began := map[string]int{}
	for _, turn := range turns[1:] {
		began[turn.SegmentCause]++
	}
	if len(turns) != 1+2*at || began[events.CauseSibling] == 0 || began[""] < 2 || len(began) != 2 {
		t.Errorf("%d turns began samples by %v", len(turns), began)
	}
	k.segments()
}

// TestTwinsByTokens: a request stays behind the turn that it went on with, though a twin of that,
// which says the same behind other thoughts, is recorded before the request's own answer.
func TestTwinsByTokens(t *testing.T) {
	t.Parallel()
	k := newTalker(t, "Qwen3", nil)
	held, release, twin := make(chan struct{}), make(chan struct{}), make(chan struct{})
	talk := k.ask("I look.", "a", user("Mend it."))
	talk = append(talk, result(talk, "seen"))
	k.s.Say = func(prompt string) (string, string) {
		switch {
		case strings.Contains(prompt, "Go on"):
			close(release)
			<-twin
			return k.s.Template.Answer("Hm.", "Done.", ""), ""
		case len(k.s.Turns()) > 1:
			close(held)
			<-release
			return k.s.Template.Answer("Two.", "The same.", ""), ""
		}
		return k.s.Template.Answer("One.", "The same.", ""), ""
	}
	said := with(k.more(talk...)[3], map[string]any{"reasoning_content": nil})
	go func() {
		defer close(twin)
		if got, err := k.do(t.Context(), http.MethodPost, k.m.chat(), k.body(talk)); err != nil ||
			got.status != http.StatusOK {
			t.Errorf("answered %d %s, %v", got.status, got.body, err)
		}
	}()
	<-held
	k.more(append(slices.Clip(talk), said, user("Go on."))...)
	k.check(" 0 1 3", "sibling 2")
}

// TestExpertsByTokens: each sample has the experts of all of its tokens, where it goes on, and
// where it begins behind tokens of another one.
func TestExpertsByTokens(t *testing.T) {
	t.Parallel()
	mixture := tokenstest.Mixture{Layers: 2, TopK: 1, Experts: 64, Width: 1}
	k := newTalker(t, "Qwen3", func(c *runfile.RunConfig) {
		c.TokenColumns = &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: mixture.Layers,
			TopK: mixture.TopK, Experts: mixture.Experts}, Required: true}
	})
	k.s.Mixture = &mixture
	talk := k.ask("I look.", "a", user("Mend it."))
	talk = append(talk, result(talk, "seen"))
	k.ask("Once.", "", talk...)
	again := k.ask("Twice.", "", talk...)
	k.ask("Done.", "", append(again, user("Go on."))...)
	k.check(" 0 1", "sibling 2 3")
	for n, s := range k.trajectory(k.m).Samples() {
		known := map[int]int{}
		for _, c := range s.Columns {
			file, err := storage.GetBlob(t.Context(), k.log.Store(), c.Object)
			if err != nil {
				t.Fatal(err)
			}
			data := file[10+int(binary.LittleEndian.Uint16(file[8:])):]
			for i := range int(c.Length) {
				known[int(c.Start)+i] = int(data[mixture.Layers*(int(c.Row)+i)])
			}
		}
		for i := range len(s.Tokens) - 1 {
			if got, ok := known[i]; !ok || got != mixture.Expert(s.Tokens, i, 0, 0) {
				t.Fatalf("sample %d: token %d of %d has the expert %d (%t), want %d", n, i, len(s.Tokens), got, ok,
					mixture.Expert(s.Tokens, i, 0, 0))
			}
		}
	}
}

// TestRoomForAHarness: a harness's fixed max_tokens is cut to what the context has left, by tokens
// and by messages, and the turn says so.
func TestRoomForAHarness(t *testing.T) {
	t.Parallel()
	k := newTalker(t, "Qwen3", func(c *runfile.RunConfig) { c.Sampling.MaxTokens = 5000 })
	k.s.Context, k.most = 2000, 32000
	k.ask("Done.", "", user("Mend it."))
	turn := k.rollout(k.m).Turns[0]
	if got := turn.Sampling.MaxTokens; turn.ContextLimit != 2000 || got != 2000-turn.PromptTokens-1 ||
		fmt.Sprint(turn.Requested["max_tokens"]) != "32000" {
		t.Errorf("the turn has %d of %d tokens behind %d, requested %v", got, turn.ContextLimit,
			turn.PromptTokens, turn.Requested)
	}
	k.check(" 0")

	b := newBackend(t, func(_ int, a ask) said {
		if a.MaxTokens > 49 {
			return said{status: http.StatusBadRequest,
				raw: fmt.Sprintf("This model's maximum context length is 100 tokens. However, you requested %d tokens (50 in the messages, %d in the completion).",
					50+a.MaxTokens, a.MaxTokens)}
		}
		return said{content: "Done."}
	})
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	p.say(m, user("Mend it."))
	if turn := p.rollout(m).Turns[0]; turn.ContextLimit != 100 || turn.Sampling.MaxTokens != 49 {
		t.Errorf("by messages the turn has %d of %d tokens", turn.Sampling.MaxTokens, turn.ContextLimit)
	}
}

// TestTokensTakeText: what has no place in a prompt of tokens is refused by name.
func TestTokensTakeText(t *testing.T) {
	t.Parallel()
	k := newTalker(t, "Qwen3", nil)
	video := message{"role": "user", "content": []any{map[string]any{"type": "video_url",
		"video_url": map[string]any{"url": "data:,"}}}}
	if got := k.post(k.m.chat(), map[string]any{"messages": []any{video}}, http.StatusBadRequest,
		nil); !strings.Contains(string(got.body), `messages[0]: content[0]: a part of type \"video_url\"`) {
		t.Errorf("answered %s", got.body)
	}
	k.ask("Yes.", "", message{"role": "user", "content": []any{map[string]any{"type": "text", "text": "Is it so?"}}})
	k.check(" 0")
}

// TestAgentByTokens: an agent's own program makes the rollouts of a run whose server is asked by
// tokens: a batch with one sample for each rollout, which is what the server saw and sampled.
func TestAgentByTokens(t *testing.T) {
	t.Parallel()
	s := tokenstest.New(t, "Qwen3", nil)
	s.Say = func(prompt string) (string, string) {
		commands := []string{"cat a.txt", "echo two >> a.txt; cat a.txt"}
		n := strings.Count(prompt, "<tool_response>")
		if n == len(commands) {
			return s.Template.Answer("It is mended.", "Done.", ""), ""
		}
		call, _ := json.Marshal(map[string]any{"name": "sh", "arguments": map[string]string{"command": commands[n]}})
		return "<think>\nI must look.\n</think>\n\nI shall." + s.Template.Calls[0] + string(call) +
			s.Template.Calls[1] + s.Template.Stop[0], ""
	}
	p, _ := newAgentPlane(t, "mend", nil, func(c *runfile.RunConfig) {
		c.Endpoint, c.EndpointAPI = s.URL+"/v1",
			runfile.APITokens
	})
	p.agents()
	batch := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	if batch.Samples != 2 {
		t.Errorf("a batch of %d samples, want one for each of two rollouts", batch.Samples)
	}
	var asked []string
	for _, turn := range s.Turns() {
		asked = append(asked, fmt.Sprint(turn.Prompt, turn.Sampled))
	}
	for _, id := range batch.Rollouts {
		m := member{Rollout: id}
		var tokens []int32
		for i, turn := range p.rollout(m).Turns {
			tokens = append(tokens, turn.PromptDelta...)
			at := slices.Index(asked, fmt.Sprint(tokens, turn.TokenIDs))
			if at < 0 || turn.NewSegment != (i == 0) || turn.Reasoning == nil {
				t.Fatalf("%s: turn %d is recorded behind %q, new %t", id, i,
					s.Tokenizer.Decode(tokens), turn.NewSegment)
			}
			asked, tokens = slices.Delete(asked, at, at+1), append(tokens, turn.TokenIDs...)
		}
		if samples := p.trajectory(m).Samples(); len(samples) != 1 || !slices.Equal(samples[0].Tokens, tokens) {
			t.Errorf("%s: %d samples, or other tokens than the server's", id, len(samples))
		}
	}
	servicetest.CloseRun(t, p.log, "r")
	planes.Prove(t, p.log, "r")
}
