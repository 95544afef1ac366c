package dialects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/inference"
)

// maxSchema is how deep a schema may be.
const maxSchema = 64

// jsonSchema is a schema in Gemini's own form as JSON has it: its types are in capitals there, what
// may be null says so, and sizes are texts.
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
