package dialects

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// Gemini is one of Gemini's methods that generate content. The path of a request says what in
// other dialects its body does.
type Gemini struct {
	// Model is the one that the client asks for.
	Model    string
	Streamed bool
}

// GeminiMethod reads the end of a path, MODEL:METHOD, and the query behind it.
func GeminiMethod(path string, query url.Values) (Dialect, error) {
	at := strings.LastIndex(path, ":")
	model, method := path[:max(at, 0)], path[at+1:]
	switch {
	case model == "" || len(model) > maxName:
		return nil, fmt.Errorf("%.150q: want MODEL:generateContent, MODEL:streamGenerateContent or MODEL:countTokens",
			path)
	case method == "generateContent":
		return Gemini{Model: model}, nil
	case method == "streamGenerateContent" && query.Get("alt") == "sse":
		return Gemini{Model: model, Streamed: true}, nil
	case method == "streamGenerateContent":
		return nil, errors.New("streamGenerateContent: only as server-sent events: put ?alt=sse behind it")
	case method == "countTokens":
		return GeminiCount{Gemini{Model: model}}, nil
	}
	return nil, fmt.Errorf("method %.40q: want generateContent, streamGenerateContent or countTokens", method)
}

// What is read of a request. Its fields may be spelled as in JSON or as in the
// protocol: topK or top_k.
type (
	geminiAsk struct {
		Contents          []json.RawMessage `json:"contents"`
		SystemInstruction json.RawMessage   `json:"systemInstruction"`
		Tools             []json.RawMessage `json:"tools"`
		ToolConfig        json.RawMessage   `json:"toolConfig"`
		GenerationConfig  json.RawMessage   `json:"generationConfig"`
	}
	geminiContent struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	}
	geminiPart struct {
		Text             string          `json:"text"`
		Thought          bool            `json:"thought"`
		FunctionCall     json.RawMessage `json:"functionCall"`
		FunctionResponse json.RawMessage `json:"functionResponse"`
		InlineData       json.RawMessage `json:"inlineData"`
	}
	// geminiFunction is a call, or the answer to one, or a tool.
	geminiFunction struct {
		ID          string              `json:"id"`
		Name        string              `json:"name"`
		Args        inference.Arguments `json:"args"`
		Response    json.RawMessage     `json:"response"`
		Parts       []json.RawMessage   `json:"parts"` // images of an answer
		Description string              `json:"description"`
		Parameters  json.RawMessage     `json:"parameters"`
		JSONSchema  json.RawMessage     `json:"parametersJsonSchema"`
	}
	geminiConfig struct {
		Temperature        json.RawMessage `json:"temperature"`
		TopP               json.RawMessage `json:"topP"`
		TopK               *float64        `json:"topK"`
		PresencePenalty    json.RawMessage `json:"presencePenalty"`
		FrequencyPenalty   json.RawMessage `json:"frequencyPenalty"`
		MaxOutputTokens    *int            `json:"maxOutputTokens"`
		StopSequences      []string        `json:"stopSequences"`
		CandidateCount     *int            `json:"candidateCount"`
		ResponseMimeType   string          `json:"responseMimeType"`
		ResponseSchema     json.RawMessage `json:"responseSchema"`
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		ThinkingConfig     json.RawMessage `json:"thinkingConfig"`
	}
)

// Fields of the objects within a request that are read, or say nothing to a model. Safety settings,
// labels and the like are among the request's own: see package fields.
var (
	geminiContentFields = []string{"role", "parts"}
	geminiPartFields    = []string{"text", "thought", "thoughtSignature", "functionCall", "functionResponse",
		"partMetadata", "inlineData", "mediaResolution"}
	geminiShownFields    = []string{"inlineData"}
	geminiDataFields     = []string{"mimeType", "data", "displayName"}
	geminiCallFields     = []string{"id", "name", "args"}
	geminiResponseFields = []string{"id", "name", "response", "parts"}
	geminiToolFields     = append([]string{"functionDeclarations"}, geminiWithheld...)
	geminiFunctionFields = []string{"name", "description", "parameters", "parametersJsonSchema",
		"response", "responseJsonSchema"}
	geminiConfigFields = []string{
		"temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "maxOutputTokens",
		"stopSequences", "candidateCount",
		"responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig",
	}
	geminiThinkingFields = []string{"includeThoughts", "thinkingBudget", "thinkingLevel"}
	// geminiWithheld are tools that the provider runs by itself; the model is not offered them.
	geminiWithheld = []string{"googleSearch", "googleSearchRetrieval", "urlContext"}
)

