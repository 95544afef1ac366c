package gateway

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

func constraintsOf(a *ask) []string {
	var turn events.TurnSampled
	a.noteSampling(&turn, &fleet.Answer{})
	return turn.Constrained
}

// begun are the requests to which fields are added, by dialect.
var begun = map[string]struct {
	dialects.Dialect
	body string
}{
	"chat":      {dialects.Chat{}, `{"messages":[{"role":"user","content":"a"}]`},
	"messages":  {dialects.Messages{}, `{"max_tokens":5,"messages":[{"role":"user","content":"a"}]`},
	"responses": {dialects.Responses{}, `{"input":"a"`},
	"gemini":    {dialects.Gemini{}, `{"contents":[{"parts":[{"text":"a"}]}]`},
}

// TestFieldsOfRequests: a field that nobody would see is refused by name, in each dialect; those
// that agents send without an effect are not, nor values that say nothing.
func TestFieldsOfRequests(t *testing.T) {
	all := func(fields ...string) map[string][]string {
		return map[string][]string{"chat": fields, "messages": fields, "responses": fields}
	}
	refused := all(`"best_of":2`, `"prompt_logprobs":1`, `"seed":7`, `"stop_token_ids":[1]`, `"echo":true`,
		`"use_beam_search":true`, `"custom_logit_processor":"x"`, `"vllm_xargs":{"a":1}`,
		`"priority":3`, `"extra_body":{"min_tokens":1}`, `"web_search_options":{"a":1}`, `"an_unknown_word":"x"`,
		`"seed":0`, `"enable_thinking":false`, `"skip_special_tokens":false`, `"separate_reasoning":false`,
		`"thinking_token_budget":0`, `"prompt_logprobs":0`,
		`"truncate_prompt_tokens":-1`, `"thinking_budget":5`, `"chat_template":"x"`, `"documents":[{}]`,
		`"return_hidden_states":true`, `"lora_path":"x"`, `"rid":"x"`, `"typical_p":0.9`,
		`"dry_multiplier":0.8`, `"xtc_probability":0.1`, `"mirostat":2`, `"temperature_last":true`, `"SEED":3`)
	refused["messages"] = append(refused["messages"], `"logit_bias":{"1":5}`, `"stop":["a"]`, `"n":2`,
		`"mcp_servers":[{"url":"x"}]`, `"container":"c"`, `"response_format":{"type":"json_object"}`)
	refused["messages"] = append(refused["messages"], `"output_config":{"task_budget":{"total":9}}`,
		`"output_config":[1]`)
	refused["responses"] = append(refused["responses"], `"text":{"stop":"a"}`, `"reasoning":{"max_tokens":5}`,
		`"include":["message.output_text.logprobs"]`, `"logit_bias":{"1":5}`, `"stop":["a"]`, `"n":2`,
		`"top_logprobs":3`, `"prompt":{"id":"x"}`, `"guided_json":{"type":"object"}`)
	refused["chat"] = append(refused["chat"], `"n":2`, `"top_logprobs":3`, `"functions":[{"name":"f"}]`,
		`"function_call":{"name":"f"}`, `"audio":{"voice":"a"}`, `"stop_sequences":["a"]`)
	taken := all(`"model":"m"`, `"temperature":0`, `"stream":true`, `"metadata":{"user_id":"u"}`, `"user":"u"`,
		`"store":true`, `"service_tier":"auto"`, `"seed":null`, `"best_of":1`, `"echo":false`,
		`"logit_bias":{}`, `"an_unknown_word":[]`,
		`"skip_special_tokens":true`, `"use_beam_search":false`, `"priority":0`, `"safe_prompt":false`)
	taken["chat"] = append(taken["chat"], `"stream_options":{"include_usage":true}`, `"parallel_tool_calls":true`,
		`"reasoning_effort":"high"`, `"prompt_cache_key":"k"`, `"n":1`, `"stop":["a"]`,
		`"max_completion_tokens":9`, `"logit_bias":{"1":5}`, `"structured_outputs":{"regex":"a"}`)
	taken["messages"] = append(taken["messages"], `"thinking":{"type":"adaptive"}`,
		`"context_management":{"edits":[1]}`, `"output_config":{"effort":"high"}`,
		`"stop_sequences":["a"]`, `"system":"s"`)
	taken["responses"] = append(taken["responses"], `"include":["reasoning.encrypted_content"]`,
		`"prompt_cache_key":"k"`, `"parallel_tool_calls":true`, `"reasoning":{"summary":"auto"}`,
		`"client_metadata":{"a":"b"}`, `"truncation":"disabled"`, `"max_output_tokens":9`, `"text":{"verbosity":"low"}`)
	try := func(name, field string) error {
		b := begun[name]
		body := []byte(b.body + "," + field + "}")
		_, err := b.Read(body)
		return err
	}
	if _, err := (dialects.Chat{}).Read([]byte(
		`{"messages":[{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}]}`)); err == nil ||
		!strings.HasPrefix(err.Error(), "messages[0]: function_call") {
		t.Errorf("chat with a message's function_call: %v", err)
	}
	for name := range begun {
		for _, field := range refused[name] {
			key := strings.Split(field, `"`)[1]
			if err := try(name, field); err == nil || !strings.HasPrefix(err.Error(), key) {
				t.Errorf("%s with %s: %v", name, field, err)
			}
		}
		for _, field := range taken[name] {
			if err := try(name, field); err != nil {
				t.Errorf("%s with %s: %v", name, field, err)
			}
		}
	}
}

