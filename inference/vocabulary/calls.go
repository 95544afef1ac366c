package vocabulary

import (
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
)

// callMarks begin a tool call in the templates of models, all with one of markBegins; the other
// marks are texts of their own.
var callMarks = regexp.MustCompile("^(?:" + strings.Join([]string{
	// Any tag that is named so, with or without bars, a prefix and more words behind: Hermes, Qwen,
	// GLM, Granite, Phi, Kimi, DeepSeek, DSML, MiniMax, Seed, Hunyuan, Jamba, LFM, Nemotron,
	// LongCat, FunctionGemma, Doubao, Olmo.
	`(?i:<[|｜]?[^<>\s"'=]{0,40}(tool|function)[_▁ -]calls?[^<>\s"'=]{0,24}[|｜]?>)`, `<TOOLCALL>`, `<tool_use>`,
	`<\|FunctionCallBegin\|>`,
	`<(function|tool)calls?>`, `<use_mcp_tool>`, `<\|recipient\|>`, // Glaive, MiroThinker, Functionary
	`<[^<>\s"'=]{0,24}(function|invoke|tool)\s*(=|\sname\s*=)`, // Qwen-Coder, Llama, MiniMax, Step, DSML
	`<parameter=`, `</(function|invoke)>`, `</?arg_(key|value)>`, // the rest of a call of Qwen-Coder's or GLM's
	// Mistral, LM Studio, Qwen from a conversation of its own
	`\[(?i:(TOOL|FUNCTION)_(CALL|REQUEST)S?)[]:]`,
	// Llama
	`<\|python_(tag|start)\|>`,
	// Command, InternLM, Apertus
	`<\|(START_ACTION|action_start|tools_prefix|plugin)\|>`,
	// harmony
	`<\|channel\|>\s*(commentary|analysis)\s+to\s*=`, `<\|start\|>\s*assistant\s+to\s*=`, `<\|(call|message)\|>`,
}, "|") + ")")

// wordMarks begin a call without a sign that all share: Phi, Gemma and others' fences, Qwen,
// Command R, ReAct, harmony whose own marks were taken out, and Gemini.
var wordMarks = []string{"functools[{", "```tool_c", "✿FUNCTION✿", "Action: ```json", "\nAction Input:",
	"to=functions.", "commentary to=", "analysis to=", "assistant to=", "assistantcommentary",
	"default_api."}

const (
	markBegins = "<["
	// markBytes is how much of a text a mark takes at most.
	markBytes = 256
)

// marked reports whether a text holds a mark. It looks only where one may begin: the expression
// alone takes 0.1 µs for each byte of a text.
func marked(text string) bool {
	for _, mark := range wordMarks {
		if strings.Contains(text, mark) {
			return true
		}
	}
	for {
		at := strings.IndexAny(text, markBegins)
		if at < 0 {
			return false
		}
		if callMarks.MatchString(text[at:min(at+markBytes, len(text))]) {
			return true
		}
		text = text[at+1:]
	}
}

// pythonCalls are calls as Llama 4 and others write them: a list of calls of Python, or a name in a
// line of its own behind Functionary's mark.
var pythonCalls = regexp.MustCompile(`^(\[\s*[A-Za-z_][\w.-]*\((?s:.*)\)\s*\]$|>>>[A-Za-z_][\w.-]*\r?\n)`)

// ownFields are fields that calls have and other objects hardly: what stands in a fence behind
// words has one of them, or is what the words are about.
var ownFields = []string{`"arguments"`, `"tool_calls"`, `"function_call"`, `"action_input"`,
	`"tool_input"`, `"tool_uses"`}

// callName is what stands before the object of a call as GLM-4 writes it, and as those of others
// are once a server has taken their special tokens out: a name, and right behind it or in the next
// line an object, bare or in a fence.
var callName = regexp.MustCompile("^([A-Za-z_][\\w.-]*)(?::\\d+)?(?:\\[ARGS\\])?(?:\\r?\\n)?(?:```json\\s*)?$")

