package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/storage"
)

// Messages are compared as far as every harness repeats them. Space around words, the spelling of
// arguments and the ids of calls say nothing: a result is that of the call to whose place among
// those of the answer before it its id leads. Thoughts that are left out say nothing, others do.

// Bounds of arguments that are compared as JSON, in bytes and levels; larger ones are the same
// where they are spelled alike.
const (
	maxCompared = 256 << 10
	maxLevels   = 100
)

// root is what stands in a prompt beside its messages, as a digest: the tools in their order, and
// what the chat template is told. "" is nothing.
func (a *ask) root() (string, error) {
	parts := map[string]any{}
	for _, field := range []string{"tools", "reasoning_effort"} {
		if raw := a.Forward[field]; len(raw) > 0 {
			parts[field] = raw
		}
	}
	if string(a.Forward["tool_choice"]) == `"none"` { // servers may leave the tools out then
		parts["tool_choice"] = "none"
	}
	if len(a.sampling.ChatTemplateKwargs) > 0 {
		parts["chat_template_kwargs"] = a.sampling.ChatTemplateKwargs
	}
	if len(parts) == 0 {
		return "", nil
	}
	text, err := json.Marshal(parts)
	return storage.Digest(text), err
}

// same reports whether two messages that are no results of tools say the same, and the thoughts
// of neither are known. Results of tools need sameResult beside it.
func (d defaults) same(a, b events.PromptMessage) bool {
	x, y := a.Content, b.Content
	if a.Role == roleAssistant {
		_, x = thoughtsIn(x)
		_, y = thoughtsIn(y)
	} else if a.Name != b.Name {
		return false
	}
	return a.Role == b.Role && strings.TrimSpace(x) == strings.TrimSpace(y) && sameImages(a, b) &&
		slices.EqualFunc(a.ToolCalls, b.ToolCalls, d.sameToolCall)
}

// roleAssistant is the role of what a model said.
const roleAssistant = "assistant"

func (d defaults) sameToolCall(x, y events.ToolCall) bool {
	return x.Name == y.Name && (sameArguments(inference.Arguments(x.Arguments), inference.Arguments(y.Arguments)) ||
		sameInput(x.Arguments, y.Arguments) || d.sameFilled(x, y))
}

// defaults are the values that the schemas of a request's tools have for arguments which a call
// leaves out, by tool and argument. Clients fill them in: Claude Code repeats each Edit with
// "replace_all": false.
type defaults map[string]map[string]any

// maxTools bounds the tools whose defaults are read, in bytes: agents write them, and values that
// are read take many times their text. Calls of larger ones are the same where their arguments are.
const maxTools = 1 << 20

// defaultsOf reads the defaults of a request's tools. A schema that cannot be read has none, nor
// have two tools of one name: nobody knows which one a call means.
func defaultsOf(tools json.RawMessage) defaults {
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if len(tools) > maxTools || !bytes.Contains(tools, []byte(`"default"`)) || json.Unmarshal(tools, &list) != nil {
		return nil
	}
	all := defaults{}
	for _, tool := range list {
		own := map[string]any{}
		for argument, schema := range fieldsOf(fieldsOf(tool.Function.Parameters)["properties"]) {
			if value, ok := valueOf(inference.Arguments(fieldsOf(schema)["default"])); ok {
				own[argument] = value
			}
		}
		if _, twice := all[tool.Function.Name]; twice {
			own = nil
		}
		all[tool.Function.Name] = own
	}
	return all
}

// fieldsOf are the fields of a JSON object, by their exact names; none of another value.
func fieldsOf(object json.RawMessage) (fields map[string]json.RawMessage) {
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	return fields
}

// sameFilled reports whether two calls of one tool have the same arguments, those left out that
// have their default.
func (d defaults) sameFilled(x, y events.ToolCall) bool {
	own := d[x.Name]
	if len(own) == 0 || len(x.Arguments) > maxCompared || len(y.Arguments) > maxCompared {
		return false
	}
	var without [2]map[string]any
	for i, c := range []events.ToolCall{x, y} {
		value, ok := valueOf(inference.Arguments(c.Arguments).ForServer())
		object, is := value.(map[string]any)
		if !ok || !is {
			return false
		}
		maps.DeleteFunc(object, func(argument string, value any) bool {
			usual, known := own[argument]
			return known && sameValue(value, usual)
		})
		without[i] = object
	}
	return sameValue(without[0], without[1])
}

// sameInput reports whether the arguments of one call are the input of the other: a client whose
// custom tool the model called otherwise was given the model's words as its input.
func sameInput(x, y string) bool {
	return len(x) <= maxCompared && len(y) <= maxCompared && dialects.CustomInput(x) == dialects.CustomInput(y)
}