// TestConstraints: a turn says by which fields its tokens were sampled from another distribution
// than the policy's, and these are passed on.
func TestConstraints(t *testing.T) {
	tools := func(more string) string {
		return `"tools":[{"name":"f","input_schema":{"type":"object"},"function":{"name":"f","parameters":{"type":"object"}` +
			more + `}` + more + `}]`
	}
	for name, c := range map[string]struct {
		dialects []string
		field    string
		want     string // "" for none
	}{
		"nothing":                    {[]string{"chat", "messages", "responses"}, `"temperature":0.5`, ""},
		"tools":                      {[]string{"chat", "messages"}, tools(""), ""},
		"tools that are not held":    {[]string{"chat", "messages"}, tools(`,"strict":false`), ""},
		"strict tools":               {[]string{"chat", "messages"}, tools(`,"strict":true`), "tools"},
		"strict in a text":           {[]string{"chat"}, tools(`,"strict":"true"`), "tools"},
		"strict by a number":         {[]string{"chat"}, tools(`,"strict":1`), "tools"},
		"strict beside another case": {[]string{"chat"}, tools(`,"strict":true,"Strict":false`), "tools"},
		"strict, and then not":       {[]string{"chat"}, tools(`,"strict":true,"strict":false`), "tools"},
		"strict tools alone": {[]string{"responses"},
			`"tools":[{"type":"function","name":"f","strict":true}]`, "tools"},
		"a choice":      {[]string{"chat", "responses"}, `"tool_choice":"auto"`, ""},
		"no choice":     {[]string{"chat", "responses"}, `"tool_choice":"none"`, ""},
		"a forced call": {[]string{"chat", "responses"}, `"tool_choice":"required"`, "tool_choice"},
		"another":       {[]string{"messages"}, `"tool_choice":{"type":"any"}`, "tool_choice"},
		"a named one":   {[]string{"messages"}, `"tool_choice":{"type":"tool","name":"f"}`, "tool_choice"},
		"a named function": {[]string{"chat"}, `"tool_choice":{"type":"function","function":{"name":"f"}}`,
			"tool_choice"},
		"a named one elsewhere": {[]string{"responses"},
			`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}`, "tool_choice"},
		"of these tools": {[]string{"chat"},
			`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`, "tool_choice"},
		"a choice beside another case": {[]string{"chat"}, `"tool_choice":{"type":"function","Type":"auto"}`,
			"tool_choice"},
		"a schema beside another case": {[]string{"chat"}, `"response_format":{"type":"json_object","Type":"text"}`,
			"response_format"},
		"text": {[]string{"chat"}, `"response_format":{"type":"text"}`, ""},
		"JSON": {[]string{"chat"}, `"response_format":{"type":"json_object"}`, "response_format"},
		"a schema": {[]string{"chat"},
			`"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`, "response_format"},
		"a schema of responses": {[]string{"responses"},
			`"text":{"format":{"type":"json_schema","name":"n","schema":{}}}`, "response_format"},
		"text of responses": {[]string{"responses"}, `"text":{"format":{"type":"text"}}`, ""},
		"a schema of messages": {[]string{"messages"},
			`"output_config":{"format":{"type":"json_schema","schema":{}}}`, "response_format"},
		"the same, as it was": {[]string{"messages"},
			`"output_format":{"type":"json_schema","schema":{}}`, "response_format"},
		"a bias":         {[]string{"chat"}, `"logit_bias":{"50256":-100}`, "logit_bias"},
		"no bias":        {[]string{"chat"}, `"logit_bias":{}`, ""},
		"a least length": {[]string{"chat"}, `"min_tokens":10`, "min_tokens"},
		"no end":         {[]string{"chat"}, `"ignore_eos":true`, "ignore_eos"},
		"an expression":  {[]string{"chat"}, `"guided_regex":"a+"`, "guided_regex"},
		"words": {[]string{"chat"}, `"bad_words":["a"],"allowed_token_ids":[1]`,
			"allowed_token_ids,bad_words"},
		"a forced call of Gemini": {[]string{"gemini"}, `"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`,
			"tool_choice"},
		"no forced call of Gemini": {[]string{"gemini"}, `"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}`, ""},
		"a schema of Gemini": {[]string{"gemini"},
			`"generationConfig":{"responseMimeType":"application/json","responseSchema":{"type":"OBJECT"}}`,
			"response_format"},
	} {
		for _, d := range c.dialects {
			t.Run(name+"/"+d, func(t *testing.T) {
				body := []byte(begun[d].body + "," + c.field + "}")
				a, err := begun[d].Read(body)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(constraintsOf(&ask{Request: a}), ","); got != c.want {
					t.Errorf("constrained by %q, want %q", got, c.want)
				}
				asked := request(&ask{Request: a}, "m", 1, 1)
				for _, field := range strings.Split(c.want, ",") {
					if c.want != "" && asked[field] == nil {
						t.Errorf("%s is not passed on: %v", field, slices.Sorted(maps.Keys(asked)))
					}
				}
			})
		}
	}
	a := &ask{Request: &dialects.Request{Forward: map[string]json.RawMessage{}},
		sampling: runfile.Sampling{ExtraBody: map[string]any{"min_tokens": 3, "cache_salt": "x"}}}
	if got := strings.Join(constraintsOf(a), ","); got != "extra_body.min_tokens" {
		t.Errorf("a run's own: %q", got)
	}
	for _, wrong := range []string{`"text":{"format":7}`, `"text":{"format":{"type":"grammar"}}`} {
		if _, err := (dialects.Responses{}).Read([]byte(begun["responses"].body + "," + wrong + "}")); err == nil ||
			!strings.Contains(err.Error(), "text.format") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
