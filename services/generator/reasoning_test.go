package generator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestReasoningGoesBack: what a server takes out of the text as the model's thoughts is in the turn
// and in the trajectory, and the next request has it in the fields in which the server gave it.
func TestReasoningGoesBack(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	all := []string{"reasoning", "reasoning_content", "thinking_blocks", "reasoning_details"}
	for name, c := range map[string]struct {
		fields string // of the message
		text   string
		same   []string
	}{
		"sglang":     {`"reasoning_content":"hm"`, "hm", []string{"reasoning_content"}},
		"newer-vllm": {`"reasoning":"hm"`, "hm", []string{"reasoning"}},
		"vllm":       {`"reasoning":"hm","reasoning_content":"hm"`, "hm", []string{"reasoning", "reasoning_content"}},
		"openrouter": {`"reasoning":"hm","reasoning_details":[{"type":"reasoning.encrypted","data":"x+/="}]`, "hm",
			[]string{"reasoning", "reasoning_details"}},
		"blocks": {`"thinking_blocks":[{"type":"thinking","thinking":"hm","signature":"s"}]`, "hm",
			[]string{"thinking_blocks"}},
		"llama-blank": {`"reasoning_content":""`, "", nil},
		"null":        {`"reasoning":null,"reasoning_content":null,"thinking_blocks":null`, "", nil},
	} {
		var f fields
		asks := strings.Replace(`{"prompt_token_ids":[1,2],"choices":[{"finish_reason":"tool_calls","message":{"content":null,FIELDS,
			"tool_calls":[{"id":"c1","type":"function","function":{"name":"read_file","arguments":"{}"}}]},
			"token_ids":[3],"logprobs":{"content":[{"logprob":-1}]}}]}`, "FIELDS", c.fields, 1)
		e := serve(t, text(final))
		e.Config.Handler = f.keep(t, func(w http.ResponseWriter, body map[string]any) {
			if len(body["messages"].([]any)) > 2 {
				fmt.Fprint(w, final)
				return
			}
			fmt.Fprint(w, asks)
		})
		open(t, log, name, e.URL, nil)
		turn := turns(t, log, name, 1)[0]
		answerTools(t, log, name, turn)
		_, trajectory := finished(t, log, name)
		recorded := ""
		if turn.Reasoning != nil {
			recorded = turn.Reasoning.Text
		}
		if recorded != c.text || trajectory.Messages[2].Reasoning != c.text || trajectory.Messages[2].Content != "" {
			t.Errorf("%s: the turn has %+v, the trajectory %+v", name, turn.Reasoning, trajectory.Messages[2])
		}
		var given, back map[string]any
		if err := json.Unmarshal([]byte("{"+c.fields+"}"), &given); err != nil {
			t.Fatal(err)
		}
		for _, body := range f.seen() {
			if messages := body["messages"].([]any); len(messages) > 2 {
				back = messages[2].(map[string]any)
			}
		}
		for _, field := range all {
			got, there := back[field]
			if there != slices.Contains(c.same, field) || there && fmt.Sprint(got) != fmt.Sprint(given[field]) {
				t.Errorf("%s: %s goes back as %v, it was %v", name, field, got, given[field])
			}
		}
	}
}

// TestTooMuchReasoning: a server that thinks without end fails the try; nothing
// that is cut goes back to it.
func TestTooMuchReasoning(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	thinks := strings.Replace(final, `"content":"Done."`,
		`"content":"Done.","reasoning":"`+strings.Repeat("x", events.MaxReasoning+1)+`"`, 1)
	open(t, log, "r", serve(t, text(thinks), text(final)).URL, nil)
	finished(t, log, "r")
	retried := servicetest.All(t, log, "r", events.RolloutRetriedType)
	if len(retried) != 1 || !strings.Contains(servicetest.Data[events.RolloutRetried](t, retried[0]).Message,
		"bytes of reasoning, at most") {
		t.Errorf("failed tries: %v", servicetest.IDs(retried))
	}
}

func TestSegmentCause(t *testing.T) {
	thinks := &events.Reasoning{Text: "hm", Fields: []string{"reasoning"}}
	turn := func(begins bool, prompt, ids []int32, r *events.Reasoning) events.TurnSampled {
		return events.TurnSampled{NewSegment: begins, PromptDelta: prompt, TokenIDs: ids, Reasoning: r}
	}
	for name, c := range map[string]struct {
		turns  []events.TurnSampled
		prompt []int32
		want   string
	}{
		"the first turn": {nil, []int32{1}, ""},
		"thoughts left out": {[]events.TurnSampled{turn(true, []int32{1, 2}, []int32{3, 4, 5}, thinks)},
			[]int32{1, 2, 5, 6}, events.CauseThoughts},
		"with what opens them": {[]events.TurnSampled{turn(true, []int32{1, 2, 30}, []int32{3, 4, 5}, thinks)},
			[]int32{1, 2, 5, 6}, events.CauseThoughts},
		"of the turn before": {[]events.TurnSampled{turn(true, []int32{1, 2}, []int32{3, 4}, thinks),
			turn(false, []int32{5}, []int32{6}, nil)}, []int32{1, 2, 4, 5, 6}, events.CauseThoughts},
		"thoughts in the text": {[]events.TurnSampled{{NewSegment: true, PromptDelta: []int32{1},
			TokenIDs: []int32{2, 3}, Content: "hm</think>a"}}, []int32{1, 3}, events.CauseThoughts},
		"behind the thoughts": {[]events.TurnSampled{turn(true, []int32{1},
			[]int32{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, thinks)},
			[]int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99}, events.CauseDrift},
		"other tokens": {[]events.TurnSampled{turn(true, []int32{1, 2}, []int32{3, 4, 5}, nil)},
			[]int32{1, 2, 3, 9, 5, 6}, events.CauseDrift},
		"an answer cut short": {[]events.TurnSampled{turn(true, []int32{1, 2}, []int32{3, 4, 5}, nil)},
			[]int32{1, 2, 3}, events.CauseDrift},
		"another system prompt": {[]events.TurnSampled{turn(true, slices.Repeat([]int32{1}, 50), []int32{3}, thinks)},
			[]int32{9, 9}, events.CauseHistory},
		"a turn's own segment": {[]events.TurnSampled{turn(true, []int32{1}, []int32{2}, thinks),
			turn(true, []int32{7}, []int32{8}, nil)}, []int32{7, 9}, events.CauseDrift},
		"behind a summary": {[]events.TurnSampled{{NewSegment: true, PromptDelta: []int32{1}, TokenIDs: []int32{2},
			Summary: &events.Summary{}}}, []int32{1}, events.CauseSummary},
		"a turn without tokens": {[]events.TurnSampled{{NewSegment: true, TextOnly: true}},
			[]int32{1}, events.CauseHistory},
	} {
		if got := segmentCause(&events.Rollout{Turns: c.turns}, c.prompt); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
