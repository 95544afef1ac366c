package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// atifChecker holds a document against the rules of ATIF v1.8 and collects everything that is
// wrong. Subagents and continuations, which rollouts do not have, count as unknown fields.
type atifChecker struct{ faults []string }

// validATIF fails the test when a document breaks a rule of the format.
func validATIF(t *testing.T, document []byte) {
	t.Helper()
	for _, fault := range checkATIF(document) {
		t.Errorf("the document is not valid %s: %s", atifVersion, fault)
	}
}

// checkATIF gives what is wrong with a document, nothing for a valid one.
func checkATIF(document []byte) []string {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var root any
	if err := decoder.Decode(&root); err != nil {
		return []string{"not a JSON document: " + err.Error()}
	}
	c := &atifChecker{}
	d, ok := c.object("document", root, map[string]atifRule{
		"schema_version": {atifText, true}, "agent": {atifAny, true}, "steps": {atifList, true},
		"session_id": {atifText, false}, "trajectory_id": {atifText, false},
		"notes": {atifText, false}, "final_metrics": {atifAny, false}, "extra": {atifObject, false},
	})
	if !ok {
		return c.faults
	}
	if v, isText := d["schema_version"].(string); isText && v != atifVersion {
		c.fault("schema_version: %q instead of %s", v, atifVersion)
	}
	if agent, given := d["agent"]; given {
		c.object("agent", agent, map[string]atifRule{"name": {atifText, true}, "version": {atifText, true},
			"model_name": {atifText, false}, "tool_definitions": {atifList, false}, "extra": {atifObject, false}})
	}
	steps, isList := d["steps"].([]any)
	if isList && len(steps) == 0 {
		c.fault("document.steps: there must be at least one step")
	}
	for i, step := range steps {
		c.step(i, step)
	}
	if metrics, given := d["final_metrics"]; given {
		at := "final_metrics"
		m, _ := c.object(at, metrics, map[string]atifRule{
			"total_prompt_tokens": {atifCount, false}, "total_completion_tokens": {atifCount, false},
			"total_cached_tokens": {atifCount, false}, "total_cost_usd": {atifNumber, false},
			"total_steps": {atifCount, false}, "extra": {atifObject, false}})
		if n, ok := m["total_steps"].(json.Number); ok && n.String() != fmt.Sprint(len(steps)) {
			c.fault("%s.total_steps: %s, but there are %d steps", at, n, len(steps))
		}
	}
	return c.faults
}

// agentOnly are the fields that only steps of the agent have.
var agentOnly = []string{"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}

func (c *atifChecker) step(i int, v any) {
	at := fmt.Sprintf("steps[%d]", i)
	s, ok := c.object(at, v, map[string]atifRule{
		"step_id": {atifCount, true}, "source": {atifText, true}, "message": {atifContent, true},
		"timestamp": {atifText, false}, "model_name": {atifText, false}, "reasoning_effort": {atifAny, false},
		"reasoning_content": {atifText, false}, "tool_calls": {atifList, false}, "observation": {atifAny, false},
		"metrics": {atifAny, false}, "llm_call_count": {atifCount, false},
		"is_copied_context": {atifTruth, false}, "extra": {atifObject, false},
	})
	if !ok {
		return
	}
	if id, ok := s["step_id"].(json.Number); ok && id.String() != fmt.Sprint(i+1) {
		c.fault("%s.step_id: %s, but steps count from 1 without gaps", at, id)
	}
	source, isText := s["source"].(string)
	if isText && !slices.Contains([]string{"system", "user", "agent"}, source) {
		c.fault("%s.source: %q must be system, user or agent", at, source)
	}
	for _, field := range agentOnly {
		if s[field] != nil && source != "agent" {
			c.fault("%s.%s: only steps of the agent have it", at, field)
		}
	}
	if moment, ok := s["timestamp"].(string); ok {
		if _, err := time.Parse(time.RFC3339Nano, moment); err != nil {
			c.fault("%s.timestamp: %q is not a time in ISO 8601", at, moment)
		}
	}
	if n, ok := s["llm_call_count"].(json.Number); ok && n.String() == "0" &&
		(s["metrics"] != nil || s["reasoning_content"] != nil) {
		c.fault("%s: no model was called, but it has metrics or reasoning_content", at)
	}
	c.observation(at, s["observation"], c.calls(at, s["tool_calls"]))
	if s["metrics"] != nil {
		c.metrics(at+".metrics", s["metrics"])
	}
}

// calls checks tool calls and gives their ids.
func (c *atifChecker) calls(at string, v any) map[string]bool {
	ids := map[string]bool{}
	calls, _ := v.([]any)
	for i, call := range calls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		m, _ := c.object(at, call, map[string]atifRule{"tool_call_id": {atifText, true},
			"function_name": {atifText, true}, "arguments": {atifObject, true}})
		id, ok := m["tool_call_id"].(string)
		if ok && (id == "" || ids[id]) {
			c.fault("%s.tool_call_id: %q is empty or stands twice in the step", at, id)
		}
		ids[id] = true
	}
	return ids
}