// Read implements Dialect.
func (g Gemini) Read(body []byte) (*Request, error) { return g.read(body, fields.Gemini) }

// read reads a request that has the fields of a dialect.
func (g Gemini) read(body []byte, known fields.Dialect) (*Request, error) {
	body, err := camelCase(body)
	if err == nil {
		_, err = known.Check(body)
	}
	if err != nil {
		return nil, err
	}
	var m geminiAsk
	if err := fields.Decode(body, &m); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if len(m.Contents) == 0 || len(m.Contents) > maxMessages {
		return nil, fmt.Errorf("contents: %d of them, want 1 to %d", len(m.Contents), maxMessages)
	}
	var r geminiReader
	if len(m.SystemInstruction) > 0 {
		if err := r.system(m.SystemInstruction); err != nil {
			return nil, fmt.Errorf("systemInstruction: %w", err)
		}
	}
	for i, raw := range m.Contents {
		if err := r.content(raw); err != nil {
			return nil, fmt.Errorf("contents[%d]: %w", i, err)
		}
	}
	tools, without, err := geminiTools(m.Tools)
	if err != nil {
		return nil, err
	}
	extra, spelled := map[string]any{}, map[string]any{"model": g.Model}
	if len(m.ToolConfig) > 0 {
		if extra["tool_choice"], err = geminiChoice(m.ToolConfig, tools); err != nil {
			return nil, fmt.Errorf("toolConfig: %w", err)
		}
		spelled["tool_choice"] = extra["tool_choice"]
	}
	thoughts, most, err := geminiSettings(m.GenerationConfig, extra, spelled)
	if err != nil {
		return nil, fmt.Errorf("generationConfig: %w", err)
	}
	a, err := spokenAsk(r.conversation, r.shown, tools, extra)
	if err != nil {
		return nil, err
	}
	if a.Spelled, err = inference.Encode(spelled); err != nil {
		return nil, err
	}
	a.MaxTokens, a.Stream, a.Withheld, a.thoughts = most, g.Streamed, without, thoughts
	return a, nil
}

// geminiReader makes the messages of a chat of contents.
type geminiReader struct {
	conversation []spokenMessage
	calls        int              // so far
	open         []geminiFunction // calls of the last turn without an answer
	shown        gallery
}

func (r *geminiReader) system(raw json.RawMessage) error {
	before := len(r.conversation)
	if err := r.content(raw); err != nil {
		return err
	}
	if len(r.conversation) != before+1 || r.conversation[before].Role != "user" ||
		r.conversation[before].images != nil {
		return errors.New("want parts of text")
	}
	r.conversation[before].Role = "system"
	return nil
}

// content reads one message. Answers to calls are messages of their own in a chat, and come before
// what the user says beside them.
func (r *geminiReader) content(raw json.RawMessage) error {
	var c geminiContent
	if err := readObject(raw, geminiContentFields, &c); err != nil {
		return err
	}
	m := spokenMessage{Role: "user"}
	switch c.Role {
	case "", "user", "function", "tool": // the latter hold answers to calls
	case "model":
		m.Role = "assistant"
		r.open = nil
	default:
		return fmt.Errorf("role: %.40q, want user or model", c.Role)
	}
	said := m.Role == "assistant"
	var w words
	for i, raw := range c.Parts {
		text, err := r.part(raw, &m, &w)
		if err != nil {
			return fmt.Errorf("parts[%d]: %w", i, err)
		}
		said = said || text
	}
	if said {
		r.conversation = append(r.conversation, m.with(w.content()))
	}
	return nil
}