// sameResult reports whether two messages answer the same call, each one of the answer before it.
func sameResult(a, b events.PromptMessage, callsA, callsB []events.ToolCall) bool {
	x, y := callOf(a, callsA), callOf(b, callsB)
	return x == y && (x >= 0 || a.ToolCallID == b.ToolCallID)
}

// maxAnswered bounds how many calls of an answer are looked through for the
// one that a result names.
const maxAnswered = 1024

// callOf is which of some calls a message answers, -1 for none.
func callOf(m events.PromptMessage, calls []events.ToolCall) int {
	return slices.IndexFunc(calls[:min(len(calls), maxAnswered)], func(c events.ToolCall) bool {
		return m.ToolCallID != "" && c.ID == m.ToolCallID
	})
}

// repeats reports whether a message is a turn's answer, as its client was given it; thinks is
// whether it has the turn's thoughts, too. raw is the message as the client sent it.
func (d defaults) repeats(m events.PromptMessage, raw json.RawMessage, turn *events.TurnSampled) (ok, thinks bool) {
	if !d.same(m, messageOf(turn)) {
		return false, false
	}
	own, _ := thoughtsIn(turn.Content)
	if turn.Reasoning != nil {
		own = turn.Reasoning.Text
	}
	said, _ := thoughtsIn(m.Content)
	var fields struct {
		Reasoning json.RawMessage `json:"reasoning"`
		Other     json.RawMessage `json:"reasoning_content"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &fields) != nil {
		return false, false
	}
	for _, field := range []json.RawMessage{fields.Reasoning, fields.Other} {
		var text string
		if len(field) > 0 && json.Unmarshal(field, &text) != nil {
			return false, false // nobody knows what it says
		}
		if said == "" {
			said = text
		}
		if text != "" && strings.TrimSpace(text) != strings.TrimSpace(said) {
			return false, false
		}
	}
	said = strings.TrimSpace(said)
	return said == "" || said == strings.TrimSpace(own), said != ""
}

// thoughtsIn parts an answer's text that holds its thoughts.
func thoughtsIn(content string) (thoughts, words string) {
	at := strings.LastIndex(content, events.EndOfThoughts)
	if at < 0 {
		return "", content
	}
	thoughts = strings.TrimPrefix(strings.TrimSpace(content[:at]), "<think>")
	return strings.TrimSpace(thoughts), content[at+len(events.EndOfThoughts):]
}

// messageOf is a turn as a message of the prompts after it.
func messageOf(t *events.TurnSampled) events.PromptMessage {
	return events.PromptMessage{Role: roleAssistant, Content: t.Content, ToolCalls: t.ToolCalls}
}

// sameArguments reports whether two texts hold the same JSON values: in any order of keys, with
// any spaces and escapes, and numbers as clients write them anew, 2.50 as 2.5. A key that is there
// twice has no one value.
func sameArguments(x, y inference.Arguments) bool {
	if x == y {
		return true
	}
	if len(x) > maxCompared || len(y) > maxCompared {
		return false
	}
	one, ok := valueOf(x.ForServer())
	other, known := valueOf(y.ForServer())
	return ok && known && sameValue(one, other)
}

// valueOf reads a JSON value; ok is false for one that cannot be compared.
func valueOf(text inference.Arguments) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	value, ok = nextValue(d, 0)
	return value, ok && !d.More()
}

func nextValue(d *json.Decoder, level int) (any, bool) {
	token, err := d.Token()
	if err != nil || level > maxLevels {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, ok := nextValue(d, level+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err == nil
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			key, _ := d.Token()
			name, ok := key.(string)
			if _, twice := object[name]; !ok || twice || strings.ContainsRune(name, utf8.RuneError) {
				return nil, false
			}
			if object[name], ok = nextValue(d, level+1); !ok {
				return nil, false
			}
		}
		_, err := d.Token()
		return object, err == nil
	}
	if number, is := token.(json.Number); is {
		return decimalOf(string(number)), true
	}
	text, is := token.(string)
	return token, !is || !strings.ContainsRune(text, utf8.RuneError) // half a character reads as that, whichever it is
}

func sameValue(x, y any) bool {
	switch x := x.(type) {
	case []any:
		list, is := y.([]any)
		return is && slices.EqualFunc(x, list, sameValue)
	case map[string]any:
		object, is := y.(map[string]any)
		return is && maps.EqualFunc(x, object, sameValue)
	}
	switch y.(type) {
	case []any, map[string]any:
		return false
	}
	return x == y
}

// decimal is a number: its digits without zeros at either end, behind 0., times a power of ten.
type decimal struct {
	digits   string
	exponent int
	negative bool
}

// decimalOf reads a number of JSON. One with an exponent that no client keeps is its text.
func decimalOf(text string) any {
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || exponent > 1<<20 || exponent < -1<<20 {
			return text
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent += len(whole) - (len(whole+fraction) - len(digits))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		return decimal{}
	}
	return decimal{digits, exponent, negative}
}
