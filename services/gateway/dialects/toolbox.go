package dialects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// responsesTool is a tool as a request of responses describes it.
type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
	// Format is that of a custom tool's input.
	Format struct {
		Type       string `json:"type"`
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`
	} `json:"format"`
	// Tools are those of a namespace.
	Tools []responsesTool `json:"tools"`
	// Execution says whether the client or the provider runs a tool search.
	Execution string `json:"execution"`
}

// Types of tools. All but web searches become functions of the chat.
const (
	functionTool   = "function"
	customTool     = "custom"
	namespaceTool  = "namespace"
	localShellTool = "local_shell"
	toolSearchTool = "tool_search"
)

// withheld are tools that a provider runs by itself, and that agents offer in every request whether
// or not there is a network. The model is not offered them, and the answer says so.
var withheld = []string{"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"}

// toolbox says for each function of the chat which tool of the request it stands for.
type toolbox map[string]toolName

type toolName struct{ kind, namespace, name string }

// function is the tool's name in the chat, where a namespace's tools stand beside the others.
func (t toolName) function() string {
	if t.namespace == "" {
		return t.name
	}
	return t.namespace + "__" + t.name
}

// Arguments of the functions that stand for tools of other types.
var (
	customParameters     = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`)
	localShellParameters = json.RawMessage(`{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments."},` +
		`"timeout_ms":{"type":"integer"},"working_directory":{"type":"string"},"env":{"type":"object","additionalProperties":{"type":"string"}},"user":{"type":"string"}},` +
		`"required":["command"],"additionalProperties":false}`)
)

// readTools reads the tools of a request: those that the model is offered, and the types
// of those that it is not.
func (b toolbox) readTools(list []responsesTool) (offered []inference.Tool, without []string, err error) {
	types := map[string]bool{}
	for i, t := range list {
		switch {
		case slices.Contains(withheld, t.Type):
			types[t.Type] = true
			continue
		case t.Type == toolSearchTool && (t.Execution == "" || t.Execution == "server"):
			continue // it loads tools whose loading is deferred; the model is offered these at once
		}
		tools, err := b.functions(t)
		if err != nil {
			return nil, nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		offered = append(offered, tools...)
	}
	if len(offered) > maxTools {
		return nil, nil, fmt.Errorf("tools: %d of them, at most %d", len(offered), maxTools)
	}
	return offered, slices.Sorted(maps.Keys(types)), nil
}

// functions are the chat's for a tool.
func (b toolbox) functions(t responsesTool) ([]inference.Tool, error) {
	if t.Type != namespaceTool {
		f, err := b.function(t, responsesTool{})
		return []inference.Tool{f}, err
	}
	var list []inference.Tool
	for i, inner := range t.Tools {
		f, err := b.function(inner, t)
		if err != nil {
			return nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// function is the chat's for a tool, which may be of a namespace. A chat has no place for the
// namespace's description but those of its tools.
func (b toolbox) function(t, namespace responsesTool) (inference.Tool, error) {
	name := toolName{t.Type, namespace.Name, t.Name}
	d := inference.Description{Description: t.Description, Parameters: parameters(t.Parameters), Strict: t.Strict}
	switch {
	case t.Type == functionTool:
	case t.Type == customTool:
		d.Parameters = customParameters
		switch t.Format.Type {
		case "", "text":
		case "grammar":
			d.Description = strings.TrimSpace(d.Description + "\n\nThe input follows this grammar (" + t.Format.Syntax +
				"):\n" + t.Format.Definition)
		default:
			return inference.Tool{}, fmt.Errorf("format: type %.40q, want text or grammar", t.Format.Type)
		}
	case t.Type == localShellTool && namespace.Name == "":
		name.name, d.Parameters, d.Description = localShellTool, localShellParameters,
			"Runs a command on the user's machine."
	case t.Type == toolSearchTool && namespace.Name == "" && t.Execution == "client":
		name.name = toolSearchTool
	default:
		return inference.Tool{},
			fmt.Errorf("type %.40q: the gateway carries function, custom, namespace, local_shell and tool_search, which the client runs itself; leave this tool out", t.Type)
	}
	if name.name == "" {
		return inference.Tool{}, errors.New("a tool without a name")
	}
	if namespace.Description != "" {
		d.Description = strings.TrimSpace(namespace.Description + "\n\n" + d.Description)
	}
	d.Name = name.function()
	if other, ok := b[d.Name]; ok && other != name {
		return inference.Tool{}, fmt.Errorf("the tools %s and %s have one name for the model, %.80q: rename one", other,
			name, d.Name)
	}
	b[d.Name] = name
	return inference.Tool{Type: functionTool, Function: d}, nil
}

func (t toolName) String() string {
	if t.namespace == "" {
		return fmt.Sprintf("%.80q of type %s", t.name, t.kind)
	}
	return fmt.Sprintf("%.80q of type %s in namespace %.80q", t.name, t.kind, t.namespace)
}

// choice is the chat's for a choice of tools.
func (b toolbox) choice(raw json.RawMessage) (any, error) {
	var word string
	var one struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	err := fields.Decode(raw, &one)
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "auto", "none", "required":
			return word, nil
		}
	} else if err == nil {
		name := toolName{one.Type, one.Namespace, one.Name}
		switch one.Type {
		case localShellTool, toolSearchTool:
			name.name = one.Type
			fallthrough
		case functionTool, customTool:
			if b[name.function()] != name {
				return nil, fmt.Errorf("tool_choice: the request offers no tool %s", name)
			}
			return map[string]any{"type": functionTool, "function": map[string]string{"name": name.function()}}, nil
		}
		word = one.Type
	} else {
		return nil, fmt.Errorf("tool_choice: %w", err)
	}
	return nil, fmt.Errorf("tool_choice: %.40q, want auto, none, required, or a tool of type function, custom, local_shell or tool_search", word)
}

// shellAction is what a call of a local shell does.
type shellAction struct {
	Type             string            `json:"type,omitempty"` // exec
	Command          []string          `json:"command"`
	TimeoutMS        *json.Number      `json:"timeout_ms,omitempty"`
	WorkingDirectory *string           `json:"working_directory,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	User             *string           `json:"user,omitempty"`
}

// readAction reads the arguments of a call; ok is false where they are no action.
func readAction(arguments string) (action shellAction, ok bool) {
	d := json.NewDecoder(bytes.NewReader([]byte(arguments)))
	d.DisallowUnknownFields()
	ok = d.Decode(&action) == nil && !d.More() && len(action.Command) > 0 && action.Type == ""
	action.Type = "exec"
	return action, ok
}

// CustomInput is what the model gives a custom tool: its words where they are not what the tool
// asks for, so that the client judges them.
func CustomInput(arguments string) string {
	var in map[string]json.RawMessage
	var text *string
	if json.Unmarshal([]byte(arguments), &in) != nil || len(in) != 1 ||
		json.Unmarshal(in["input"], &text) != nil || text == nil {
		return arguments
	}
	return *text
}