// part reads a part into a message and its words; text is whether it belongs to these.
func (r *geminiReader) part(raw json.RawMessage, m *spokenMessage, w *words) (text bool, err error) {
	var p geminiPart
	if err := readObject(raw, geminiPartFields, &p); err != nil {
		return false, err
	}
	model := m.Role == "assistant"
	switch {
	case len(p.FunctionCall) > 0 && model:
		var f geminiFunction
		if err := readObject(p.FunctionCall, geminiCallFields, &f); err != nil {
			return false, fmt.Errorf("functionCall: %w", err)
		}
		if r.calls++; f.ID == "" {
			f.ID = fmt.Sprintf("call-%d", r.calls)
		}
		r.open = append(r.open, f)
		call := inference.Function{Name: f.Name, Arguments: f.Args}
		m.ToolCalls = append(m.ToolCalls, inference.ToolCall{ID: f.ID, Type: functionTool, Function: call})
	case len(p.FunctionResponse) > 0 && !model:
		var f geminiFunction
		if err := readObject(p.FunctionResponse, geminiResponseFields, &f); err != nil {
			return false, fmt.Errorf("functionResponse: %w", err)
		}
		answer, err := r.answer(f)
		r.conversation = append(r.conversation, answer)
		return false, err
	case len(p.FunctionCall) > 0 || len(p.FunctionResponse) > 0:
		return false, errors.New("a call is the model's part, and its functionResponse the user's")
	case p.Thought && model:
		m.Reasoning += p.Text
	case len(p.InlineData) > 0 && !model:
		return true, r.image(w, p.InlineData)
	case len(p.InlineData) > 0:
		return false, errors.New("inlineData: an image is the user's part")
	default:
		w.say(p.Text)
	}
	return true, nil
}

// image takes an image in.
func (r *geminiReader) image(w *words, raw json.RawMessage) error {
	var in struct {
		Data string `json:"data"`
	}
	err := readObject(raw, geminiDataFields, &in)
	if err == nil {
		err = r.shown.take(w, in.Data)
	}
	if err != nil {
		return fmt.Errorf("inlineData: %w", err)
	}
	return nil
}

// answer is the message of a call's answer. Clients that give no id mean the first call of
// that name that has none yet.
func (r *geminiReader) answer(f geminiFunction) (spokenMessage, error) {
	m := spokenMessage{Role: "tool", ToolCallID: f.ID, Content: string(f.Response)}
	at := slices.IndexFunc(r.open, func(c geminiFunction) bool {
		return c.ID == f.ID ||
			f.ID == "" && c.Name == f.Name
	})
	switch {
	case at >= 0:
		m.ToolCallID = r.open[at].ID
		r.open = slices.Delete(r.open, at, at+1)
	case f.ID == "":
		return m, fmt.Errorf("functionResponse: no call of %.80q stands before it that has no answer", f.Name)
	}
	var output map[string]json.RawMessage // a function's output alone is its words
	var text string
	if json.Unmarshal(f.Response, &output) == nil && len(output) == 1 && len(output["output"]) > 0 &&
		json.Unmarshal(output["output"], &text) == nil {
		m.Content = text
	}
	var w words
	w.say(m.Content)
	for i, raw := range f.Parts {
		var p geminiPart
		err := readObject(raw, geminiShownFields, &p)
		if err == nil {
			err = r.image(&w, p.InlineData)
		}
		if err != nil {
			return m, fmt.Errorf("functionResponse: parts[%d]: %w", i, err)
		}
	}
	return m.with(w.content()), nil
}

// readObject reads an object that has no fields but those which are known, or which say nothing.
func readObject(raw json.RawMessage, known []string, into any) error {
	raw, err := camelCase(raw)
	if err != nil {
		return err
	}
	if err := fields.Only("", raw, known); err != nil {
		return err
	}
	if err := fields.Decode(raw, into); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	return nil
}

// camelCase spells an object's own fields as JSON does: top_k as topK. One
// that is null is left out.
func camelCase(raw json.RawMessage) (json.RawMessage, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(raw, &has); err != nil {
		return nil, errors.New("want an object")
	}
	if fields.CountKeys(raw) > len(has) {
		return nil, errors.New("a key is there twice")
	}
	spelled := make(map[string]json.RawMessage, len(has))
	for name, value := range has {
		if string(value) == "null" {
			continue
		}
		words := strings.Split(name, "_")
		for i, word := range words[1:] {
			if word != "" {
				words[i+1] = strings.ToUpper(word[:1]) + word[1:]
			}
		}
		other := strings.Join(words, "")
		if _, twice := spelled[other]; twice {
			return nil, fmt.Errorf("%.100s: it is there twice", other)
		}
		spelled[other] = value
	}
	return inference.Encode(spelled)
}
