package dialects

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/inference"
)

// geminiTools reads the functions that the client runs, and which tools of the provider
// the model is not offered.
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
			return nil, fmt.Errorf("functionCallingConfig.allowedFunctionNames: the request offers no function %.80q",
				c.Allowed[0])
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

// geminiSettings reads how to sample: extra are the fields that go to the server, and spelled is
// what chat completions call it.
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
		return false, 0,
			fmt.Errorf("candidateCount: %d, but a rollout goes on with one answer; start more members of its group",
				*c.CandidateCount)
	case c.MaxOutputTokens != nil && *c.MaxOutputTokens < 1:
		return false, 0, fmt.Errorf("maxOutputTokens: %d, must be positive", *c.MaxOutputTokens)
	case c.TopK != nil && (*c.TopK != math.Trunc(*c.TopK) || math.Abs(*c.TopK) > math.MaxInt32):
		return false, 0, fmt.Errorf("topK: %v, want a whole number", *c.TopK)
	}
	for name, value := range map[string]json.RawMessage{
		"temperature": c.Temperature, "top_p": c.TopP, "presence_penalty": c.PresencePenalty,
		"frequency_penalty": c.FrequencyPenalty,
		"thinking":          c.ThinkingConfig,
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
