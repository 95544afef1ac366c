package inference

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// TestLacks: each way in which a server gives no tokens that can be trained on has its name.
func TestLacks(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		lacks []string
	}{
		"vLLM":   {`{"prompt_token_ids":[1,2],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}],"usage":{"prompt_tokens":2,"completion_tokens":1}}`, nil},
		"SGLang": {`{"choices":[{"prompt_token_ids":[1,2],"meta_info":{"output_token_logprobs":[[-1,4,null]]},"message":{"content":"Done."}}],"usage":{"prompt_tokens":2,"completion_tokens":1}}`, nil},
		"llama.cpp": {`{"choices":[{"logprobs":{"content":[{"id":4,"logprob":-1}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackPromptIDs, events.LackIDs}},
		"plain": {`{"choices":[{"message":{"content":"Done."}}]}`,
			[]string{events.LackPromptIDs, events.LackIDs, events.LackLogprobs}},
		"no logprobs": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":null,"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"no prompt": {`{"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackPromptIDs}},
		"a word for none": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-9999}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"another for it": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1e30}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"null in a list": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4,5],"logprobs":{"content":[{"logprob":-1},{"logprob":null}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"none in a triple": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[[-10000,4,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"NaN": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4,5],"logprobs":{"content":[{"token":"NaN\"-Infinity","logprob":-1},{"logprob":NaN}]},"message":{"content":"NaN \\\" Infinity"}}]}`,
			[]string{events.LackLogprobs}},
		"-Infinity": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob": -Infinity}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"NaN in a triple": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[[NaN,4,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"null in a triple": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[[null,4,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"the lowest float64": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1.7976931348623157e+308}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"beyond float64": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1e400}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"beyond float32": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1e39}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"a text for none": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":"-inf"}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"a text of a number": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":"-0.5"}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"a boolean": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":true}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"an object": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":{}}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"a list": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":[-1]}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"far too low in a triple": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[[-1e400,4,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"a text in a triple": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[["-1",4,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"a fraction as an id": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[[-1,4.5,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackAgreement}},
		"a text as an id": {`{"choices":[{"prompt_token_ids":[1],"meta_info":{"output_token_logprobs":[[-1,"4",null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackAgreement}},
		"a probability": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":0.9}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackAgreement}},
		"an id below 0": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[-1],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackAgreement}},
		"more ids than logprobs": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4,5],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}]}`,
			[]string{events.LackAgreement}},
		"logprobs of completions": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"token_logprobs":[-1],"tokens":["a"]},"message":{"content":"Done."}}]}`,
			[]string{events.LackLogprobs}},
		"nothing sampled": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[],"message":{"content":""}}]}`,
			nil},
		"calls not parsed": {`{"prompt_token_ids":[1],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"<tool_call>\n{\"name\":\"grep\"}\n</tool_call>"}}]}`,
			[]string{events.LackTools}},
		"usage counts another prompt": {`{"prompt_token_ids":[1,2],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`,
			[]string{events.LackAgreement}},
		"usage counts another answer": {`{"prompt_token_ids":[1,2],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}],"usage":{"prompt_tokens":2,"completion_tokens":9}}`,
			[]string{events.LackAgreement}},
		"ids and triples differ": {`{"choices":[{"prompt_token_ids":[1],"token_ids":[5],"meta_info":{"output_token_logprobs":[[-1,4,null]]},"message":{"content":"Done."}}]}`,
			[]string{events.LackAgreement}},
	} {
		t.Run(name, func(t *testing.T) {
			var r Response
			if err := unmarshal([]byte(c.body), &r); err != nil {
				t.Fatal(err)
			}
			turn, prompt, err := r.Turn(0, 0, time.Now())
			if !slices.Equal(turn.Lacks, c.lacks) {
				t.Errorf("%s: lacks %v, want %v", name, turn.Lacks, c.lacks)
			}
			disagrees, usable := slices.Contains(c.lacks, events.LackAgreement), len(c.lacks) == 0 ||
				slices.Equal(c.lacks, []string{events.LackTools})
			if none := errors.Is(err, tokencheck.ErrNone); errors.Is(err, ErrTokens) != (disagrees || none) ||
				none && !slices.Contains(turn.Lacks, events.LackLogprobs) || turn.TextOnly == usable ||
				(prompt != nil) != usable {
				t.Errorf("%s: text only %v, prompt %v: %v", name, turn.TextOnly, prompt, err)
			}
		})
	}
}

// TestTokensEstimated: a turn whose server counts no tokens has those of its text, and says so;
// what a server counts, and tokens themselves, count as they are.
func TestTokensEstimated(t *testing.T) {
	for name, c := range map[string]struct {
		body           string
		prompt, answer int
		estimated      bool
	}{
		"no usage":          {`{"choices":[{"message":{"content":"Done, all of it."}}]}`, 25, 4, true},
		"an empty one":      {`{"choices":[{"finish_reason":"tool_calls","message":{"content":"12345","tool_calls":[{"function":{"name":"grep","arguments":"{}"}}]}}],"usage":{}}`, 25, 3, true},
		"of the prompt":     {`{"choices":[{"message":{"content":"12345"}}],"usage":{"prompt_tokens":7}}`, 7, 2, true},
		"nothing was said":  {`{"choices":[{"message":{"content":""}}],"usage":{"prompt_tokens":7}}`, 7, 0, false},
		"whole":             {`{"choices":[{"message":{"content":"12345"}}],"usage":{"prompt_tokens":7,"completion_tokens":9}}`, 7, 9, false},
		"tokens themselves": {`{"prompt_token_ids":[1,2],"choices":[{"token_ids":[4],"logprobs":{"content":[{"logprob":-1}]},"message":{"content":"Done."}}]}`, 2, 1, false},
	} {
		var r Response
		if err := unmarshal([]byte(c.body), &r); err != nil {
			t.Fatal(err)
		}
		r.asked = 98
		turn, _, err := r.Turn(0, 0, time.Now())
		if err != nil || turn.PromptTokens != c.prompt || turn.CompletionTokens != c.answer ||
			turn.TokensEstimated != c.estimated {
			t.Errorf("%s: %d and %d tokens, estimated %v: %v", name, turn.PromptTokens, turn.CompletionTokens,
				turn.TokensEstimated, err)
		}
	}
	elsewhere := events.TurnSampled{Prompt: []events.PromptMessage{{Content: "12345678"}}, Content: "1234"}
	if n := elsewhere.Used(); n != 3 {
		t.Errorf("a turn that ran elsewhere and counts nothing has used %d tokens", n)
	}
}

// TestWithoutNaN: numbers that JSON does not have become null outside of texts,
// and nothing else changes.
func TestWithoutNaN(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":NaN}`: `{"a":null}`, `[Infinity,-Infinity , -1]`: `[null,null , -1]`,
		`{"NaN":"\"NaN",` + `"b":NaN,"c":"-Infinity"}`: `{"NaN":"\"NaN","b":null,"c":"-Infinity"}`,
		`{"a":"NaN"}`: "", `[-1]`: "", `{"a`: "", `{"a\`: "", `Nan`: "",
	} {
		if got := string(withoutNaN([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
