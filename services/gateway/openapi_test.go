package gateway

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
)

var rewrite = flag.Bool("rewrite", false, "write openapi.json from the table of endpoints")

// object is a JSON object.
type object = map[string]any

// schemaOf is the schema of a body, made from its Go type.
func schemaOf(value any) any {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true}
	schema := r.Reflect(value)
	schema.Version = ""
	return schema
}

// body describes a body of JSON.
func bodyOf(value any) object {
	schema := any(object{"type": "object"})
	if value != nil {
		schema = schemaOf(value)
	}
	return object{"application/json": object{"schema": schema}}
}

// operation describes an endpoint.
func operation(e endpoint) object {
	failure := object{"description": "What is wrong, in the words of the dialect", "content": bodyOf(nil)}
	o := object{
		"summary": e.summary, "responses": object{strconv.Itoa(e.status): object{"description": "Done",
			"content": bodyOf(e.answers)}, "default": failure},
		"security": []object{{"bearer": []string{}}, {"x-api-key": []string{}}},
	}
	var parameters []object
	if strings.Contains(e.pattern, "{id}") {
		parameters = append(parameters, object{"name": "id", "in": "path", "required": true,
			"schema": object{"type": "string"}, "description": "what POST /rollouts has answered, RUN.ROLLOUT"})
	}
	if strings.Contains(e.pattern, "{method...}") {
		parameters = append(parameters, object{"name": "method", "in": "path", "required": true,
			"schema":      object{"type": "string"},
			"description": "MODEL:generateContent, MODEL:streamGenerateContent with alt=sse, or MODEL:countTokens"})
	}
	if e.repeatable {
		parameters = append(parameters, object{"name": keyHeader, "in": "header",
			"schema":      object{"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
			"description": "names the call, so that it may be repeated after a lost answer: it is done once"})
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if strings.HasPrefix(e.pattern, "POST") {
		o["requestBody"] = object{"required": true, "content": bodyOf(e.asks)}
	}
	return o
}

// TestDescription: openapi.json says what the handlers serve.
func TestDescription(t *testing.T) {
	paths := object{}
	for _, e := range (&Gateway{}).endpoints() {
		method, path, _ := strings.Cut(strings.ReplaceAll(e.pattern, "...", ""), " ")
		at, _ := paths[path].(object)
		if at == nil {
			at = object{}
			paths[path] = at
		}
		at[strings.ToLower(method)] = operation(e)
	}
	document := object{
		"openapi": "3.1.0",
		"info": object{"title": "Rondo's gateway", "version": "1",
			"description": "Rollouts of harnesses of one's own: docs/guide/harnesses.md"},
		"paths": paths,
		"components": object{"securitySchemes": object{
			"bearer":    object{"type": "http", "scheme": "bearer"},
			"x-api-key": object{"type": "apiKey", "in": "header", "name": "x-api-key"},
		}},
	}
	want, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *rewrite {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, description) {
		t.Error("openapi.json is not what the handlers serve; run: go test ./services/gateway -run TestDescription -rewrite")
	}
}
