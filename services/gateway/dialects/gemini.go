package dialects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// Gemini is one of Gemini's methods that generate content. The path of a request says what in other dialects its body does.
type Gemini struct {
	// Model is the one that the client asks for.
	Model    string
	Streamed bool
}

// GeminiMethod reads the end of a path, MODEL:METHOD, and the query behind it.
func GeminiMethod(path string, query url.Values) (Gemini, error) {
	at := strings.LastIndex(path, ":")
	model, method := path[:max(at, 0)], path[at+1:]
	switch {
	case model == "" || len(model) > maxName:
		return Gemini{}, fmt.Errorf("%.150q: want MODEL:generateContent or MODEL:streamGenerateContent", path)
	case method == "generateContent":
		return Gemini{Model: model}, nil
	case method == "streamGenerateContent" && query.Get("alt") == "sse":
		return Gemini{Model: model, Streamed: true}, nil
	case method == "streamGenerateContent":
		return Gemini{}, errors.New("streamGenerateContent: only as server-sent events: put ?alt=sse behind it")
	}
	return Gemini{}, fmt.Errorf("method %.40q: want generateContent or streamGenerateContent", method)
}

// What is read of a request. Its fields may be spelled as in JSON or as in the protocol: topK or top_k.
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
	}
	// geminiFunction is a call, or the answer to one, or a tool.
	geminiFunction struct {
		ID          string              `json:"id"`
		Name        string              `json:"name"`
		Args        inference.Arguments `json:"args"`
		Response    json.RawMessage     `json:"response"`
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

// Fields of the objects within a request that are read, or say nothing to a model. Safety settings, labels and the like are among the
// request's own: see package fields.
var (
	geminiContentFields  = []string{"role", "parts"}
	geminiPartFields     = []string{"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "partMetadata"}
	geminiCallFields     = []string{"id", "name", "args"}
	geminiResponseFields = []string{"id", "name", "response"}
	geminiToolFields     = append([]string{"functionDeclarations"}, geminiWithheld...)
	geminiFunctionFields = []string{"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"}
	geminiConfigFields   = []string{
		"temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "maxOutputTokens", "stopSequences", "candidateCount",
		"responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig",
	}
	geminiThinkingFields = []string{"includeThoughts", "thinkingBudget", "thinkingLevel"}
	// geminiWithheld are tools that the provider runs by itself; the model is not offered them.
	geminiWithheld = []string{"googleSearch", "googleSearchRetrieval", "urlContext"}
)

// Read implements Dialect.
func (g Gemini) Read(body []byte) (*Request, error) {
	body, err := camelCase(body)
	if err == nil {
		err = fields.Gemini.Check(body)
	}
	if err != nil {
		return nil, err
	}
	var m geminiAsk
	if err := json.Unmarshal(body, &m); err != nil {
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
	a, err := spokenAsk(r.conversation, tools, extra)
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
}

func (r *geminiReader) system(raw json.RawMessage) error {
	before := len(r.conversation)
	if err := r.content(raw); err != nil {
		return err
	}
	if len(r.conversation) != before+1 || r.conversation[before].Role != "user" {
		return errors.New("want parts of text")
	}
	r.conversation[before].Role = "system"
	return nil
}

// content reads one message. Answers to calls are messages of their own in a chat, and come before what the user says beside them.
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
	for i, raw := range c.Parts {
		text, err := r.part(raw, &m)
		if err != nil {
			return fmt.Errorf("parts[%d]: %w", i, err)
		}
		said = said || text
	}
	if said {
		r.conversation = append(r.conversation, m)
	}
	return nil
}

// part reads a part into a message; text is whether it belongs to that.
func (r *geminiReader) part(raw json.RawMessage, m *spokenMessage) (text bool, err error) {
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
	default:
		m.Content += p.Text
	}
	return true, nil
}

// answer is the message of a call's answer. Clients that give no id mean the first call of that name that has none yet.
func (r *geminiReader) answer(f geminiFunction) (spokenMessage, error) {
	m := spokenMessage{Role: "tool", ToolCallID: f.ID, Content: string(f.Response)}
	at := slices.IndexFunc(r.open, func(c geminiFunction) bool { return c.ID == f.ID || f.ID == "" && c.Name == f.Name })
	switch {
	case at >= 0:
		m.ToolCallID = r.open[at].ID
		r.open = slices.Delete(r.open, at, at+1)
	case f.ID == "":
		return m, fmt.Errorf("functionResponse: no call of %.80q stands before it that has no answer", f.Name)
	}
	var output map[string]json.RawMessage // a function's output alone is its words
	var text string
	if json.Unmarshal(f.Response, &output) == nil && len(output) == 1 && len(output["output"]) > 0 && json.Unmarshal(output["output"], &text) == nil {
		m.Content = text
	}
	return m, nil
}

// geminiTools reads the functions that the client runs, and which tools of the provider the model is not offered.
func geminiTools(list []json.RawMessage) (tools []inference.Tool, without []string, err error) {
	for i, raw := range list {
		var has map[string]json.RawMessage
		if err := readObject(raw, geminiToolFields, &has); err != nil {
			return nil, nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		for _, name := range geminiWithheld {
			if has[name] != nil && !slices.Contains(without, name) {
				without = append(without, name)
			}
		}
		var functions []json.RawMessage
		if declared := has["functionDeclarations"]; declared != nil && json.Unmarshal(declared, &functions) != nil {
			return nil, nil, fmt.Errorf("tools[%d].functionDeclarations: want a list", i)
		}
		for j, raw := range functions {
			var f geminiFunction
			if err := readObject(raw, geminiFunctionFields, &f); err != nil {
				return nil, nil, fmt.Errorf("tools[%d].functionDeclarations[%d]: %w", i, j, err)
			}
			if len(f.JSONSchema) == 0 && len(f.Parameters) > 0 {
				if f.JSONSchema, err = jsonSchema(f.Parameters); err != nil {
					return nil, nil, fmt.Errorf("tools[%d].functionDeclarations[%d].parameters: %w", i, j, err)
				}
			}
			d := inference.Description{Name: f.Name, Description: f.Description, Parameters: parameters(f.JSONSchema)}
			tools = append(tools, inference.Tool{Type: functionTool, Function: d})
		}
	}
	if len(tools) > maxTools {
		return nil, nil, fmt.Errorf("tools: %d functions, at most %d", len(tools), maxTools)
	}
	slices.Sort(without)
	return tools, without, nil
}

// geminiChoice is the chat's for a choice of tools.
func geminiChoice(raw json.RawMessage, tools []inference.Tool) (any, error) {
	var in struct {
		Config json.RawMessage `json:"functionCallingConfig"`
	}
	var c struct {
		Mode    string   `json:"mode"`
		Allowed []string `json:"allowedFunctionNames"`
	}
	if err := readObject(raw, []string{"functionCallingConfig"}, &in); err != nil {
		return nil, err
	}
	if len(in.Config) > 0 {
		if err := readObject(in.Config, []string{"mode", "allowedFunctionNames"}, &c); err != nil {
			return nil, fmt.Errorf("functionCallingConfig: %w", err)
		}
	}
	switch {
	case len(c.Allowed) == 1 && c.Mode == "ANY":
		if !slices.ContainsFunc(tools, func(t inference.Tool) bool { return t.Function.Name == c.Allowed[0] }) {
			return nil, fmt.Errorf("functionCallingConfig.allowedFunctionNames: the request offers no function %.80q", c.Allowed[0])
		}
		return map[string]any{"type": functionTool, "function": map[string]string{"name": c.Allowed[0]}}, nil
	case len(c.Allowed) > 0:
		return nil, errors.New("functionCallingConfig.allowedFunctionNames: only one, with mode ANY: offer the functions alone that are allowed")
	}
	switch c.Mode {
	case "", "MODE_UNSPECIFIED", "AUTO":
		return "auto", nil
	case "ANY":
		return "required", nil
	case "NONE":
		return "none", nil
	}
	return nil, fmt.Errorf("functionCallingConfig.mode: %.40q, want AUTO, ANY or NONE", c.Mode)
}

// geminiSettings reads how to sample: extra are the fields that go to the server, and spelled is what chat completions call it.
func geminiSettings(raw json.RawMessage, extra, spelled map[string]any) (thoughts bool, most int, err error) {
	if len(raw) == 0 {
		return false, 0, nil
	}
	var c geminiConfig
	err = readObject(raw, geminiConfigFields, &c)
	switch {
	case err != nil:
		return false, 0, err
	case c.CandidateCount != nil && *c.CandidateCount != 1:
		return false, 0, fmt.Errorf("candidateCount: %d, but a rollout goes on with one answer; start more members of its group", *c.CandidateCount)
	case c.MaxOutputTokens != nil && *c.MaxOutputTokens < 1:
		return false, 0, fmt.Errorf("maxOutputTokens: %d, must be positive", *c.MaxOutputTokens)
	case c.TopK != nil && (*c.TopK != math.Trunc(*c.TopK) || math.Abs(*c.TopK) > math.MaxInt32):
		return false, 0, fmt.Errorf("topK: %v, want a whole number", *c.TopK)
	}
	for name, value := range map[string]json.RawMessage{
		"temperature": c.Temperature, "top_p": c.TopP, "presence_penalty": c.PresencePenalty, "frequency_penalty": c.FrequencyPenalty,
		"thinking": c.ThinkingConfig,
	} {
		if len(value) > 0 {
			spelled[name] = value
		}
	}
	if c.TopK != nil {
		spelled["top_k"] = int(*c.TopK)
	}
	if c.MaxOutputTokens != nil {
		most = *c.MaxOutputTokens
		spelled["max_tokens"] = most
	}
	if len(c.StopSequences) > 0 {
		extra["stop"], spelled["stop"] = c.StopSequences, c.StopSequences
	}
	format, err := c.format()
	if err != nil {
		return false, 0, err
	}
	if format != nil {
		extra["response_format"], spelled["response_format"] = format, format
	}
	if len(c.ThinkingConfig) > 0 {
		var t struct {
			Include bool `json:"includeThoughts"`
		}
		if err := readObject(c.ThinkingConfig, geminiThinkingFields, &t); err != nil {
			return false, 0, fmt.Errorf("thinkingConfig: %w", err)
		}
		thoughts = t.Include
	}
	return thoughts, most, nil
}

// format is the answer's form as chat completions have it; nil where the answer is to be text.
func (c geminiConfig) format() (any, error) {
	schema := c.ResponseJSONSchema
	if len(schema) == 0 && len(c.ResponseSchema) > 0 {
		var err error
		if schema, err = jsonSchema(c.ResponseSchema); err != nil {
			return nil, fmt.Errorf("responseSchema: %w", err)
		}
	}
	kind := "json_object"
	if len(schema) > 0 {
		kind = "json_schema"
	}
	switch c.ResponseMimeType {
	case "application/json":
		raw, err := inference.Encode(map[string]any{"type": kind, "schema": schema})
		if err != nil {
			return nil, err
		}
		return responseFormat(raw)
	case "", "text/plain":
		if len(schema) == 0 {
			return nil, nil
		}
		return nil, errors.New("responseMimeType: a schema holds for application/json alone")
	}
	return nil, fmt.Errorf("responseMimeType: %.40q, want text/plain or application/json", c.ResponseMimeType)
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
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	return nil
}

// camelCase spells an object's own fields as JSON does: top_k as topK. One that is null is left out.
func camelCase(raw json.RawMessage) (json.RawMessage, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(raw, &has); err != nil {
		return nil, errors.New("want an object")
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

// maxSchema is how deep a schema may be.
const maxSchema = 64

// jsonSchema is a schema in Gemini's own form as JSON has it: its types are in capitals there, what may be null says so, and sizes are texts.
func jsonSchema(raw json.RawMessage) (json.RawMessage, error) {
	var schema map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&schema) != nil {
		return nil, errors.New("want a schema")
	}
	converted, err := convertSchema(schema, 0)
	if err != nil {
		return nil, err
	}
	return inference.Encode(converted)
}

func convertSchema(value any, level int) (any, error) {
	schema, ok := value.(map[string]any)
	if !ok || level > maxSchema {
		return nil, fmt.Errorf("want objects, at most %d in each other", maxSchema)
	}
	converted := map[string]any{}
	for name, value := range schema {
		var err error
		switch name {
		case "propertyOrdering", "property_ordering", "nullable":
			continue
		case "type":
			if kind, is := value.(string); is {
				value = strings.ToLower(kind)
			}
		case "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties":
			if number, is := value.(string); is {
				value = json.Number(number)
			}
		case "items", "additionalProperties":
			if _, is := value.(map[string]any); is {
				value, err = convertSchema(value, level+1)
			}
		case "properties", "$defs":
			if properties, is := value.(map[string]any); is {
				for property, schema := range properties {
					if properties[property], err = convertSchema(schema, level+1); err != nil {
						return nil, err
					}
				}
			}
		case "anyOf", "any_of":
			name = "anyOf"
			if list, is := value.([]any); is {
				for i := range list {
					if list[i], err = convertSchema(list[i], level+1); err != nil {
						return nil, err
					}
				}
			}
		}
		if err != nil {
			return nil, err
		}
		converted[name] = value
	}
	if kind, is := converted["type"].(string); is && schema["nullable"] == true {
		converted["type"] = []string{kind, "null"}
	}
	return converted, nil
}

// The answer's parts.
type (
	geminiAnswer struct {
		Candidates []geminiCandidate `json:"candidates"`
		Usage      *geminiUsage      `json:"usageMetadata,omitempty"`
		Model      string            `json:"modelVersion"`
		ID         string            `json:"responseId"`
	}
	geminiCandidate struct {
		Content       geminiSaid `json:"content"`
		FinishReason  string     `json:"finishReason,omitempty"`
		FinishMessage string     `json:"finishMessage,omitempty"`
		Index         int        `json:"index"`
	}
	geminiSaid struct {
		Role  string `json:"role"`
		Parts []any  `json:"parts"`
	}
	geminiText struct {
		Text    string `json:"text"`
		Thought bool   `json:"thought,omitempty"`
	}
	geminiCall struct {
		FunctionCall geminiCalled `json:"functionCall"`
	}
	geminiCalled struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}
	geminiUsage struct {
		Prompt     int `json:"promptTokenCount"`
		Candidates int `json:"candidatesTokenCount"`
		Total      int `json:"totalTokenCount"`
	}
)

func geminiHead(n *Answer, parts ...any) geminiAnswer {
	return geminiAnswer{Candidates: []geminiCandidate{{Content: geminiSaid{"model", parts}}}, Model: n.Model, ID: n.ID}
}

// geminiReasons are Gemini's words. Calls have none of their own.
var geminiReasons = map[string]string{"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", ContentFilter: "SAFETY"}

// end says how a turn ended, and what it took. What Gemini has no word for is OTHER, which no client takes for the model's end.
func (m *geminiAnswer) end(n *Answer) {
	c, reason := &m.Candidates[0], finishReason(n)
	if c.FinishReason = geminiReasons[reason]; c.FinishReason == "" {
		c.FinishReason, c.FinishMessage = "OTHER", reason
	}
	m.Usage = &geminiUsage{n.Turn.PromptTokens, n.Turn.CompletionTokens, n.Turn.Used()}
}

// Whole implements Dialect.
func (Gemini) Whole(a *Request, n *Answer) any {
	var said []any
	if a.thoughts && n.Reasoning != "" {
		said = append(said, geminiText{n.Reasoning, true})
	}
	if n.Turn.Content != "" {
		said = append(said, geminiText{Text: n.Turn.Content})
	}
	for _, c := range n.Turn.ToolCalls {
		said = append(said, callPart(c))
	}
	if said == nil {
		said = []any{geminiText{}}
	}
	m := geminiHead(n, said...)
	m.end(n)
	return m
}

func callPart(c events.ToolCall) geminiCall { return geminiCall{geminiCalled{c.ID, c.Name, input(c)}} }

// geminiStream is an answer in parts, each a whole answer of its own.
type geminiStream struct {
	told
	thoughts bool
	send     func(Piece)
}

// Stream implements Dialect.
func (Gemini) Stream(a *Request, head *Answer, send func(Piece)) Stream {
	return &geminiStream{told{head: head}, a.thoughts, send}
}

// Reason implements Stream.
func (s *geminiStream) Reason(text string) {
	if !s.thoughts {
		return
	}
	s.reasoning.WriteString(text)
	for part := range parts(text) {
		s.send(Piece{Data: geminiHead(s.head, geminiText{part, true})})
	}
}

// Say implements Stream.
func (s *geminiStream) Say(text string) {
	s.content.WriteString(text)
	for part := range parts(text) {
		s.send(Piece{Data: geminiHead(s.head, geminiText{Text: part})})
	}
}

// End implements Stream.
func (s *geminiStream) End(n *Answer) error {
	n, err := s.rest(s, n)
	if err != nil {
		return err
	}
	for _, c := range n.Turn.ToolCalls {
		s.send(Piece{Data: geminiHead(n, callPart(c))})
	}
	last := geminiHead(n, geminiText{})
	last.end(n)
	s.send(Piece{Data: last})
	return nil
}

// geminiStates are the protocol's words for what went wrong.
var geminiStates = map[int]string{
	http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND", http.StatusConflict: "FAILED_PRECONDITION",
	http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusGatewayTimeout: "DEADLINE_EXCEEDED", http.StatusBadGateway: "UNAVAILABLE", http.StatusServiceUnavailable: "UNAVAILABLE",
}

// Failure implements Dialect.
func (Gemini) Failure(f Failure) Piece {
	state := geminiStates[f.Status]
	switch {
	case state != "":
	case f.Status >= http.StatusInternalServerError:
		state = "INTERNAL"
	default:
		state = "INVALID_ARGUMENT"
	}
	return Piece{Data: map[string]any{"error": map[string]any{"code": f.Status, "message": f.Message, "status": state}}}
}