func (c *atifChecker) observation(at string, v any, calls map[string]bool) {
	if v == nil {
		return
	}
	at += ".observation"
	o, ok := c.object(at, v, map[string]atifRule{"results": {atifList, true}})
	if !ok {
		return
	}
	results, _ := o["results"].([]any)
	for i, result := range results {
		at := fmt.Sprintf("%s.results[%d]", at, i)
		r, _ := c.object(at, result, map[string]atifRule{"source_call_id": {atifText, false},
			"content": {atifContent, false}})
		if id, ok := r["source_call_id"].(string); ok && !calls[id] {
			c.fault("%s.source_call_id: %.80q is no tool call of the step", at, id)
		}
	}
}

func (c *atifChecker) metrics(at string, v any) {
	m, _ := c.object(at, v, map[string]atifRule{
		"prompt_tokens": {atifCount, false}, "completion_tokens": {atifCount, false},
		"cached_tokens": {atifCount, false}, "cost_usd": {atifNumber, false}, "extra": {atifObject, false},
		"prompt_token_ids": {atifCounts, false}, "completion_token_ids": {atifCounts, false},
		"logprobs": {atifNumbers, false},
	})
	for _, pair := range [][2]string{{"prompt_tokens", "prompt_token_ids"},
		{"completion_tokens", "completion_token_ids"}} {
		n, isCount := m[pair[0]].(json.Number)
		ids, isList := m[pair[1]].([]any)
		if isCount && isList && n.String() != fmt.Sprint(len(ids)) {
			c.fault("%s.%s: %s, but there are %d ids", at, pair[0], n, len(ids))
		}
	}
	ids, _ := m["completion_token_ids"].([]any)
	if logprobs, ok := m["logprobs"].([]any); ok && len(logprobs) != len(ids) {
		c.fault("%s.logprobs: %d for %d completion_token_ids", at, len(logprobs), len(ids))
	}
}

func (c *atifChecker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// atifRule says of a field what it may hold, in a word and a test, and whether it must be there.
type atifRule struct {
	is       atifKind
	required bool
}

type atifKind struct {
	name string
	test func(any) bool
}

// Kinds of values.
var (
	atifAny     = atifKind{"anything", func(any) bool { return true }}
	atifText    = atifKind{"a text", func(v any) bool { _, ok := v.(string); return ok }}
	atifTruth   = atifKind{"true or false", func(v any) bool { _, ok := v.(bool); return ok }}
	atifObject  = atifKind{"an object", func(v any) bool { _, ok := v.(map[string]any); return ok }}
	atifList    = atifKind{"a list", func(v any) bool { _, ok := v.([]any); return ok }}
	atifNumber  = atifKind{"a number", func(v any) bool { _, ok := v.(json.Number); return ok }}
	atifCount   = atifKind{"a whole number, not negative", isCount}
	atifNumbers = atifKind{"a list of numbers", func(v any) bool { return everyItem(v, atifNumber.test) }}
	atifCounts  = atifKind{"a list of whole numbers, not negative", func(v any) bool { return everyItem(v, isCount) }}
	atifContent = atifKind{"a text, or a list of parts with a text each",
		func(v any) bool { return atifText.test(v) || everyItem(v, isPart) }}
)

func isCount(v any) bool {
	n, ok := v.(json.Number)
	whole, err := n.Int64()
	return ok && err == nil && whole >= 0
}

// isPart knows parts of text: rollouts have no images.
func isPart(v any) bool {
	part, ok := v.(map[string]any)
	return ok && len(part) == 2 && part["type"] == "text" && atifText.test(part["text"])
}

func everyItem(v any, test func(any) bool) bool {
	items, ok := v.([]any)
	return ok && !slices.ContainsFunc(items, func(item any) bool { return !test(item) })
}

// object checks that v is an object of certain fields and nothing else.
func (c *atifChecker) object(at string, v any, rules map[string]atifRule) (map[string]any, bool) {
	fields, ok := v.(map[string]any)
	if !ok {
		c.fault("%s: must be an object", at)
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		value, given := fields[name]
		switch rule := rules[name]; {
		case !given && rule.required:
			c.fault("%s.%s: is missing", at, name)
		case given && !rule.is.test(value):
			c.fault("%s.%s: must be %s", at, name, rule.is.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if _, known := rules[name]; !known {
			c.fault("%s.%s: unknown field", at, name)
		}
	}
	return fields, true
}