// maxCallName is how long that may be, in bytes.
const maxCallName = 200

func isNamedObject(text string) bool {
	begin := strings.IndexByte(text, '{')
	if begin < 0 || begin > maxCallName {
		return false
	}
	found := callName.FindStringSubmatch(text[:begin])
	return found != nil && found[1] != "json" && json.Valid([]byte(strings.TrimSuffix(text[begin:], "```")))
}

// bareCall reports whether a text, or a fenced block or the lines at its end, is calls and nothing
// else, as models write them whose server has another parser.
func bareCall(said string) bool {
	text := strings.TrimSpace(said)
	own := func(field string) bool { return strings.Contains(text, field) }
	if isNamedObject(text) {
		return true
	}
	if inside, fenced := strings.CutSuffix(text, "```"); fenced {
		at := max(0, strings.LastIndex(inside, "```"))
		text = strings.TrimSpace(strings.TrimLeft(inside[at:], "`abcdefghijklmnopqrstuvwxyz_"))
		if strings.TrimSpace(inside[:at]) != "" && !slices.ContainsFunc(ownFields, own) {
			return false
		}
	} else if _, lines, behind := strings.Cut(text, "\n{"); behind && !strings.HasPrefix(text, "[") &&
		slices.ContainsFunc(ownFields, own) {
		text = "{" + lines
	}
	if pythonCalls.MatchString(text) {
		return true
	}
	if text == "" || text[0] != '{' && text[0] != '[' {
		return false
	}
	d := json.NewDecoder(strings.NewReader(strings.ReplaceAll(text, "};", "}"))) // Llama writes a sign between them
	for found := 0; ; found++ {
		var value any
		switch err := d.Decode(&value); {
		case err == io.EOF:
			return found > 0
		case err != nil || !isCall(value, maxNested):
			return false
		}
	}
}

// maxNested is how deep a call may be in others' fields, of which there are
// tool_calls and function.
const maxNested = 3

// Fields of a call's name and of its arguments, by the formats of models and of frameworks.
var (
	nameFields     = []string{"name", "function", "tool", "tool_name", "function_name", "action", "recipient_name"}
	argumentFields = []string{"arguments", "parameters", "args", "input", "action_input", "tool_input"}
)

// isCall reports whether a value of JSON is a call: an object with a name and arguments, one that
// holds calls in a field, or a list of calls.
func isCall(value any, nested int) bool {
	if nested == 0 {
		return false
	}
	if list, ok := value.([]any); ok {
		return len(list) > 0 && !slices.ContainsFunc(list, func(v any) bool { return !isCall(v, nested-1) })
	}
	fields, ok := value.(map[string]any)
	for _, holder := range []string{"tool_calls", "tool_call", "tool_uses", "function_call", "function"} {
		if inner := fields[holder]; ok && isCall(inner, nested-1) {
			return true
		}
	}
	named := slices.ContainsFunc(nameFields, func(field string) bool {
		name, _ := fields[field].(string)
		return name != ""
	})
	given := 0
	for _, field := range argumentFields {
		if fields[field] == nil {
			continue
		}
		if given++; !arguments(fields[field]) {
			return false
		}
	}
	return named && given == 1
}

// arguments reports whether a value is an object, or the text of one; nil is none, and may be.
func arguments(v any) bool {
	if text, ok := v.(string); ok && json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	_, object := v.(map[string]any)
	return object || v == nil
}

// UnreadCall reports whether what a model said, and read has no call in it, holds a call that the
// server should have read. In thoughts a mark may be a word of the model's on calls: it counts
// where nothing is said behind them, or the thoughts end with it.
func UnreadCall(said, thoughts string) bool {
	if marked(said) || bareCall(said) {
		return true
	}
	thoughts = strings.TrimSpace(thoughts)
	if !marked(thoughts) {
		return false
	}
	closed := strings.HasSuffix(thoughts, ">") || strings.HasSuffix(thoughts, "]") || strings.HasSuffix(thoughts, "}")
	return strings.TrimSpace(said) == "" || closed
}
